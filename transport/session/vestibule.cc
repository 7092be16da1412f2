#include "transport/session/vestibule.h"

#include <array>
#include <utility>

#include "transport/base/log.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::session {
namespace {

// Long enough for a refusal to cross the world, short enough not to be worth holding.
constexpr std::chrono::seconds kDrainTime{1};

}  // namespace

Vestibule::Vestibule(std::unique_ptr<tcp::ByteStream> stream, PeerFacts peer, SessionServer& server,
                     TimePoint now)
    : peer_(std::move(peer)),
      server_(server),
      frames_(std::move(stream), kMaxHandshakeBody),
      handshake_(server.policy(), peer_.local, Randomness::Draw()),
      since_(now),
      deadline_(now + (peer_.given ? kGivenHandshakeTime : kHandshakeTime)) {}

Vestibule::~Vestibule() {
  if (session_id_ != 0) server_.End(session_id_);
}

std::optional<HalfOpen> Vestibule::half_open() const {
  if (peer_.given || session_id_ != 0) return std::nullopt;
  int progress = 0;
  if (state_ == State::kConfirm) progress = 1;
  if (state_ == State::kOpening || state_ == State::kAccepted || state_ == State::kLaneTls) {
    progress = 2;
  }
  // Who has failed already makes room first.
  if (state_ == State::kHeld || state_ >= State::kRefusing) progress = -1;
  return HalfOpen{peer_.address, progress, since_};
}

void Vestibule::AddPollEntries(std::vector<pollfd>& out) const {
  // Nothing to learn while an answer is held; and a peer that hung up would wake us for ever.
  if (state_ != State::kHeld && state_ != State::kGone) frames_.AddPollEntries(out);
}

bool Vestibule::Advance(TimePoint now) {
  if (deadline_ && now >= *deadline_) OnDeadline(now);
  if (state_ == State::kHeld || state_ == State::kGone) return true;
  for (bool again = true; again && state_ != State::kOver;) {
    const State before = state_;
    if (!frames_.Flush().ok()) return false;
    if (!frames_.has_output()) OnOutputDone(now);
    if (state_ == State::kGone) return true;
    if (state_ == State::kLaneTls) ContinueLaneTls(now);
    if (state_ != State::kOver) ReceiveFrames(now);
    again = state_ != before && state_ != State::kHeld;
  }
  return state_ != State::kOver;
}

void Vestibule::OnDeadline(TimePoint now) {
  deadline_.reset();
  if (state_ == State::kHeld) {
    Refuse(held_, now);
    return;
  }
  if (state_ != State::kDraining && state_ != State::kGone) {
    LogDebug("{} was dropped: it did not finish in time", peer_.name);
  }
  state_ = State::kOver;
}

void Vestibule::ReceiveFrames(TimePoint now) {
  if (state_ == State::kDraining) return Drain();
  while (state_ <= State::kLive && !tls_next_) {
    const auto whole = frames_.Receive();
    if (!whole.ok()) return Fail(whole.status(), now);
    if (!*whole) return;
    const Status status = OnFrame(now);
    if (!status.ok()) return Fail(status, now);
    frames_.Next();
  }
}

void Vestibule::Fail(const Status& why, TimePoint now) {
  if (why.code() == Code::kDisconnected) {
    LogDebug("{} went away", peer_.name);
    state_ = State::kOver;
    if (session_id_ != 0) server_.End(std::exchange(session_id_, 0));
    return;
  }
  if (handshake_.wrong_key() && state_ != State::kHeld) {
    const auto hold = server_.OnWrongKey(peer_, now);
    if (hold.count() > 0) {
      held_ = why;
      deadline_ = now + hold;
      state_ = State::kHeld;
      return;
    }
  }
  Refuse(why, now);
}

void Vestibule::Refuse(const Status& why, TimePoint now) {
  LogDebug("{} was refused: {}", peer_.name, why.ToString());
  if (session_id_ != 0) server_.End(std::exchange(session_id_, 0));
  frames_.Queue(EncodeFrame(FrameType::kRefused, Refusal{{}, why}.Encode()));
  state_ = State::kRefusing;
  deadline_ = now + kDrainTime;
}

void Vestibule::Drain() {
  // Closing with bytes unread would reset the connection and take the refusal with it (RFC 1122,
  // 4.2.2.13).
  std::array<std::byte, 4096> scrap;
  const auto count = frames_.stream().Read(scrap);
  if (!count.ok()) state_ = State::kOver;
}

