#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "fs/client/attach.h"
#include "fs/client/decode.h"
#include "fs/client/lane_impl.h"
#include "transport/base/log.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;

// How many rounds of one-sided reads a lane has under way at a time.
constexpr std::size_t kRounds = 128;
constexpr std::size_t kControlBytes = kRounds * ReadRound::kMaxPieces * sizeof(Le64);
static_assert(kControlBytes <= 64 * 1024);

// A server in its grace period is asked again after this.
constexpr milliseconds kGracePause{100};
// For the answer to our last words.
constexpr milliseconds kGoodbyePatience{1000};
// Pause while another lane reclaims the open file.
constexpr milliseconds kReclaimPause{10};
// Pause of a lock request while a lock is undone whose caller heard that it failed.
constexpr milliseconds kUndoPause{10};
// The server could not open it, for a reason that may pass.
constexpr milliseconds kReclaimRetry{100};
constexpr std::uint8_t kMostReclaims = 4;

Result<std::unique_ptr<transport::MemoryRegion>> MakeRegion(
    const std::shared_ptr<transport::Domain>& domain, const std::string& name, std::size_t bytes) {
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                        SharedMemory::Create(name, bytes, SharedMemory::Peers::kMayWrite));
  return domain->Register(std::move(memory), transport::Access::kLocal);
}

Status ErrnoStatus(int errno_value) { return {Code::kErrno, errno_value, {}}; }

}  // namespace

Result<LaneMemory> LaneMemory::Create(const std::shared_ptr<transport::Domain>& domain,
                                      std::size_t buffer_bytes) {
  LaneMemory memory;
  RDFS_ASSIGN_OR_RETURN(memory.control, MakeRegion(domain, "rdfs-control", kControlBytes));
  RDFS_ASSIGN_OR_RETURN(memory.buffers, MakeRegion(domain, "rdfs-lane", buffer_bytes));
  return memory;
}

Status LaneMemory::FitFor(const transport::Connection& connection) const {
  RDFS_RETURN_IF_ERROR(connection.MayMove(*control));
  return connection.MayMove(*buffers);
}

Result<std::unique_ptr<LaneImpl>> LaneImpl::Create(MountImpl& mount, std::uint32_t number,
                                                   std::shared_ptr<Mailbox> mailbox,
                                                   std::shared_ptr<LaneCounters> counters,
                                                   LaneMemory memory) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::FromErrno(errno, "epoll_create1");
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, mailbox->fd(), &event) != 0) {
    return Status::FromErrno(errno, "epoll_ctl");
  }
  return std::unique_ptr<LaneImpl>(new LaneImpl(
      mount, number, std::move(mailbox), std::move(counters), std::move(epoll), std::move(memory)));
}

LaneImpl::LaneImpl(MountImpl& mount, std::uint32_t number, std::shared_ptr<Mailbox> mailbox,
                   std::shared_ptr<LaneCounters> counters, Fd epoll, LaneMemory memory)
    : mount_(mount),
      clock_(mount.clock()),
      number_(number),
      mailbox_(std::move(mailbox)),
      counters_(std::move(counters)),
      epoll_(std::move(epoll)),
      control_(std::move(memory.control)),
      memory_(std::move(memory.buffers)),
      buffers_(*memory_),
      table_(mount.sequences(), number, kMostOnWire),
      grants_(GrantCache::Limits{}),
      wire_(buffers_, *this, epoll_.get()) {
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    rounds_.push_back(std::make_unique<ReadRound>());
    rounds_.back()->index = i;
    free_rounds_.push_back(rounds_.back().get());
  }
}

LaneImpl::~LaneImpl() {
  closing_ = true;
  LeaveLocks();
  SayGoodbye();
  wire_.Disconnect();  // destroys the connection: no device touches our memory from here on
  for (Slot slot = 0; slot < calls_.size(); ++slot) {
    if (table_.IsOpen(slot)) Finish(slot, ErrnoStatus(EIO));
  }
  while (!ready_.empty()) RunReady();
  mount_.Closed(number_);
}

