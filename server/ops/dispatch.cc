#include "server/ops/dispatch.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "server/lease/change_targets.h"
#include "server/ops/ops.h"
#include "server/record/prior_state.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

using Handler = Outcome (*)(Call&);
struct Row {
  Opcode opcode;
  Handler handler;
  bool changes_files;  // refused on a read-only export
};

// What a client may ask. What only servers say and the reserved opcodes are not in it.
constexpr std::array kTable = {
    Row{Opcode::kRenew, OpRenew, false},
    Row{Opcode::kAttachLane, OpAttachLane, false},
    Row{Opcode::kInterrupt, OpInterrupt, false},
    Row{Opcode::kEndSession, OpEndSession, false},
    Row{Opcode::kRecallAck, OpRecallAck, false},
    Row{Opcode::kLookup, OpLookup, false},
    Row{Opcode::kReadlink, OpReadlink, false},
    Row{Opcode::kSymlink, OpSymlink, true},
    Row{Opcode::kMknod, OpMknod, true},
    Row{Opcode::kMkdir, OpMkdir, true},
    Row{Opcode::kUnlink, OpUnlink, true},
    Row{Opcode::kRmdir, OpRmdir, true},
    Row{Opcode::kRename, OpRename, true},
    Row{Opcode::kLink, OpLink, true},
    Row{Opcode::kGetAttr, OpGetAttr, false},
    Row{Opcode::kSetAttr, OpSetAttr, true},
    Row{Opcode::kAccess, OpAccess, false},
    Row{Opcode::kStatFs, OpStatFs, false},
    Row{Opcode::kSetXattr, OpSetXattr, true},
    Row{Opcode::kGetXattr, OpGetXattr, false},
    Row{Opcode::kListXattr, OpListXattr, false},
    Row{Opcode::kRemoveXattr, OpRemoveXattr, true},
    Row{Opcode::kOpen, OpOpen, false},
    Row{Opcode::kCreate, OpCreate, true},
    Row{Opcode::kRead, OpRead, false},
    Row{Opcode::kWrite, OpWrite, true},
    Row{Opcode::kCommit, OpCommit, true},
    Row{Opcode::kFlush, OpFlush, false},
    Row{Opcode::kRelease, OpRelease, false},
    Row{Opcode::kFsync, OpFsync, false},
    Row{Opcode::kFallocate, OpFallocate, true},
    Row{Opcode::kSeek, OpSeek, false},
    Row{Opcode::kCopyFileRange, OpCopyFileRange, true},
    Row{Opcode::kTmpfile, OpTmpfile, true},
    Row{Opcode::kReclaimOpen, OpReclaimOpen, false},
    Row{Opcode::kOpenDir, OpOpenDir, false},
    Row{Opcode::kReadDir, OpReadDir, false},
    Row{Opcode::kReleaseDir, OpRelease, false},
    Row{Opcode::kFsyncDir, OpFsync, false},
    Row{Opcode::kGetLock, OpGetLock, false},
    Row{Opcode::kSetLock, OpSetLock, false},
    Row{Opcode::kReclaimLock, OpReclaimLock, false},
    Row{Opcode::kGraceEnd, OpGraceEnd, false},
};

const Row* FindRow(Opcode opcode) {
  for (const Row& row : kTable) {
    if (row.opcode == opcode) return &row;
  }
  return nullptr;
}

// What touches no file by its caller's rights does not wait until these are known. Locks have those
// of their open file, and who waits for one must be found by what interrupts it.
bool IsOfSession(Opcode opcode) {
  switch (opcode) {
    case Opcode::kRenew:
    case Opcode::kAttachLane:
    case Opcode::kEndSession:
    case Opcode::kGraceEnd:
    case Opcode::kInterrupt:
    case Opcode::kRecallAck:
    case Opcode::kRelease:
    case Opcode::kReleaseDir:
    case Opcode::kFlush:
    case Opcode::kGetLock:
    case Opcode::kSetLock:
    case Opcode::kReclaimLock:
      return true;
    default:
      return false;
  }
}

