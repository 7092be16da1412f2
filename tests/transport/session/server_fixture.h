// A real acceptor on its own thread, with an upper layer that echoes, for tests of sessions.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/session/acceptor.h"
#include "transport/session/session.h"

namespace rdfs::transport {

// Admits "echo", refuses everything else; serves every lane on a thread of its own: what arrives as
// a message goes back.
class EchoHost final : public SessionHost {
 public:
  ~EchoHost() override { StopLanes(); }

  Result<Admission> Admit(const SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<Connection> lane) override;
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override;

  void StopLanes();
  // Blocks until so many sessions have ended.
  [[nodiscard]] bool AwaitEnds(std::size_t count);
  [[nodiscard]] SessionRequest LastRequest();
  [[nodiscard]] std::size_t lanes();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<void>> sessions_;
  std::size_t ended_ = 0;
  SessionRequest last_;
  std::vector<std::jthread> threads_;
};

class Server {
 public:
  explicit Server(AcceptorOptions options);
  ~Server() { Stop(); }
  void Stop();

  [[nodiscard]] std::uint16_t port() const { return acceptor_->port(); }
  [[nodiscard]] EchoHost& host() { return host_; }
  [[nodiscard]] Acceptor& acceptor() { return *acceptor_; }

 private:
  EchoHost host_;
  std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

// On loopback, a free port, the key "sesame".
AcceptorOptions ServerOptions();
DialOptions ClientOptions(const Server& server);

// Sends a message and expects it back.
void ExpectEcho(Connection& lane, std::string_view text);

}  // namespace rdfs::transport