// The last lane ends the session: nobody else waits for our locks then, nor does an rdfsd that ssh
// has started for us live on.
void LaneImpl::SayGoodbye() {
  const bool last = mount_.Leave(number_);
  if (!last || !wire_.connected()) return;
  LaneLink link;
  link.connection = wire_.Disconnect();
  link.session = session_;
  link.epoch = epoch_;
  const Status said =
      Attacher(link, mount_.sequences(), number_, DeadlineAfter(kGoodbyePatience)).EndSession();
  if (!said.ok()) LogDebug("the session could not be ended: {}", said.message());
}

// ---- The event loop -----------------------------------------------------------------------------

std::size_t LaneImpl::Poll() {
  callbacks_run_ = 0;
  AsOf(Now());
  if (mailbox_->pending()) OpenMailbox();
  if (wire_.connected() && incarnation_ != mount_.incarnation()) {
    wire_.Fail({Code::kDisconnected, "the session was made anew"});
  }
  SendQueued();  // what a WRITE is followed by goes to the device together with it
  wire_.Poll();
  if (!wire_.failure().ok()) LoseConnection();
  OnTimers();
  RunReady();
  SendOwed();
  Flush();
  if (!wire_.failure().ok()) LoseConnection();
  told_time_ = false;
  return callbacks_run_;
}

void LaneImpl::Flush() {
  SendQueued();
  wire_.Flush();
}

bool LaneImpl::Arm() {
  Flush();
  // A connection that has just failed is dealt with in Poll.
  if (!wire_.failure().ok() || !ready_.empty() || mailbox_->pending() || !wire_.Arm()) return false;
  told_time_ = false;  // it sleeps now
  return true;
}

TimePoint LaneImpl::NextTimer() const {
  if (!ready_.empty()) return now_;
  if (!wire_.connected()) return table_.NextTimer();
  return std::min({table_.NextTimer(), heartbeat_.NextCheck(), ask_for_locks_});
}

std::string LaneImpl::Describe() const {
  return wire_.connection() == nullptr ? std::string() : wire_.connection()->Describe();
}

void LaneImpl::Cancel(CallTicket ticket) {
  const std::optional<Slot> slot = table_.Find(ticket);
  if (!slot || calls_[*slot].cancelled || calls_[*slot].late) return;
  Call& call = calls_[*slot];
  if (table_.IsSent(*slot) && wire_.connected()) {
    call.cancelled = true;
    InterruptAtServer(*slot);
    return;
  }
  // One-sided operations under way end soon by themselves.
  if (table_.IsIdle(*slot) && table_.HasLocal(*slot) && wire_.connected()) return;
  call.cancelled = true;
  GiveUp(*slot, ErrnoStatus(EINTR));
}

void LaneImpl::InterruptAtServer(Slot slot) {
  const InterruptRequest request{.sequence = table_.SequenceOf(slot)};
  IssueUrgent(Opcode::kInterrupt, std::as_bytes(std::span(&request, 1)));
}

void LaneImpl::Abandon(CallTicket ticket) {
  const std::optional<Slot> slot = table_.Find(ticket);
  if (!slot || calls_[*slot].late || (table_.HasLocal(*slot) && wire_.connected())) return;
  calls_[*slot].cancelled = true;
  GiveUp(*slot, ErrnoStatus(EINTR));
}

// ---- Calls begin and end ------------------------------------------------------------------------

Call* LaneImpl::Begin(const CallContext& context, Opcode opcode, Completion completion, Slot* out) {
  if (closing_) {
    Refuse(std::move(completion), EIO);
    return nullptr;
  }
  const milliseconds timeout = context.timeout.value_or(mount_.options().timeout);
  const TimePoint now = Now();
  const TimePoint deadline = timeout.count() == 0 ? TimePoint::max() : now + timeout;
  const std::optional<Slot> slot = table_.Open(deadline);
  if (!slot) {
    Refuse(std::move(completion), ENOBUFS);
    return nullptr;
  }
  if (*slot >= calls_.size()) calls_.resize(*slot + 1);
  Call& call = calls_[*slot];
  call.kind = Call::Kind::kPlain;
  call.opcode = opcode;
  call.cancelled = false;
  call.waiting = false;
  call.reclaiming = false;
  call.comes_back = false;
  call.caller_gone = false;
  call.late = false;
  call.lock = 0;
  call.undoes = 0;
  call.reclaims = 0;
  call.context = context;
  call.begun = now;
  call.payload_bytes = 0;
  call.body.Clear();
  call.completion = std::move(completion);
  *out = *slot;
  return &call;
}

