// Listeners: everything that a server listens on, and what it tells clients about it.
//
// Owned by the acceptor, on its thread. A verbs or shm listener that cannot be made is left out:
// its offer carries the reason. Nothing here blocks after Open.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/base/fd.h"
#include "transport/session/acceptor.h"
#include "transport/session/messages.h"
#include "transport/transport.h"

namespace rdfs::transport::session {

class Listeners {
 public:
  // Errors: those of tcp::ListenSocket; nothing else fails the server.
  static Result<std::unique_ptr<Listeners>> Open(const AcceptorOptions& options);

  // An RDMA port that was down, or not there, may be up by now: verbs is tried again where it is
  // wanted and not offered. Whether what is told to clients has changed.
  bool LookAgain(const AcceptorOptions& options);

  // From here on peers are refused at once instead of waiting for an answer.
  void Close();

  [[nodiscard]] std::uint16_t port() const { return port_; }  // 0 without TCP
  [[nodiscard]] const std::vector<Fd>& sockets() const { return sockets_; }
  // shm and verbs, those that work.
  struct LaneListener {
    Kind kind;
    std::unique_ptr<Listener> listener;
  };
  [[nodiscard]] const std::vector<LaneListener>& lanes() const { return lanes_; }
  [[nodiscard]] const std::vector<Offer>& offers() const { return offers_; }

 private:
  Listeners() = default;
  Status OpenTcp(const AcceptorOptions& options);
  // Warns where it cannot be listened to, unless that is what was `known`.
  Offer OpenLanes(const AcceptorOptions& options, Kind kind, std::unique_ptr<Transport> transport,
                  const std::string& known = {});

  std::vector<std::unique_ptr<Transport>> transports_;  // outlive their listeners
  std::vector<Fd> sockets_;
  std::vector<LaneListener> lanes_;
  std::vector<Offer> offers_;
  std::uint16_t port_ = 0;
};

}  // namespace rdfs::transport::session
