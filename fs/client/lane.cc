#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "fs/client/attach.h"
#include "fs/client/lane_impl.h"
#include "transport/base/log.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;

// How many rounds of one-sided reads a lane has under way at a time.
constexpr std::size_t kRounds = 128;
constexpr std::size_t kControlBytes = kRounds * ReadRound::kMaxPieces * sizeof(Le64);
static_assert(kControlBytes <= 64 * 1024);

// For the answer to our last words.
constexpr milliseconds kGoodbyePatience{1000};

Result<std::unique_ptr<transport::MemoryRegion>> MakeRegion(
    const std::shared_ptr<transport::Domain>& domain, const std::string& name, std::size_t bytes) {
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                        SharedMemory::Create(name, bytes, SharedMemory::Peers::kMayWrite));
  return domain->Register(std::move(memory), transport::Access::kLocal);
}

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

// ---- A call goes on ----------------------------------------------------------------------------

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