CallTicket LaneImpl::Refuse(Completion completion, int errno_value) {
  ready_.push_back({.completion = std::move(completion), .status = ErrnoStatus(errno_value)});
  return 0;
}

void LaneImpl::IssueUrgent(Opcode opcode, ByteSpan body, Completion completion,
                           const CallContext& context) {
  Slot slot = kNoSlot;
  Call* call = Begin(context, opcode, completion ? std::move(completion) : Ignore, &slot);
  if (call == nullptr) return;
  call->comes_back = opcode == Opcode::kLookup;  // ShowTheWay's
  call->body.Encode([body](ByteWriter& writer) { writer.WriteBytes(body); });
  table_.QueueUrgent(slot, opcode);
}

void LaneImpl::Finish(Slot slot, Status status) {
  Answer answer;
  answer.status = std::move(status);
  Finish(slot, answer);
}

void LaneImpl::Finish(Slot slot, Answer& answer) {
  Call& call = calls_[slot];
  if (call.kind == Call::Kind::kRead && !table_.HasLocal(slot)) GiveRoundBack(call);
  if (call.kind == Call::Kind::kWrite) {
    if (!table_.IsSent(slot)) GiveStagingBack(call);
    // It may be carried out, or have been in part: what was cached of the file means nothing.
    if (!answer.status.ok()) grants_.OwnChange(call.open->inode(), 0, UINT64_MAX);
    NoteFailed(call, answer);
  }
  Time(call);
  answer.request = call.body.bytes();
  Completion completion = std::move(call.completion);
  const OpenPtr open = std::move(call.open);  // live until the callback has run
  const OpenPtr other = std::move(call.other_open);
  call.open = nullptr;
  call.other_open = nullptr;
  table_.Finish(slot);
  ++callbacks_run_;
  if (!completion(answer)) Hostile("body of an answer");
}

void LaneImpl::Time(const Call& call) {
  Opcode opcode = call.opcode;
  if (call.kind == Call::Kind::kRead) opcode = Opcode::kRead;
  if (call.kind == Call::Kind::kWrite) opcode = Opcode::kWrite;
  // A read of no kind: see PrefetchGrants.
  if (call.kind == Call::Kind::kPlain && opcode == Opcode::kRead) return;
  counters_->took[static_cast<std::size_t>(opcode) % counters_->took.size()].Record(now_ -
                                                                                    call.begun);
}

void LaneImpl::FinishLater(Slot slot, Status status) {
  table_.Withdraw(slot);
  ready_.push_back(
      {.ticket = table_.TicketOf(slot), .completion = {}, .status = std::move(status)});
}

std::size_t LaneImpl::RunReady() {
  // Those that callbacks add run next time: a callback that fails at once and asks again must not
  // keep the worker here.
  const std::size_t count = ready_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Ready ready = std::move(ready_.front());
    ready_.pop_front();
    if (ready.ticket != 0) {
      const std::optional<Slot> slot = table_.Find(ready.ticket);
      if (slot) Finish(*slot, std::move(ready.status));
      continue;
    }
    Answer answer;
    answer.status = std::move(ready.status);
    ++callbacks_run_;
    ready.completion(answer);
  }
  return count;
}

// ---- Sending ------------------------------------------------------------------------------------

void LaneImpl::SendQueued() {
  if (!wire_.connected() || !table_.Next()) return;
  now_ = Now();
  while (wire_.connected()) {
    const std::optional<Slot> slot = table_.Next();
    if (!slot) return;
    SendOne(*slot, now_);
  }
}

void LaneImpl::FillInOpens(Call& call) {
  const MutableByteSpan body = call.body.bytes();
  if (call.open != nullptr) {
    call.sent_open = call.open->server_open();
    const Le64 number = call.sent_open;
    std::memcpy(body.data(), &number, sizeof(number));
  }
  if (call.other_open != nullptr) {
    const Le64 number = call.other_open->server_open();
    std::memcpy(body.data() + offsetof(CopyFileRangeRequest, open_out), &number, sizeof(number));
  }
}