// What must not be done twice. A lock that is waited for may be: see fs::kLockWait.
bool IsRecorded(const Call& call) {
  if (call.opcode != Opcode::kSetLock) return fs::IsMutating(call.opcode);
  return (ByteReader(call.body.rest()).Read<fs::LockRequest>().flags & fs::kLockWait) == 0;
}

void TakeAcknowledgements(const Call& call, IntentRing& record) {
  record.Acknowledge(call.header.acknowledged);
  for (ByteReader others(call.extensions.answered); others.remaining() > 0;) {
    record.AcknowledgeOne(others.Read<Le64>());
  }
}

}  // namespace

bool Dispatcher::Handle(const LanePtr& lane, ByteSpan message) {
  Core& core = worker_.core;
  ByteReader reader(message);
  const auto header = reader.Read<fs::RequestHeader>();
  const auto opcode = static_cast<Opcode>(std::uint16_t{header.opcode});
  reader.ReadBytes(header.body_bytes);
  if (!reader.ok() || lane->in_flight() >= fs::kMaxRequestsInFlight) {
    core.counters.malformed.fetch_add(1);
    LogDebug("a request of {} bytes is malformed or one too many", message.size());
    return false;
  }
  core.counters.Of(opcode).requests.fetch_add(1, std::memory_order_relaxed);
  if (lane->session()->HasTooManyRequests()) {
    core.refusals.Note(Refusals::What::kRequests, lane->session()->params().client);
    Responder(lane, opcode, header.sequence, core.options.epoch, core.counters).Errno(EAGAIN);
    return true;
  }
  return Serve(lane, message,
               Responder(lane, opcode, header.sequence, core.options.epoch, core.counters));
}

bool Dispatcher::Serve(const LanePtr& lane, ByteSpan message, Responder responder) {
  Core& core = worker_.core;
  FsSession& session = *lane->session();
  ByteReader reader(message);
  const auto header = reader.Read<fs::RequestHeader>();
  const auto opcode = static_cast<Opcode>(std::uint16_t{header.opcode});
  if ((header.flags & fs::kRequestSentBefore) != 0) responder.SetSentBefore();
  const ByteSpan body = reader.ReadBytes(header.body_bytes);
  message_ = message;
  Call call{.header = header,
            .opcode = opcode,
            .body = ByteReader(body),
            .out = ByteWriter(worker_.reply),
            .worker = worker_,
            .lane = lane,
            .session = session,
            .responder = std::move(responder),
            .since = core.leases.stamp()};
  const fs::WireError error = fs::ReadRequestExtensions(reader, call.extensions);
  if (error != fs::WireError::kOk) {
    return Finish(
        call, error == fs::WireError::kMalformed ? Outcome::Malformed() : Outcome::Error(error));
  }
  if (header.session != session.id() || session.ended()) {
    return Finish(call, Outcome::Error(fs::WireError::kUnknownSession));
  }
  const TimePoint now = core.clock.Now();
  session.Touch(now);
  call.responder.SetTaken(now);
  return Finish(call, Run(call));
}

