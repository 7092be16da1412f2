// The accepting end of shm: an abstract UNIX socket, the peers that have connected to it and not
// yet said who they are, and those that have.
//
// Abstract names belong to a network namespace and have no permissions: any process of this host
// may connect, so every peer is a stranger until its token has been verified. The kernel says which
// user it is.
//
// Owned by the acceptor, used by one thread. Peers that have not sent their token cost a descriptor
// each, 64 at most; the oldest goes first, and each after 5 s.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/shm/socket.h"
#include "transport/transport.h"

namespace rdfs::transport::shm {

// The user at the other end as the kernel reports it; none when `incoming` is not of shm.
std::optional<uid_t> PeerUid(const Incoming& incoming);

class ShmIncoming final : public Incoming {
 public:
  ShmIncoming(PacketSocket socket, uid_t uid, ByteSpan token, std::string name,
              std::size_t peer_regions);

  [[nodiscard]] ByteSpan token() const override { return ByteSpan(token_).first(token_bytes_); }
  [[nodiscard]] std::string peer() const override { return "uid " + std::to_string(uid_); }
  [[nodiscard]] uid_t uid() const { return uid_; }
  Result<std::unique_ptr<Connection>> Accept(const std::shared_ptr<Domain>& domain) override;
  void Reject(const Status& why) override;

 private:
  std::optional<PacketSocket> socket_;
  uid_t uid_;
  std::array<std::byte, kMaxTokenBytes> token_{};
  std::size_t token_bytes_;
  std::string name_;
  std::size_t peer_regions_;
};

class ShmListener final : public Listener {
 public:
  // `name` empty: a random one. `peer_regions`: how many each peer may share at a time. Errors:
  // kInvalidArgument (name), kErrno (in use), kUnavailable.
  static Result<std::unique_ptr<Listener>> Create(const std::string& name,
                                                  std::size_t peer_regions);

  [[nodiscard]] Endpoint endpoint() const override { return {Kind::kShm, name_, 0}; }
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  Result<std::unique_ptr<Incoming>> Accept() override;

 private:
  struct Silent {  // a peer that has not sent its token
    PacketSocket socket;
    Deadline deadline;
  };

  ShmListener(std::string name, std::size_t peer_regions, Fd socket, Fd epoll, Fd timer)
      : name_(std::move(name)),
        peer_regions_(peer_regions),
        socket_(std::move(socket)),
        epoll_(std::move(epoll)),
        timer_(std::move(timer)) {}

  Status AcceptSockets();
  void DropLateOnes();
  // The peer as an Incoming; null when it is still silent or (then `socket` is closed) nonsense.
  enum class Heard { kNothing, kPreface, kNonsense };
  Heard Hear(PacketSocket& socket, std::unique_ptr<Incoming>& out) const;

  const std::string name_;
  const std::size_t peer_regions_;
  Fd socket_;
  Fd epoll_;                   // the socket, the silent peers, the timer
  Fd timer_;                   // goes off when the oldest silent peer is to be dropped
  std::deque<Silent> silent_;  // oldest first
};

}  // namespace rdfs::transport::shm