void LaneImpl::SendOne(Slot slot, TimePoint now) {
  Call& call = calls_[slot];
  for (const OpenPtr& open : {call.open, call.other_open}) {
    if (open == nullptr || open->lost_errno() == 0) continue;
    const bool released = IsRelease(call.opcode);
    // A file that lost only its lock (EIO) is still open at the server: send its release.
    if (released && open->lost_errno() != ESTALE) continue;
    FinishLater(slot, released ? Status::Ok() : ErrnoStatus(open->lost_errno()));
    return;
  }
  if (call.opcode == Opcode::kSetLock || call.opcode == Opcode::kFlush) {
    const HeldLocks& locks = call.open->inode().locks;
    if (call.undoes != 0 && call.undoes != locks.asked()) return FinishLater(slot, Status::Ok());
    if (call.undoes == 0 && locks.undoing()) {
      table_.Withdraw(slot);
      return table_.QueueAt(slot, call.opcode, now + kUndoPause);
    }
  }
  if (call.kind == Call::Kind::kWrite) {
    if (call.opcode == Opcode::kCommit && !call.write.staged && !call.write.inquiring) {
      table_.Withdraw(slot);
      return StartWrite(slot);
    }
    EncodeWrite(call, slot_bytes_);
  }
  // Also in what is sent again: names that changed since are no part of the request (NamesInBody).
  FillInOpens(call);
  const MutableByteSpan body = call.body.bytes();

  const RequestTable::Sent sent = table_.MarkSent(slot);
  const TimePoint deadline = table_.DeadlineOf(slot);
  RequestHeader header{};
  header.opcode = static_cast<std::uint16_t>(call.opcode);
  header.flags =
      static_cast<std::uint16_t>((sent.sent_before ? kRequestSentBefore : 0U) |
                                 (call.context.tell_directories ? kRequestTellDirectories : 0U) |
                                 (call.comes_back ? kRequestComesBack : 0U));
  header.body_bytes = static_cast<std::uint32_t>(body.size() + call.payload_bytes);
  header.session = session_;
  header.sequence = sent.sequence;
  header.acknowledged = mount_.sequences().Acknowledged();
  header.deadline_ms = deadline == TimePoint::max()
                           ? 0
                           : static_cast<std::uint32_t>(std::max(1, PollTimeoutMs(deadline, now)));
  header.trace = call.context.trace;
  header.uid = call.context.uid;
  header.gid = call.context.gid;
  header.pid = call.context.pid;
  // What was sent before may be answered from the record: with the leases of then.
  if (!sent.sent_before) call.asked = now;
  std::array<ByteSpan, 4> parts{std::as_bytes(std::span(&header, 1)), body, {}, {}};
  std::size_t count = 2;
  if (call.payload_bytes > 0) {
    parts[count++] =
        memory_->bytes().subspan(call.write.from.offset + call.write.done, call.payload_bytes);
  }
  std::array<std::byte, kMaxAnsweredExtensionBytes> room;
  if (sizeof(header) + header.body_bytes + room.size() <= transport::kMaxMessageBytes) {
    if (const auto answered = table_.TakeAnswered(header.acknowledged)) {
      ByteWriter extension(room);
      WriteAnsweredExtension(extension, *answered);
      parts[count++] = extension.written();
    }
  }
  wire_.Send(std::span(parts).first(count));
}

// ---- Answers ------------------------------------------------------------------------------------

void LaneImpl::Hostile(std::string_view what) {
  LogWarn("the server sent a malformed {}; connecting anew", what);
  wire_.Fail({Code::kProtocolError, std::string(what)});
}

