// Vestibule: one stream at the server, from its first byte until it is a session, a lane, or gone.
//
// Owned by the acceptor, on its thread. Never blocks: Advance does what can be done now. Costs one
// bounded record: a frame of 4 KiB before authentication, 16 KiB behind it.
//
//   kHello --client hello--> kConfirm --right--> kOpening --admitted--> kLive --use stream--> lane
//      |                        |
//      |                        +--wrong key--> kHeld --time--> kRefusing --> kDraining --> kOver
//      +--lane hello--> kAccepted --answer sent--> (kLaneTls) --> lane
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <vector>

#include "transport/session/frame_stream.h"
#include "transport/session/handshake.h"
#include "transport/session/session_server.h"

namespace rdfs::transport::session {

class Vestibule {
 public:
  // How long a peer may take until its session or lane stands.
  static constexpr std::chrono::seconds kHandshakeTime{5};
  static constexpr std::chrono::seconds kGivenHandshakeTime{30};
  // What a client may take for the other legs when it uses the stream itself meanwhile.
  static constexpr std::chrono::seconds kLanesBehindStream{15};

  Vestibule(std::unique_ptr<tcp::ByteStream> stream, PeerFacts peer, SessionServer& server,
            TimePoint now);
  Vestibule(const Vestibule&) = delete;
  Vestibule& operator=(const Vestibule&) = delete;
  // Ends the session that stands here.
  ~Vestibule();

  // Does what can be done now; false when this vestibule is over.
  bool Advance(TimePoint now);
  void AddPollEntries(std::vector<pollfd>& out) const;
  // When to Advance though nothing happens.
  [[nodiscard]] std::optional<Deadline> deadline() const { return deadline_; }
  // As the limits see it; none once a session stands, and for a stream that was given.
  [[nodiscard]] std::optional<HalfOpen> half_open() const;
  // Its session was ended by others: nothing is left to stand here for.
  [[nodiscard]] bool session_lost() const {
    return session_id_ != 0 && server_.Find(session_id_) == nullptr;
  }
  [[nodiscard]] const PeerFacts& peer() const { return peer_; }

 private:
  enum class State {
    kHello,     // nothing came yet
    kConfirm,   // our hello is out
    kOpening,   // authenticated: the session's request is next (TLS comes before it, if any)
    kLive,      // the session stands as long as this stream
    kReleased,  // the stream becomes a lane of the session when the answer is out
    kGone,      // it has: other lanes may still come for a while
    kAccepted,  // the stream becomes a lane when the answer is out
    kLaneTls,   // the answer is out; when its TLS stands
    kHeld,      // the answer to a wrong key waits
    kRefusing,  // the refusal is on its way out
    kDraining,  // the refusal is out: until the peer has closed, so that it can read it
    kOver,
  };

  void OnDeadline(TimePoint now);
  void ReceiveFrames(TimePoint now);
  void OnOutputDone(TimePoint now);
  Status OnFrame(TimePoint now);
  Status OnHandshakeFrame(TimePoint now);
  Status OnLaneHello(TimePoint now);
  Status OnSessionOpen(TimePoint now);
  Status OnUseStream();
  // Puts TLS under what follows; false (and over) when it cannot.
  bool StartTls(const Secret32& key);
  void ContinueLaneTls(TimePoint now);
  void BecomeLane(const SessionTable::Ticket& ticket);
  void Fail(const Status& why, TimePoint now);
  void Refuse(const Status& why, TimePoint now);
  void Drain();

  PeerFacts peer_;
  SessionServer& server_;
  FrameStream frames_;
  ServerHandshake handshake_;
  State state_ = State::kHello;
  const TimePoint since_;
  std::optional<Deadline> deadline_;
  Status held_;                   // of kHeld
  std::uint64_t session_id_ = 0;  // of kLive, kReleased and kGone
  bool tls_next_ = false;         // of kOpening: TLS starts when our confirmation is out
  std::optional<SessionTable::Redeemed> lane_;  // of kAccepted and kLaneTls
};

}  // namespace rdfs::transport::session