Outcome Dispatcher::Run(Call& call) {
  const Row* row = FindRow(call.opcode);
  if (row == nullptr) return Outcome::Error(fs::WireError::kNotSupported);
  if (row->changes_files && call.session.params().read_only) return Outcome::Errno(EROFS);
  Outcome refused = Outcome::Pending();
  if (!Become(call, refused)) return refused;
  IntentRing* record = call.session.record();
  if (record != nullptr) TakeAcknowledgements(call, *record);
  if (!MayGoOn(call)) return Outcome::Pending();
  // It was under way already when it had to wait.
  if (call.responder.recorded()) return Carry(call, row->handler);
  if (record == nullptr || !IsRecorded(call)) {
    return HeldBack(call) ? Outcome::Error(fs::WireError::kGrace) : Carry(call, row->handler);
  }

  const std::uint64_t digest = IntentRing::Digest(call.opcode, call.body.rest());
  PriorState before;
  fs::Handle made;
  switch (Replay(call, digest, before, made)) {
    case Next::kAnswered:
      return Outcome::Pending();
    case Next::kHeldBack:
      return Outcome::Error(fs::WireError::kGrace);
    case Next::kEnd:
      return Outcome::Malformed();
    case Next::kAsDone:
      call.responder.SetRecorded();
      return AnswerAsDone(call, before);
    case Next::kOpenAgain:
      return OpenAgain(call, made);
    case Next::kRun:
      break;
  }
  call.responder.SetRecorded();
  return Carry(call, row->handler);
}

struct Dispatcher::Parked {
  LanePtr lane;
  std::vector<std::byte> message;
  Responder responder;
};

bool Dispatcher::Become(Call& call, Outcome& outcome) {
  constexpr std::uint32_t kNoId = 0xffffffffU;  // setfsuid(2) changes nothing then
  if (IsOfSession(call.opcode)) return true;
  Core& core = worker_.core;
  std::optional<ThreadIdentity::Caller> caller;
  if (const std::optional<Ids> ids = call.Caller(); ids && core.options.can_switch_ids) {
    if (ids->uid == kNoId || ids->gid == kNoId) {
      outcome = Outcome::Errno(EPERM);
      return false;
    }
    caller = {.ids = *ids, .groups = core.groups.Known(*ids, call.session.id())};
    if (!caller->groups) {
      if (const auto parked = BeginParking(call)) {
        Park(*parked, call);
        if (!core.groups.WhenKnown(*ids, GoOnWith(parked), call.session.id())) {
          core.refusals.Note(Refusals::What::kUsers, call.session.params().client);
          parked->responder.Errno(EAGAIN);
        }
      }
      return false;
    }
    caller->groups = call.session.ids().CallerGroups(std::move(caller->groups));
  }
  const Status status = worker_.identity.Become(caller);
  if (status.ok()) return true;
  LogWarn("cannot act as uid {}: {}", std::uint32_t{call.header.uid}, status.message());
  outcome = Outcome::Errno(EPERM);
  return false;
}

std::shared_ptr<Dispatcher::Parked> Dispatcher::BeginParking(Call& call) {
  if (call.responder.KeepBytes(message_.size())) {
    return std::make_shared<Parked>(Parked{.lane = call.lane, .message = {}, .responder = {}});
  }
  (void)Finish(call, call.Refuse(Refusals::What::kRequestBytes, EAGAIN));
  return nullptr;
}

std::function<void()> Dispatcher::GoOnWith(std::shared_ptr<Parked> parked) {
  return [this, parked = std::move(parked)] {
    parked->lane->Post([this, parked] {
      const bool fine = Serve(parked->lane, parked->message, std::move(parked->responder));
      if (!fine) LogDebug("a request that had waited turned out malformed");
    });
  };
}

void Dispatcher::Park(Parked& parked, Call& call) {
  parked.message.assign(message_.begin(), message_.end());
  parked.responder = std::move(call.responder);
}

Outcome Dispatcher::Carry(Call& call, Handler handler) {
  const ByteReader body = call.body;
  Outcome outcome = handler(call);
  if (!outcome.again()) return outcome;
  call.body = body;
  if (!MayGoOn(call)) return Outcome::Pending();
  outcome = handler(call);
  // What others do to the name does not end: the client's kernel looks again.
  return outcome.again() ? Outcome::Errno(ESTALE) : outcome;
}

