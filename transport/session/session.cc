#include "transport/session/session.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "transport/base/log.h"
#include "transport/session/addresses.h"
#include "transport/session/choice.h"
#include "transport/session/dial.h"
#include "transport/session/lane_token.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"
#include "transport/verbs/transport.h"

namespace rdfs::transport {
namespace session {
namespace {

// What a leg that does not answer may cost, once a session.
constexpr std::chrono::seconds kLegTime{3};

class SessionImpl final : public Session {
 public:
  SessionImpl(DialOptions options, Dialled dialled, std::shared_ptr<Domain> domain);

  [[nodiscard]] std::uint64_t id() const override { return grant_.session_id; }
  [[nodiscard]] ByteSpan grant() const override { return grant_.grant; }
  [[nodiscard]] const std::shared_ptr<Domain>& domain() const override { return domain_; }
  [[nodiscard]] Secret32 exporter() const override { return ExporterOf(agreement_); }
  Result<std::unique_ptr<Connection>> OpenLane(Deadline deadline) override {
    return OpenBest(deadline, true);
  }
  Result<std::unique_ptr<Connection>> OpenStreamLane(Deadline deadline) override {
    return UseStream(deadline);
  }
  Result<std::unique_ptr<Connection>> OpenDirectLane(Deadline deadline) override {
    return OpenBest(deadline, false);
  }
  Result<std::unique_ptr<Connection>> OpenLaneOver(Kind kind, Deadline deadline) override;
  void RuleOut(Kind kind, Status why) override;
  [[nodiscard]] const std::vector<LegReport>& legs() const override { return legs_; }
  [[nodiscard]] std::string ExplainChoice() const override;

 private:
  [[nodiscard]] ChoiceInput Input() const;
  [[nodiscard]] const Offer* OfferOf(Kind kind) const;
  [[nodiscard]] Status Standing() const;
  Result<std::unique_ptr<Connection>> OpenBest(Deadline deadline, bool stream_too);
  [[nodiscard]] Deadline LegDeadline(const LegReport& leg, Deadline deadline) const;
  Result<std::unique_ptr<Connection>> TryLeg(const LegReport& leg, Deadline deadline);
  Result<std::unique_ptr<Connection>> OverAddresses(Kind kind, Deadline deadline);
  Result<std::unique_ptr<Connection>> OpenTcpLane(const std::string& host, Deadline deadline);
  Result<std::unique_ptr<Connection>> OpenShmLane(Deadline deadline);
  Result<std::unique_ptr<Connection>> OpenVerbsLane(const std::string& host, Deadline deadline);
  std::unique_ptr<FrameStream> TakeVestibule();
  Result<std::unique_ptr<Connection>> UseStream(Deadline deadline);
  LaneClaim NextClaim(Kind kind) { return {kind, grant_.session_id, ++lane_counter_}; }
  void NoteChoice(std::size_t leg, const Connection& lane);

