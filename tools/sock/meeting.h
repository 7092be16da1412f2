// How the two ends of a TCP connection on one host meet: at an abstract UNIX name made of both
// sockets' cookies. One attempt. PROTOCOL.md, "Meeting, on one host"; the proof by passing the
// socket is not in it: partners are known by their uid alone.
//
// Owned by whoever made it, used by one thread. Never sleeps: Go() does what can be done at once,
// and fd() becomes readable when there is more. Costs two descriptors while it waits and nothing of
// the TCP connection. The partner is a stranger until the kernel has said who it is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tools/sock/meeting_wire.h"
#include "tools/sock/peer_socket.h"
#include "tools/sock/ring.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::sock {

inline constexpr std::chrono::seconds kMeetingTimeout{1};

// Which end called connect(2): an end that inherited its socket may not know.
enum class Opened : std::uint8_t { kHere, kThere, kUnknown };
// What this end takes for true when the other says what it thinks, seen from there. kUnknown when
// they contradict each other or nobody knows.
Opened Settle(Opened here, Opened there);

// Whether a partner of this uid may be the process at the other end of a socket of `owner`'s.
constexpr bool MayAttach(uid_t partner, uid_t owner) { return partner == owner || partner == 0; }

class Meeting {
 public:
  enum class State : std::uint8_t { kWaiting, kMet, kOver };

  struct Result {
    Channel channel;
    Channel::Role role;
    Fd data, room;
    bool opened;  // this end called connect
    Far far = Far::kEnd;

    // In a child of fork, which forgets it then: closes what it has open, and frees nothing.
    void CloseUnfreed();
  };

  // `mine`: SO_COOKIE of the own TCP socket; `peer`: what FindPeerSocket said. Errors: kErrno,
  // kResourceExhausted, and kNotFound when the partner is not ready to be met (try later).
  static rdfs::Result<std::unique_ptr<Meeting>> Begin(std::uint64_t mine, const PeerSocket& peer,
                                                      Opened opened, std::uint32_t largest_ring,
                                                      TimePoint now);

  State Go(TimePoint now);
  [[nodiscard]] int fd() const { return socket_.valid() ? socket_.get() : listener_.get(); }
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  // Why it is over. Once, after kMet: what both have agreed on.
  [[nodiscard]] const Status& why() const { return why_; }
  Result Take();
  // Whether the other end has come: it answers at its next call.
  [[nodiscard]] bool has_partner() const { return socket_.valid(); }
  // As Result's.
  void CloseUnfreed();

 private:
  struct Packet;
  Meeting(std::uint64_t mine, const PeerSocket& peer, Opened opened, std::uint32_t largest_ring,
          TimePoint now)
      : mine_(mine),
        peer_(peer),
        opened_(opened),
        largest_ring_(largest_ring),
        deadline_(now + kMeetingTimeout) {}

  Status Bind(const std::string& name);
  Status Connect(const std::string& name);
  bool AcceptPartner();
  // One packet; false when there is none yet.
  rdfs::Result<bool> Receive(Packet& packet);
  Status Send(const Packet& packet, int first, int second);
  Status OnHello(const Packet& packet);
  Status OnChannel(Packet& packet);
  Status AgreeOnOpened(std::uint32_t flags);
  [[nodiscard]] std::uint32_t Flags() const;
  State Over(Status why);

  const std::uint64_t mine_;
  const PeerSocket peer_;
  Opened opened_;
  const std::uint32_t largest_ring_;
  const Deadline deadline_;
  Fd listener_;  // the host's, until its partner has come
  Fd socket_;
  Fd room_;
  bool host_ = false;
  std::optional<Channel> channel_;
  State state_ = State::kWaiting;
  Status why_;
};

}  // namespace rdfs::sock