bool Dispatcher::MayGoOn(Call& call) {
  LeaseService& leases = worker_.core.leases;
  const bool changes = ChangesSomething(call);
  const bool asks = (call.header.flags & fs::kRequestComesBack) == 0 &&
                    leases.AnyWrittenByAnother(call.session.id());
  if (!changes && !asks) return true;
  LeaseChange& change = call.responder.change();
  std::vector<LeaseService::Target> targets;
  const bool alone = changes && !asks && leases.IsAlone(call.session.id());
  if (changes && !alone) targets = TargetsOf(call);
  if (asks) {
    std::vector<LeaseService::Target> looked = LookedAt(call);
    leases.KeepWrittenByOthers(call.session.id(), looked);
    for (LeaseService::Target& target : looked) {
      const bool changed = std::any_of(targets.begin(), targets.end(), [&](const auto& other) {
        return other.inode == target.inode;
      });
      if (!changed) targets.push_back(std::move(target));
    }
  }
  // While it waited a name may have come to mean something else.
  std::erase_if(targets, [&](const auto& target) { return change.Covers(target.inode); });
  if (targets.empty() && (!changes || change.begun())) return true;
  const auto parked = BeginParking(call);
  if (!parked) return false;
  const bool now =
      leases.Begin(call.session.id(), targets, change, GoOnWith(parked), PurposeOf(call));
  // Nobody is granted a lease behind Begin; who came just before it may have one.
  if (now) return !alone || leases.IsAlone(call.session.id()) || MayGoOn(call);
  // The lane runs what is posted on this thread, and so behind this.
  Park(*parked, call);
  return false;
}

bool Dispatcher::HeldBack(const Call& call) const {
  const Core& core = worker_.core;
  return core.grace.active(core.clock.Now()) && MayTakeFromOthers(call.opcode, call.body.rest());
}

Dispatcher::Next Dispatcher::Replay(Call& call, std::uint64_t digest, PriorState& before,
                                    fs::Handle& made) {
  IntentRing& record = *call.session.record();
  const IntentRing::Found found = record.Lookup(call.header.sequence, digest);
  switch (found.verdict) {
    case IntentRing::Verdict::kNew: {
      before = CapturePrior(call);
      const bool safe = IsSafeWithoutRecord(call, before);
      // Held back, it is asked again as if for the first time.
      if (safe && HeldBack(call)) return Next::kHeldBack;
      const Status begun = record.Begin(call.header.sequence, call.opcode, digest, before);
      if (begun.ok()) return safe ? Next::kRun : AnswerUnknown(call);
      if (begun.code() != Code::kBusy) return Next::kEnd;
      return Next::kHeldBack;  // the client does not say which answers it has: it may ask again
    }
    case IntentRing::Verdict::kDone:
      return AnswerDone(call, found, made);
    case IntentRing::Verdict::kInProgress:
      return Wait(call, digest);
    case IntentRing::Verdict::kInterrupted: {
      before = found.before;
      const PriorState now = CapturePrior(call);
      const Resolution resolution =
          now.known ? Resolve(DescribeIntent(call, before), now, ContentMatches(call, before))
                    : Resolution::kAmbiguous;
      // The client asks again under another number: this one's record stays as it is.
      if (resolution == Resolution::kRepeat && HeldBack(call)) return Next::kHeldBack;
      if (!record.Resume(call.header.sequence)) return Wait(call, digest);
      if (resolution == Resolution::kRepeat) return Next::kRun;
      return resolution == Resolution::kDone ? Next::kAsDone : AnswerUnknown(call);
    }
    case IntentRing::Verdict::kAcknowledged:
    case IntentRing::Verdict::kMismatch:
      return Next::kEnd;
  }
  return Next::kEnd;
}

bool Dispatcher::IsSafeWithoutRecord(const Call& call, const PriorState& now) {
  const bool sent_before = (call.header.flags & fs::kRequestSentBefore) != 0;
  if (!sent_before || !call.session.LostRecordOf(call.header.sequence)) return true;
  const InterruptedIntent intent = DescribeIntent(call, now);
  const auto safe = [&](const PriorState& state) {
    return ResolveUnrecorded(intent, state) == Resolution::kRepeat;
  };
  if (now.known) return safe(now);
  // Whatever is there.
  PriorState there, nothing;
  there.first.exists = true;
  return safe(there) && safe(nothing);
}