void Vestibule::OnOutputDone(TimePoint now) {
  switch (state_) {
    case State::kOpening:
      if (std::exchange(tls_next_, false)) StartTls(handshake_.agreement().tls_key);
      return;
    case State::kAccepted:
      if (!lane_->ticket->encrypt_lanes) {
        BecomeLane(*lane_->ticket);
        state_ = State::kOver;
      } else if (StartTls(lane_->claim.TlsKey(lane_->ticket->secret))) {
        state_ = State::kLaneTls;
      }
      return;
    case State::kReleased: {
      const auto ticket = server_.Find(session_id_);
      if (ticket != nullptr) BecomeLane(*ticket);
      if (!server_.offers_lanes()) server_.End(std::exchange(session_id_, 0));
      state_ = session_id_ == 0 ? State::kOver : State::kGone;
      deadline_ = now + kLanesBehindStream;
      return;
    }
    case State::kRefusing:
      frames_.stream().Shutdown();
      state_ = State::kDraining;
      return;
    default:
      return;
  }
}

Status Vestibule::OnFrame(TimePoint now) {
  const FrameType type = frames_.frame().type;
  if (state_ == State::kHello && type == FrameType::kLaneHello) return OnLaneHello(now);
  if (state_ == State::kHello || state_ == State::kConfirm) return OnHandshakeFrame(now);
  if (state_ == State::kOpening && type == FrameType::kSessionOpen) return OnSessionOpen(now);
  if (state_ == State::kLive && type == FrameType::kUseStream) return OnUseStream();
  return {Code::kProtocolError, "the peer sent a message out of turn"};
}

Status Vestibule::OnHandshakeFrame(TimePoint) {
  RDFS_ASSIGN_OR_RETURN(std::vector<std::byte> answer, handshake_.OnFrame(frames_.raw()));
  frames_.Queue(std::move(answer));
  state_ = State::kConfirm;
  if (!handshake_.done()) return Status::Ok();
  state_ = State::kOpening;
  tls_next_ = handshake_.agreement().encryption == Encryption::kTls;
  frames_.set_max_body(kMaxSessionBody);
  return Status::Ok();
}

Status Vestibule::OnLaneHello(TimePoint now) {
  RDFS_ASSIGN_OR_RETURN(lane_, server_.Redeem(frames_.frame().body, Kind::kTcp, now));
  frames_.Queue(EncodeFrame(FrameType::kLaneAccepted, {}));
  state_ = State::kAccepted;
  return Status::Ok();
}

Status Vestibule::OnSessionOpen(TimePoint now) {
  SessionOpen open;
  RDFS_RETURN_IF_ERROR(SessionOpen::Decode(frames_.frame().body, open));
  RDFS_ASSIGN_OR_RETURN(const SessionServer::Opened opened,
                        server_.Open(open, handshake_.agreement(), peer_, now));
  session_id_ = opened.session_id;
  frames_.Queue(EncodeFrame(FrameType::kSessionGrant, opened.grant));
  state_ = State::kLive;
  deadline_.reset();
  return Status::Ok();
}

Status Vestibule::OnUseStream() {
  if ((handshake_.agreement().features & kFeatureStreamLane) == 0) {
    return {Code::kProtocolError, "the peer uses a feature that was not agreed on"};
  }
  frames_.Queue(EncodeFrame(FrameType::kStreamReady, {}));
  state_ = State::kReleased;
  return Status::Ok();
}

bool Vestibule::StartTls(const Secret32& key) {
  auto tls = tcp::StartTls(frames_.TakeStream(), tcp::TlsRole::kServer, key.bytes());
  if (!tls.ok()) {
    LogError("cannot start TLS with {}: {}", peer_.name, tls.status().message());
    state_ = State::kOver;
    return false;
  }
  frames_.GiveStream(*std::move(tls));
  return true;
}

// Before the lane changes hands: its new owner may have no reason to poll it soon.
void Vestibule::ContinueLaneTls(TimePoint now) {
  const auto nothing = frames_.stream().Read({});
  if (!nothing.ok()) return Fail(nothing.status(), now);
  if (!frames_.stream().established()) return;
  BecomeLane(*lane_->ticket);
  state_ = State::kOver;
}

void Vestibule::BecomeLane(const SessionTable::Ticket& ticket) {
  auto stream = frames_.TakeStream();
  std::string description = "tcp " + peer_.name + (stream->encrypted() ? " with TLS" : "");
  auto lane = tcp::MakeConnection(std::move(stream), ticket.domain, std::move(description));
  if (!lane.ok()) return LogError("no lane to {}: {}", peer_.name, lane.status().message());
  server_.GiveLane(ticket, *std::move(lane));
}

}  // namespace rdfs::transport::session