  const DialOptions options_;  // the stream is gone
  Addresses addresses_;
  const bool has_stream_;
  const Agreement agreement_;
  const SessionGrant grant_;
  const std::shared_ptr<Domain> domain_;
  const std::unique_ptr<Transport> shm_ = shm::MakeTransport();
  const std::unique_ptr<Transport> verbs_ = verbs::MakeTransport();
  // OpenStreamLane takes it away beside an OpenDirectLane that looks at it.
  mutable std::mutex vestibule_lock_;
  std::unique_ptr<FrameStream> vestibule_;  // null once it was asked to become a lane
  std::uint64_t lane_counter_ = 0;
  std::vector<LegReport> legs_;
  std::optional<std::size_t> chosen_;
  Protection protection_ = Protection::kPlaintext;
  std::string detail_;
};

SessionImpl::SessionImpl(DialOptions options, Dialled dialled, std::shared_ptr<Domain> domain)
    : options_(std::move(options)),
      addresses_(std::move(dialled.hosts)),
      has_stream_(dialled.over_given_stream),
      agreement_(dialled.agreement),
      grant_(std::move(dialled.grant)),
      domain_(std::move(domain)),
      vestibule_(std::move(dialled.vestibule)) {}

ChoiceInput SessionImpl::Input() const {
  ChoiceInput input;
  input.offers = grant_.offers;
  input.same_host = grant_.same_host;
  input.shm = shm_->Probe();
  input.verbs = verbs_->Probe();
  input.has_stream = has_stream_;
  input.stream_lane = (agreement_.features & kFeatureStreamLane) != 0;
  input.require = options_.require;
  input.require_encryption = options_.require_encryption;
  return input;
}

const Offer* SessionImpl::OfferOf(Kind kind) const {
  const auto found =
      std::ranges::find_if(grant_.offers, [&](const Offer& o) { return o.kind == kind; });
  return found == grant_.offers.end() ? nullptr : &*found;
}

// The server ends a session with its vestibule. Where that has gone, with its server as a rule,
// whoever answers by its name or at its port may be anybody of this host who waited for that, and
// on one host no lane proves its server (PROTOCOL.md).
Status SessionImpl::Standing() const {
  const std::lock_guard lock(vestibule_lock_);
  if (vestibule_ == nullptr || !vestibule_->PeerHasEnded()) return {};
  return {Code::kDisconnected, "the server has ended this session"};
}

Result<std::unique_ptr<Connection>> SessionImpl::OpenBest(Deadline deadline, bool stream_too) {
  if (legs_.empty()) legs_ = PlanLegs(Input());
  for (std::size_t i = 0; i < legs_.size(); ++i) {
    if (!legs_[i].status.ok() || (legs_[i].stdio && !stream_too)) continue;
    if (BootClock::now() >= deadline) {
      return Status(Code::kDeadlineExceeded, "there was no time to open a lane");
    }
    const Deadline until = LegDeadline(legs_[i], deadline);
    auto lane = TryLeg(legs_[i], until);
    if (lane.ok()) {
      RDFS_RETURN_IF_ERROR(Standing());
      NoteChoice(i, **lane);
      return lane;
    }
    // Neither says anything about the leg, but the stream cannot be asked twice.
    const bool busy = lane.status().code() == Code::kBusy;
    const bool our_deadline = lane.status().code() == Code::kDeadlineExceeded && until == deadline;
    if (!busy && (!our_deadline || legs_[i].stdio)) {
      legs_[i].status = lane.status();
      legs_[i].failed = true;
    }
    if (busy || our_deadline) return lane;
  }
  chosen_.reset();
  // The stream is what remains, and may be in use already.
  if (!stream_too && !legs_.empty() && legs_.back().stdio) chosen_ = legs_.size() - 1;
  return NothingWorks(legs_, options_.require);
}

Result<std::unique_ptr<Connection>> SessionImpl::OpenLaneOver(Kind kind, Deadline deadline) {
  for (const LegReport& leg : PlanLegs(Input())) {
    if (leg.kind != kind || leg.stdio) continue;
    if (!leg.status.ok()) return leg.status;
    auto lane = TryLeg(leg, LegDeadline(leg, deadline));
    if (lane.ok()) RDFS_RETURN_IF_ERROR(Standing());
    return lane;
  }
  return Status(Code::kInvalidArgument,
                std::string(Name(kind)) + " is ruled out by what this session requires");
}

void SessionImpl::RuleOut(Kind kind, Status why) {
  for (LegReport& leg : legs_) {
    if (leg.kind != kind || leg.stdio || !leg.status.ok()) continue;
    leg.status = why;
    leg.failed = true;
  }
}

Result<std::unique_ptr<Connection>> SessionImpl::TryLeg(const LegReport& leg, Deadline deadline) {
  if (leg.stdio) return UseStream(deadline);
  if (leg.kind == Kind::kShm) return OpenShmLane(deadline);
  return OverAddresses(leg.kind, deadline);
}

// Two addresses have as long each as one has alone; more share that. The stream is the last leg,
// and saves its time for nobody.
Deadline SessionImpl::LegDeadline(const LegReport& leg, Deadline deadline) const {
  if (leg.stdio) return deadline;
  const bool several = leg.kind != Kind::kShm && addresses_.count() > 1;
  return std::min(deadline, DeadlineAfter(several ? 2 * kLegTime : kLegTime));
}

// By the first address that works, each with its share of the time. Errors: the first one's.
Result<std::unique_ptr<Connection>> SessionImpl::OverAddresses(Kind kind, Deadline deadline) {
  Status first;
  std::size_t left = addresses_.count();
  for (const std::size_t index : addresses_.ForNextLane(BootClock::now())) {
    const TimePoint now = BootClock::now();
    const Deadline share = now + std::max(deadline - now, {}) / static_cast<std::int64_t>(left--);
    const std::string& host = addresses_.host(index);
    auto lane = kind == Kind::kTcp ? OpenTcpLane(host, share) : OpenVerbsLane(host, share);
    if (lane.ok()) return lane;
    // What the server says of the session it says by every address.
    const Code code = lane.status().code();
    if (code == Code::kBusy || code == Code::kAuthenticationFailed) return lane;
    addresses_.Failed(index, BootClock::now());
    if (addresses_.count() > 1) {
      LogWarn("no lane by the server's address {}: {}", host, lane.status().message());
    }
    if (first.ok()) first = lane.status();
  }
  return first;
}

Result<std::unique_ptr<Connection>> SessionImpl::OpenShmLane(Deadline deadline) {
  const LaneTokenBytes token = IssueLaneToken(NextClaim(Kind::kShm), agreement_.session_secret);
  return shm_->Connect({Kind::kShm, OfferOf(Kind::kShm)->name, 0}, domain_, token, deadline);
}

Result<std::unique_ptr<Connection>> SessionImpl::OpenVerbsLane(const std::string& host,
                                                               Deadline deadline) {
  const LaneTokenBytes token = IssueLaneToken(NextClaim(Kind::kVerbs), agreement_.session_secret);
  return verbs_->Connect({Kind::kVerbs, host, OfferOf(Kind::kVerbs)->port}, domain_, token,
                         deadline);
}

Result<std::unique_ptr<Connection>> SessionImpl::OpenTcpLane(const std::string& host,
                                                             Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(Fd socket, tcp::ConnectSocket(host, OfferOf(Kind::kTcp)->port, deadline));
  const bool local = tcp::IsLocalPeer(socket.get());
  const bool encrypt = grant_.encrypt_lanes;
  if (!encrypt && !local && !options_.plaintext) {
    return Status(Code::kProtocolError,
                  "the server did not agree to encrypt: add its plaintext option if that is meant");
  }
  const std::string where =
      Endpoint{Kind::kTcp, host, OfferOf(Kind::kTcp)->port}.ToString().substr(6);
  FrameStream frames(tcp::MakeSocketStream(std::move(socket), where), kMaxHandshakeBody);
  const LaneClaim claim = NextClaim(Kind::kTcp);
  const LaneTokenBytes token = IssueLaneToken(claim, agreement_.session_secret);
  RDFS_RETURN_IF_ERROR(frames.SendAll(EncodeFrame(FrameType::kLaneHello, token), deadline));
  RDFS_RETURN_IF_ERROR(frames.Await(deadline));
  if (frames.frame().type == FrameType::kRefused) {
    Refusal refusal;
    RDFS_RETURN_IF_ERROR(Refusal::Decode(frames.frame().body, refusal));
    return refusal.why;
  }
  if (frames.frame().type != FrameType::kLaneAccepted) {
    return Status(Code::kProtocolError, "the server sent a message out of turn");
  }
  auto stream = frames.TakeStream();
  if (encrypt) {
    const Secret32 key = claim.TlsKey(agreement_.session_secret);
    RDFS_ASSIGN_OR_RETURN(
        stream, tcp::WrapInTls(std::move(stream), tcp::TlsRole::kClient, key.bytes(), deadline));
  }
  return tcp::MakeConnection(std::move(stream), domain_,
                             "tcp " + where + (encrypt ? " with TLS" : ""));
}

std::unique_ptr<FrameStream> SessionImpl::TakeVestibule() {
  const std::lock_guard lock(vestibule_lock_);
  return std::move(vestibule_);
}

Result<std::unique_ptr<Connection>> SessionImpl::UseStream(Deadline deadline) {
  if (!has_stream_ || (agreement_.features & kFeatureStreamLane) == 0) {
    return Status(Code::kUnavailable, "there is no stream of the session's own for data");
  }
  // Without an answer it is of no use any more: the server may take what follows for a lane's
  // bytes.
  const auto vestibule = TakeVestibule();
  if (vestibule == nullptr) {
    return Status(Code::kBusy,
                  "the session's own stream carries one lane, and was asked to do so already");
  }
  RDFS_RETURN_IF_ERROR(vestibule->SendAll(EncodeFrame(FrameType::kUseStream, {}), deadline));
  RDFS_RETURN_IF_ERROR(vestibule->Await(deadline));
  if (vestibule->frame().type != FrameType::kStreamReady) {
    return Status(Code::kProtocolError, "the server sent a message out of turn");
  }
  return tcp::MakeConnection(vestibule->TakeStream(), domain_, "tcp over the session's own stream");
}

void SessionImpl::NoteChoice(std::size_t leg, const Connection& lane) {
  chosen_ = leg;
  protection_ = lane.capabilities().encrypted ? Protection::kTls
                : grant_.same_host            ? Protection::kSameHost
                                              : Protection::kPlaintext;
  detail_.clear();
  if (legs_[leg].kind != Kind::kVerbs) return;
  // "verbs siw0 10.9.9.1:7338": the device is what a user knows it by.
  std::string described = lane.Describe();
  const std::string prefix = "verbs ";
  if (described.starts_with(prefix)) described.erase(0, prefix.size());
  detail_ = described.substr(0, described.find(' '));
}

std::string SessionImpl::ExplainChoice() const {
  return Explain(legs_, chosen_, protection_, detail_);
}

}  // namespace
}  // namespace session

Result<std::unique_ptr<Session>> Session::Dial(DialOptions options,
                                               std::shared_ptr<Domain> domain) {
  RDFS_ASSIGN_OR_RETURN(auto dialled, session::DialServer(options));
  return std::unique_ptr<Session>(std::make_unique<session::SessionImpl>(
      std::move(options), std::move(dialled), std::move(domain)));
}

}  // namespace rdfs::transport