void LaneImpl::OnMessage(ByteSpan message) {
  ByteReader reader(message);
  const auto header = reader.Read<ReplyHeader>();
  const ByteSpan body = reader.ReadBytes(header.body_bytes);
  Extensions extensions;
  if (!reader.ok() || !ReadExtensions(reader, extensions)) return Hostile("message");
  heartbeat_.OnReceived(now_);
  if (header.sequence == 0) return OnUnasked(header, body);
  if (header.epoch != epoch_) {
    stale_session_ = true;
    return wire_.Fail({Code::kDisconnected, "the server has restarted"});
  }
  const auto opcode = static_cast<Opcode>(std::uint16_t{header.opcode});
  const auto error = static_cast<WireError>(std::uint16_t{header.error});
  const RequestTable::Arrival arrival = table_.OnReply(header.sequence, opcode);
  switch (arrival.verdict) {
    case RequestTable::Verdict::kUnknown:
      return Hostile("answer to nothing that was asked");
    case RequestTable::Verdict::kLate:
      if (calls_[arrival.slot].kind == Call::Kind::kWrite) GiveStagingBack(calls_[arrival.slot]);
      return;
    case RequestTable::Verdict::kDeliver:
      break;
  }
  counters_->round_trips[static_cast<std::size_t>(opcode) % counters_->round_trips.size()].Add();
  const std::chrono::nanoseconds took = now_ - calls_[arrival.slot].asked;
  if (round_trip_ == std::chrono::nanoseconds{} || took < round_trip_) round_trip_ = took;
  if (error != WireError::kOk) extensions.directories = {};
  if (!TakeDirectories(arrival.slot, extensions.directories)) {
    Finish(arrival.slot, Status(Code::kProtocolError, EIO, {}));
    Hostile("extension of an answer");
  } else {
    Deliver(arrival.slot, error, body);
  }
  told_count_ = 0;
}

bool LaneImpl::TakeDirectories(Slot slot, ByteSpan directories) {
  const Call& call = calls_[slot];
  ByteReader reader(directories);
  told_trace_ = call.context.trace;
  for (told_count_ = 0; reader.remaining() > 0; ++told_count_) {
    const bool asked = call.context.tell_directories && told_count_ < told_.size();
    if (asked) told_[told_count_] = DecodeAttributes(reader, call.asked);
    if (!asked || !reader.ok()) {
      told_count_ = 0;
      return false;
    }
  }
  return true;
}

std::span<const Attributes> LaneImpl::DirectoriesTold(std::uint64_t trace) const {
  if (trace != told_trace_) return {};
  return std::span(told_).first(told_count_);
}

void LaneImpl::OnUnasked(const ReplyHeader& header, ByteSpan body) {
  if (header.opcode == static_cast<std::uint16_t>(Opcode::kRecall)) return OnRecall(body);
  // Later versions may tell more without being asked; what is not known is theirs to do without.
  if (header.opcode != static_cast<std::uint16_t>(Opcode::kArena)) return;
  ByteReader reader(body);
  const auto arena = reader.Read<ArenaMessage>();
  if (!reader.ok()) return Hostile("arena");
  OnArena(arena);
}

void LaneImpl::OnRecall(ByteSpan body) {
  ByteReader reader(body);
  const auto recall = reader.Read<RecallMessage>();
  RecallNotice notice{.number = recall.number, .handle = ReadHandle(reader), .parts = recall.parts};
  notice.name = AsText(reader.ReadSized16(kMaxNameBytes));
  const bool is_name =
      notice.name.find('/') == notice.name.npos && notice.name.find('\0') == notice.name.npos;
  if (!reader.ok() || !is_name) return Hostile("recall");
  if ((notice.parts & kRecallContent) != 0) {
    // Extents that are granted, or asked for, have the bytes of before.
    if (const auto inode = mount_.FindInode(notice.handle)) inode->own_changes.fetch_add(1);
  }
  OnRecall(notice);
}

void LaneImpl::OnRecall(const RecallNotice& notice) {
  if (!mount_.on_recall()) return AcknowledgeRecall(notice.number);
  mount_.on_recall()(*this, notice);
}

void LaneImpl::AcknowledgeRecall(std::uint64_t number) {
  const RecallAckRequest request{.number = number};
  IssueUrgent(Opcode::kRecallAck, std::as_bytes(std::span(&request, 1)));
}

void LaneImpl::OnArena(const ArenaMessage& arena) {
  if (arenas_.erase(arena.arena) > 0) grants_.DropArena(arena.arena);
  if (arena.region.length == 0) return;
  if (arenas_.size() >= kMaxArenas) return Hostile("number of arenas");
  arenas_[arena.arena] = arena.region.ToRegion();
}

