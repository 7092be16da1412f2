// Server: answers GET /metrics by HTTP, to a Prometheus server and to whoever else may connect.
//
// One thread of its own, which sleeps until somebody comes; `metrics` runs on it. At most
// kMostPeers are served at a time, more wait in the kernel's queue. Each has kPatience for all of
// it, gets one answer, and is let go: one that is silent, slow or sends more than a request costs
// no more than that, and nobody but its like. Nothing that is received reaches more than the parser
// (request.h).
//
// Whoever reaches a port may ask: there is no key. On a UNIX socket it is its user and root.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "transport/base/clock.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"
#include "transport/metrics/address.h"
#include "transport/metrics/request.h"

namespace rdfs::metrics {

class Server {
 public:
  static constexpr std::size_t kMostPeers = 8;
  static constexpr std::chrono::seconds kPatience{5};

  // Listens and serves until it is destroyed. A socket that a killed program left is replaced.
  // Errors: kUnavailable for a place that is another's or is none of this host, kErrno; one
  // sentence for a person each.
  static Result<std::unique_ptr<Server>> Listen(const Address& address,
                                                std::function<std::string()> metrics,
                                                std::chrono::milliseconds patience = kPatience);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // With the port that it is.
  [[nodiscard]] const Address& address() const { return address_; }

 private:
  // One that has connected:  receives --> answers --> is drained, so that a close while it still
  // sends does not take the answer away from it (RFC 9112, section 9.6) --> gone.
  struct Peer {
    Fd socket;
    Deadline deadline;
    std::string received{};
    std::string answer{};
    std::size_t sent = 0;
    std::size_t drained = 0;
    [[nodiscard]] bool answering() const { return sent < answer.size(); }
  };

  Server(Address address, Fd listener, EventFd stop, std::function<std::string()> metrics,
         std::chrono::milliseconds patience);
  void Run();
  void Accept();
  // Each as far as it goes without waiting; false: it is over.
  bool Serve(Peer& peer) const;
  bool Receive(Peer& peer) const;
  static bool Answer(Peer& peer);
  static bool Drain(Peer& peer);
  void EndLate(TimePoint now);

  const Address address_;
  const Fd listener_;
  const EventFd stop_;
  const Names names_;
  const std::function<std::string()> metrics_;
  const std::chrono::milliseconds patience_;
  std::list<Peer> peers_;     // the thread's
  TimePoint accept_again_{};  // the thread's: when the kernel had no descriptor left, later
  std::thread thread_;
};

}  // namespace rdfs::metrics