Dispatcher::Next Dispatcher::AnswerUnknown(Call& call) {
  LogWarn("a crash left it unknown whether {} was done for {}: it answers EIO",
          fs::OpcodeName(call.opcode), call.session.params().client);
  call.responder.SetRecorded();
  call.responder.Errno(EIO);
  return Next::kAnswered;
}

Dispatcher::Next Dispatcher::AnswerDone(Call& call, const IntentRing::Found& found,
                                        fs::Handle& made) {
  worker_.core.counters.replayed.fetch_add(1);
  const bool opens = call.opcode == Opcode::kOpen || call.opcode == Opcode::kCreate ||
                     call.opcode == Opcode::kTmpfile;
  if (opens && found.error == fs::WireError::kOk) {
    ByteReader reply(found.reply);
    const std::uint64_t number = reply.Read<fs::OpenReply>().open;
    // Opened by an earlier epoch: the number means nothing any more.
    if (!call.session.FindOpen(number)) {
      if (call.opcode != Opcode::kOpen) made = fs::ReadEntry(reply).handle;
      return Next::kOpenAgain;
    }
  }
  if (found.reply_lost) {
    call.responder.Errno(EIO);
  } else {
    call.responder.Send(found.error, std::array{ByteSpan(found.reply)});
  }
  return Next::kAnswered;
}

Outcome Dispatcher::OpenAgain(Call& call, const fs::Handle& made) {
  if (call.opcode == Opcode::kTmpfile) return Outcome::Errno(ESTALE);
  const Outcome outcome = OpOpenMade(call, made);
  // Where this answer is lost as well, nothing more is opened.
  if (outcome.error() == fs::WireError::kOk && call.out.ok()) {
    call.session.record()->Amend(call.header.sequence, call.out.written());
  }
  return outcome;
}

Dispatcher::Next Dispatcher::Wait(Call& call, std::uint64_t digest) {
  const std::uint64_t sequence = call.header.sequence;
  call.session.AddDuplicate(sequence, std::move(call.responder));
  // It may have been answered between the look and the queueing.
  const IntentRing::Found again = call.session.record()->Lookup(sequence, digest);
  if (again.verdict == IntentRing::Verdict::kDone) {
    for (Responder& responder : call.session.TakeDuplicates(sequence)) {
      Responder::SendFromAnywhere(std::move(responder), again.error, again.reply);
    }
  }
  return Next::kAnswered;
}

bool Dispatcher::Finish(Call& call, Outcome outcome) {
  if (outcome.pending()) return true;
  if (outcome.malformed()) {
    worker_.core.counters.malformed.fetch_add(1);
    LogDebug("a malformed {} request", fs::OpcodeName(call.opcode));
  }
  if (outcome.error() == fs::WireError::kOk && !call.out.ok()) {
    LogError("the answer to {} does not fit into a message", fs::OpcodeName(call.opcode));
    outcome = Outcome::Errno(EIO);
  }
  if (outcome.error() == fs::WireError::kOk) {
    std::array<std::byte,
               sizeof(fs::ExtensionHeader) + fs::kMostDirectoriesTold * sizeof(fs::AttrWire)>
        extension;
    ByteWriter writer(extension);
    if (!call.directories.empty()) {
      const ByteSpan told = std::as_bytes(std::span(call.directories));
      writer.Write(fs::ExtensionHeader{.type = fs::kExtensionDirectories,
                                       .length = static_cast<std::uint16_t>(told.size())});
      writer.WriteBytes(told);
    }
    call.responder.Ok(call.out.written(), writer.written());
  } else {
    call.responder.Send(outcome.error());
  }
  return !outcome.malformed();
}

}  // namespace rdfs::server