void LaneImpl::Deliver(Slot slot, WireError error, ByteSpan body) {
  Call& call = calls_[slot];
  if (call.late) return GiveStagingBack(call);
  switch (error) {
    case WireError::kGrace:
      // Not this request again: what is held then may be something else.
      if (call.opcode == Opcode::kReclaimLock) {
        return Finish(slot, Status(Code::kUnavailable, EAGAIN, {}));
      }
      GiveStagingBack(call);
      if (EndCancelled(slot)) return;
      // Nobody waits for it any more, and nothing was done.
      if (call.caller_gone && !IsRelease(call.opcode) && call.opcode != Opcode::kFlush) {
        return FinishLater(slot, Status(Code::kErrno, EINTR, {}));
      }
      return table_.QueueAt(slot, call.opcode, now_ + kGracePause);
    case WireError::kUnknownSession:
      stale_session_ = true;
      GiveStagingBack(call);
      table_.Queue(slot, call.opcode);
      return wire_.Fail({Code::kDisconnected, "the server does not know this session any more"});
    case WireError::kWrongEpoch:
      return OnWrongEpoch(slot);
    default:
      break;
  }
  if (call.kind == Call::Kind::kRead && error == WireError::kOk) return OnReadReply(slot, body);
  if (call.kind == Call::Kind::kWrite) return OnWriteReply(slot, error, body);
  // Released twice, because the first answer was lost: that is what was wanted.
  if (IsRelease(call.opcode) && error == WireError::kBadHandle) error = WireError::kOk;
  Answer answer;
  if (error != WireError::kOk) answer.status = ErrnoStatus(ToErrno(error));
  answer.body = ByteReader(body);
  answer.asked = call.asked;
  Finish(slot, answer);
}

void LaneImpl::OnWrongEpoch(Slot slot) {
  Call& call = calls_[slot];
  GiveStagingBack(call);
  if (EndCancelled(slot)) return;
  if (call.open == nullptr || ++call.reclaims > kMostReclaims) {
    return Finish(slot, ErrnoStatus(EIO));
  }
  // Of two files it may be either: first the one, then the other.
  const bool other = call.other_open != nullptr && call.reclaims % 2 == 0;
  const OpenPtr open = other ? call.other_open : call.open;
  if (!other && open->server_open() != call.sent_open) return Restart(slot);
  if (!open->BeginReclaim()) {
    // Somebody else's attempt, which ends by its own deadline: only those of this call are counted.
    --call.reclaims;
    return table_.QueueAt(slot, call.opcode, now_ + kReclaimPause);
  }
  ReclaimOpen(slot, open);
}

void LaneImpl::ReclaimOpen(Slot slot, const OpenPtr& open) {
  const CallTicket ticket = table_.TicketOf(slot);
  const CallContext context = calls_[slot].context;
  calls_[slot].reclaiming = true;
  Slot reclaim = kNoSlot;
  Call* call = Begin(
      context, Opcode::kReclaimOpen,
      [this, slot, ticket, open](Answer& answer) {
        const auto reply = answer.body.Read<OpenReply>();
        if (answer.status.ok() && answer.body.ok()) {
          open->set_server_open(reply.open);
          open->set_incarnation(incarnation_);  // of who answers: it may have been sent again
          ReclaimLocks(open);
        } else if (answer.status.errno_value() == ENOENT || answer.status.errno_value() == ESTALE) {
          open->MarkLost(ESTALE);
        }
        open->EndReclaim();
        if (table_.Find(ticket) && calls_[slot].reclaiming) OnReclaimed(slot, answer.status);
        return !answer.status.ok() || answer.body.ok();
      },
      &reclaim);
  if (call == nullptr) return;
  call->body.Encode([&](ByteWriter& writer) { call->opcode = EncodeReclaim(*open, writer); });
  table_.Queue(reclaim, call->opcode);
  // Ahead of it: a server without the right to open by handle knows what it has been led to.
  const CallContext opener{.uid = open->uid(), .gid = open->gid()};
  for (const Path& steps : WaysTo(*open, mount_.path_finder())) LookUp(steps, opener);
}

// They go out ahead of the calls that need the file. What the server has neither given nor refused
// is asked for again, with the file, by the next connection. Meanwhile no lane asks for another
// lock or gives one up: the server must not take up first what was wanted last.
void LaneImpl::ReclaimLocks(const OpenPtr& open) {
  const std::shared_ptr<void> others_wait = open->inode().locks.BeginUndo();
  for (const HeldLocks::Held& held : open->inode().locks.Of(open.get())) {
    const LockRequest lock = EncodeReclaimLock(*open, held);
    const auto then = [this, open, others_wait](Answer& answer) {
      if (answer.status.ok()) return true;
      const Code code = answer.status.code();
      // ENOBUFS: this lane had no room to ask.
      const bool unasked =
          answer.status.errno_value() == ENOBUFS || code == Code::kDeadlineExceeded;
      if (code == Code::kUnavailable || (unasked && wire_.connected() && !closing_)) {
        AskForLocksLater(open);
      } else if (code == Code::kErrno && !closing_ && !unasked) {
        LoseLock(*open);
      } else {
        open->set_incarnation(0);
      }
      return true;
    };
    IssueUrgent(Opcode::kReclaimLock, std::as_bytes(std::span(&lock, 1)), then);
  }
}

void LaneImpl::AskForLocksLater(const OpenPtr& open) {
  if (std::ranges::find(without_locks_, open) == without_locks_.end()) {
    without_locks_.push_back(open);
  }
  ask_for_locks_ = std::min(ask_for_locks_, Now() + kGracePause);
}

void LaneImpl::AskForLocks() {
  if (now_ < ask_for_locks_) return;
  ask_for_locks_ = TimePoint::max();
  for (const OpenPtr& open : std::exchange(without_locks_, {})) {
    if (open->lost_errno() == 0) ReclaimLocks(open);
  }
}

void LaneImpl::LeaveLocks() {
  ask_for_locks_ = TimePoint::max();
  for (const OpenPtr& open : std::exchange(without_locks_, {})) open->set_incarnation(0);
}

// The call goes on with the file, or asks again a moment later, until its own deadline.
void LaneImpl::OnReclaimed(Slot slot, const Status& status) {
  Call& call = calls_[slot];
  if (status.ok() || call.open->lost_errno() != 0 ||
      (call.other_open != nullptr && call.other_open->lost_errno() != 0)) {
    return Restart(slot);
  }
  call.reclaiming = false;
  // What the server cannot open has nothing to give up, and nobody waits.
  if (call.caller_gone) {
    const bool unheard = status.code() == Code::kDeadlineExceeded;
    return unheard ? Restart(slot) : FinishLater(slot, ErrnoStatus(status.errno_value()));
  }
  if (!MayPass(status.errno_value())) return FinishLater(slot, ErrnoStatus(status.errno_value()));
  --call.reclaims;
  table_.QueueAt(slot, call.opcode, now_ + kReclaimRetry);
}

void LaneImpl::Wait(std::deque<Waiting>& list, Slot slot) {
  calls_[slot].waiting = true;
  list.push_back({slot, table_.TicketOf(slot)});
}

void LaneImpl::Restart(Slot slot) {
  Call& call = calls_[slot];
  call.waiting = false;
  call.reclaiming = false;
  switch (call.kind) {
    case Call::Kind::kPlain:
      return table_.Queue(slot, call.opcode);
    case Call::Kind::kRead:
      return StartRead(slot);
    case Call::Kind::kWrite:
      return call.write.answered ? AfterChunk(slot) : StartWrite(slot);
  }
}

void LaneImpl::OnOperationDone(Slot slot, const Status& status) {
  Call& call = calls_[slot];
  operation_done_at_ = now_;
  const bool last = table_.EndLocal(slot);
  const bool open = table_.IsOpen(slot);
  if (call.kind == Call::Kind::kWrite) {
    // We write where the server told us to: one that refuses has told us nonsense.
    if (!status.ok()) return Hostile("staging slot");
    if (open && last && call.late) return FinishLate(slot);
    if (open && last && call.write.answered) AfterChunk(slot);
    return;
  }
  if (call.read.round != nullptr && !status.ok()) call.read.round->refused = true;
  if (!last) return;
  if (open) return call.late ? FinishLate(slot) : OnReadsDone(slot);
  GiveRoundBack(call);
}

}  // namespace rdfs::fs::client
