#include "fs/fuse/worker/worker.h"

#include <linux/fuse.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "fs/fuse/names/stale_recovery.h"
#include "fs/fuse/worker/opcode_rules.h"
#include "transport/base/log.h"

namespace rdfs::fs::fuse {
namespace {

// A write of max_write bytes and its headers; the kernel refuses a shorter buffer (fuse(4),
// EINVAL).
constexpr std::size_t kHeaderRoom = client::Buffer::kPageBytes;
// Requests taken before completions are looked at: keeps latency even under a flood.
constexpr int kRequestsAtOnce = 16;
// Looks at the lane, which cost nothing, between two at the FUSE descriptor, a read(2) each.
constexpr int kLooksAtLane = 8;
// Turns of the loop that may go by without a look at the FUSE descriptor.
constexpr int kTurnsBlind = 4;
// Requests that were all there when they were looked for: more of them come at once than this
// worker answers. One program's with one thread never are; it has to run to make the next.
constexpr int kCrowd = 32;

constexpr std::size_t kMostReleasesHeld = 64;
// libfuse's operations get no argument that could say which worker called them.
thread_local Worker* t_current = nullptr;

// Makes the count odd while it lives. One thread counts, others look.
class OddWhile {
 public:
  explicit OddWhile(std::atomic<std::uint64_t>& count) : count_(count) { Add(); }
  OddWhile(const OddWhile&) = delete;
  OddWhile& operator=(const OddWhile&) = delete;
  ~OddWhile() { Add(); }

 private:
  void Add() {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  std::atomic<std::uint64_t>& count_;
};

}  // namespace

Worker& Worker::Current() { return *t_current; }

Result<std::unique_ptr<Worker>> Worker::Create(fuse_session* session, Filesystem& filesystem,
                                               std::unique_ptr<client::Lane> lane, Workers& all) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  const std::size_t request_bytes = filesystem.transfer_bytes + kHeaderRoom;
  return std::unique_ptr<Worker>(
      new Worker(session, filesystem, std::move(lane), all, std::move(wake), request_bytes));
}

Worker::~Worker() {
  // Callbacks of calls that never got an answer run now, and buffers must be gone before the lane.
  t_current = this;
  receive_.Reset();
  current_.buffer.Reset();
  const int fuse_fd = fuse_session_fd(session_);
  for (const Message& message : resumed_) AnswerError(fuse_fd, message.unique, EIO);
  resumed_.clear();
  for (const Postponed& waiting : postponed_) AnswerError(fuse_fd, waiting.message.unique, EIO);
  postponed_.clear();
  for (const Awaited& awaited : std::exchange(awaited_, {})) awaited.then();
  read_ahead_.Clear();
  released_.clear();  // they end with the session
  lane_.reset();
  t_current = nullptr;
}

void Worker::Resume(Message message) {
  if (ends()) return AnswerError(fuse_session_fd(session_), message.unique, EIO);
  resumed_.push_back(std::move(message));
}

void Worker::Resume(Message message, const Waits& waits) {
  waits_[message.unique] = waits;
  Resume(std::move(message));
}

void Worker::Wake() const { wake_.Ring(); }

Status Worker::Run() {
  t_current = this;
  while (fuse_session_exited(session_) == 0) {
    bool asked = false;
    if (look_ && (!helps_ || OnDuty(lane_->Now()))) {
      RDFS_ASSIGN_OR_RETURN(asked, TakeRequests());
      turns_blind_ = 0;
    }
    if (asked) request_spin_.Came();
    if (filesystem_.kept.next() == TimePoint{}) TakeDropped(BootClock::now());
    if (!released_.empty() && lane_->calls_in_flight() > 0) SendReleases();
    if (filesystem_.kernel.has_acknowledgements()) filesystem_.kernel.SendAcknowledgements(*lane_);
    const TimePoint now = lane_->Now();
    lane_->AsOf(now);
    const bool answered = TakeAnswers();
    LetDyingGo(now);
    const bool resumed = TakeUpAgain();
    if (!begun_.empty()) TrackBegun();
    if (interrupted_.load(std::memory_order_relaxed)) LookAtInterrupted();
    if (asked || answered || resumed) {
      look_ = (answered || resumed || !drained_) && LookAgain();
    } else if (!Spin()) {
      RDFS_RETURN_IF_ERROR(Sleep());
    }
  }
  SendRest();
  return {};
}

void Worker::SendRest() {
  constexpr std::chrono::seconds kPatience{5};
  const Deadline deadline = DeadlineAfter(kPatience);
  while (filesystem_.behind.any() && BootClock::now() < deadline) {
    if (lane_->Poll() > 0 || !lane_->Arm()) continue;
    pollfd entry{.fd = lane_->fd(), .events = POLLIN, .revents = 0};
    (void)poll(&entry, 1, 10);  // another worker's lane may be who has it
  }
  if (!filesystem_.behind.any()) return;
  LogError("some of what programs wrote in the last moment has not reached the server: it is lost");
}

bool Worker::LookAgain() {
  if (++turns_blind_ >= kTurnsBlind || lane_->calls_in_flight() > 1) return true;
  if (lane_->calls_in_flight() == 1) return answer_spin_.pays();
  return request_spin_.pays();
}

bool Worker::Spin() {
  look_ = true;
  TimePoint now = BootClock::now();
  const bool waits = lane_->calls_in_flight() > 0;
  AdaptiveSpin& spin = waits ? answer_spin_ : request_spin_;
  const bool go_on = spin.GoOn(now);
  if (go_on && gives_way_) now = GiveWay(spin, now);
  lane_->AsOf(now);
  if (!go_on || (!waits && !OnDuty(now))) return false;
  for (int i = 0; waits && i < kLooksAtLane; ++i) {
    if (i > 0) lane_->AsOf(now);
    if (!TakeAnswers()) continue;
    look_ = LookAgain();
    break;
  }
  return true;
}

bool Worker::ReadyToReceive() {
  if (receive_.valid()) return true;
  std::optional<client::Buffer> buffer = lane_->buffers().Allocate(request_bytes_);
  if (!buffer) {
    read_ahead_.GiveBack();
    buffer = lane_->buffers().Allocate(request_bytes_);
  }
  if (buffer) receive_ = std::move(*buffer);
  return receive_.valid();
}

bool Worker::TakeAnswers() {
  together_ = lane_->calls_in_flight() > 1;
  const bool any = lane_->Poll() > 0;
  together_ = false;
  if (answers_.size() > 1) filesystem_.reads_together.fetch_add(answers_.size());
  answers_.Send();
  // Reads whose pieces have come: before any that the kernel has sent since.
  if (any && !postponed_.empty()) TakeUpPostponed();
  if (any) answer_spin_.Came();
  return any;
}

Result<bool> Worker::TakeRequests() {
  int short_reads = 0;
  const Result<bool> any = TakeRequests(short_reads_.Begin(), short_reads);
  short_reads_.End(short_reads);
  return any;
}

Result<bool> Worker::TakeRequests(int most_short, int& short_reads) {
  bool any = false;
  drained_ = false;
  const bool idle = lane_->calls_in_flight() == 0;
  for (int i = 0; i < kRequestsAtOnce; ++i) {
    if (!ReadyToReceive())
      return any;  // the kernel keeps the rest until a reply has freed a buffer
    // Whoever reads a later request sees it: the kernel hands them out one after the other.
    const OddWhile has_one(request_turns_);
    const ssize_t got = read(fuse_session_fd(session_), receive_.bytes().data(), receive_.size());
    if (got < 0) {
      // ENOENT: the request was interrupted while it was being read.
      if (errno == EINTR || errno == ENOENT) continue;
      if (errno == EAGAIN) {
        drained_ = true;
        in_a_row_ = 0;
        return any;
      }
      if (errno == ENODEV) {  // unmounted
        fuse_session_exit(session_);
        return true;
      }
      return Status::FromErrno(errno, "reading from /dev/fuse");
    }
    any = true;
    const TimePoint now = BootClock::now();
    if (++in_a_row_ >= kCrowd && call_helper_) {
      in_a_row_ = 0;
      if (call_helper_(now)) helped_until_ = now + kDuty;
    }
    lane_->AsOf(now);
    Message message = TakeReceived(static_cast<std::size_t>(got));
    const bool short_read = IsShortRead(message);
    Process(std::move(message));
    if (fuse_session_exited(session_) != 0) return true;
    if (short_read && idle) {
      if (++short_reads >= most_short) return true;
    } else if (lane_->calls_in_flight() <= 1) {  // one thread makes one request at a time
      return true;
    }
  }
  return any;
}

Message Worker::TakeReceived(std::size_t size) {
  Message message;
  message.size = static_cast<std::uint32_t>(size) & 0xffffffU;
  message.buffer = lane_->buffers().TakeFront(receive_, size);
  return message;
}

void Worker::Process(Message message) {
  fuse_in_header header{};
  if (message.size < sizeof header) return;
  std::memcpy(&header, message.buffer.bytes().data(), sizeof header);
  if (header.opcode == FUSE_INTERRUPT &&
      message.size >= sizeof header + sizeof(fuse_interrupt_in)) {
    // Handled here, because we know which call belongs to the request; it needs no answer.
    fuse_interrupt_in interrupt{};
    std::memcpy(&interrupt, message.buffer.bytes().data() + sizeof header, sizeof interrupt);
    for (Worker* worker : all_) worker->Interrupt(interrupt.unique);
    return;
  }
  message.unique = header.unique;
  if (header.opcode == FUSE_RELEASE && filesystem_.inodes.may_be_locked(header.nodeid)) {
    filesystem_.unlocks.Begin(header.unique, header.nodeid);
  }
  if (header.opcode == FUSE_WRITE) {
    const auto in = message.Body<fuse_write_in>();
    if ((in.write_flags & FUSE_WRITE_CACHE) == 0) {
      filesystem_.page_writes.Begin(header.unique, header.nodeid, in.offset, in.size);
    }
  }
  if (filesystem_.behind.any() && message.waited == 0) {
    if (const auto node = Follows(message)) {
      const WritesBehind::Wait wait = filesystem_.behind.NowFor(*node);
      if (wait.last != 0) return PostponeBehind(wait, std::move(message), WaitsOf(message.unique));
    }
  }
  message.changes = Changes(message) ? 1U : 0U;
  fuse_buf raw{};
  raw.size = message.size;
  raw.mem = message.buffer.bytes().data();
  if (message.changes != 0) NoteChange(message, lane_->Now());
  processed_ = message.unique;
  current_ = std::move(message);
  fuse_session_process_buf(session_, &raw);
  processed_ = 0;
  if (header.opcode == FUSE_WRITE && current_.buffer.valid()) WrotePages(header.unique);
  current_.buffer.Reset();  // nobody took it: a request without an answer, or answered by libfuse
}

void Worker::TrackBegun() {
  const std::lock_guard lock(interrupts_mutex_);
  for (const Begun& begun : begun_) Act(interrupts_.Track(begun.unique, begun.call));
  begun_.clear();
  if (interrupts_.next_look() != TimePoint::max()) interrupted_ = true;
}

void Worker::Untrack(std::uint64_t unique) {
  if (!waits_.empty()) waits_.erase(unique);
  buffer_turns_.Leave(unique);
  if (const auto found = changing_.find(unique); found != changing_.end()) {
    const Changing& changing = found->second;
    const auto told =
        ends() ? std::span<const client::Attributes>{} : lane_->DirectoriesTold(unique);
    for (std::size_t i = 0; i < changing.count; ++i) {
      const NodeId node = changing.nodes[i];
      if (i < told.size()) {
        filesystem_.directories.Keep(node, changing.changes[i], told[i]);
        filesystem_.new_directories.Renew(node, told[i].expires, BootClock::now());
      }
      filesystem_.directories.Settle(node, changing.changes[i]);
      filesystem_.kernel.ChangeEnds(node);
    }
    changing_.erase(found);
  }
  bool known = true;
  std::erase_if(begun_, [&](const Begun& begun) {
    if (begun.unique != unique) return false;
    known = !begun.first;
    return true;
  });
  if (!known) return;
  const std::lock_guard lock(interrupts_mutex_);
  interrupts_.Untrack(unique);
}

void Worker::SettleWhenAnswered(std::uint64_t unique, NodeId node, std::uint64_t change) {
  Changing& changing = changing_[unique];
  changing.nodes.at(changing.count) = node;
  changing.changes.at(changing.count++) = change;
  filesystem_.kernel.ChangeBegins(*lane_, node);
}

void Worker::ReleaseLater(const client::CallContext& caller, client::OpenPtr file) {
  if (ends()) return;  // it ends with the session
  released_.push_back({.caller = caller, .file = std::move(file)});
  released_.back().caller.timeout.reset();  // how long its request had left
  if (released_.size() >= kMostReleasesHeld) SendReleases();
}

void Worker::GiveUpKept(NodeId node) {
  filesystem_.kept.Drop(node);
  if (filesystem_.kept.next() == TimePoint{}) TakeDropped(BootClock::now());
  SendReleases();
}

void Worker::TakeDropped(TimePoint now) {
  for (KeptOpens::Kept& kept : filesystem_.kept.TakeDropped(now)) {
    ReleaseLater(kept.closer, std::move(kept.open->file));
  }
}

void Worker::NoteChange(const Message& message, TimePoint now) {
  const fuse_in_header header = message.header();
  const std::optional<NodeId> content = ChangesContentOf(message);
  filesystem_.inodes.OwnChange(header.nodeid, now, content == header.nodeid);
  // Of a write the kernel is told how much was written, of a truncate what came of it.
  const bool told = header.opcode == FUSE_WRITE || header.opcode == FUSE_SETATTR;
  if (content && !told) filesystem_.inodes.ForgetTold(*content);
  if (Cuts(message)) filesystem_.inodes.Cut(header.nodeid, now);
  const NodeId second = StaleRecovery::SecondNode(message);
  if (second != kRootNode) filesystem_.inodes.OwnChange(second, now, content == second);
  // Permissions may be among it.
  if (header.opcode == FUSE_SETATTR || header.opcode == FUSE_SETXATTR ||
      header.opcode == FUSE_REMOVEXATTR) {
    filesystem_.kept.Drop(header.nodeid);
    filesystem_.inodes.ForgetXattrs(header.nodeid);
  }
}

void Worker::SendReleases() {
  for (Released& released : released_) {
    // close(2) has returned already: nobody hears an error, and the file is given up either way.
    lane_->Release(released.caller, std::move(released.file), [](Status&&) {});
  }
  released_.clear();
}

void Worker::Interrupt(std::uint64_t unique) {
  const std::lock_guard lock(interrupts_mutex_);
  Act(interrupts_.Interrupt(unique, BootClock::now()));
  if (interrupts_.next_look() == TimePoint::max()) return;
  interrupted_ = true;
  if (t_current != this) Wake();  // it has to look again in time
}

void Worker::LookAtInterrupted() {
  const std::lock_guard lock(interrupts_mutex_);
  for (const Interrupts::Decision& decision : interrupts_.Look(BootClock::now())) Act(decision);
  interrupted_ = interrupts_.next_look() != TimePoint::max();
}

void Worker::Act(const Interrupts::Decision& decision) {
  if (decision.action == Interrupts::Action::kCancel) lane_->CancelFromAnyThread(decision.ticket);
  if (decision.action == Interrupts::Action::kAbandon) lane_->Abandon(decision.ticket);
}

void Worker::WroteBehind(WritesBehind::Number number, const Message& message) {
  // First: who goes on behind it must not take what was asked for before it for new.
  if (!ends()) {
    NoteChange(message, BootClock::now());
    filesystem_.changes.fetch_add(1);
  }
  filesystem_.behind.End(number);
  if (ends()) return;
  filesystem_.kernel.WroteBehind();
  WakeWhoWaitsBehind();
}

void Worker::WakeWhoWaitsBehind() const {
  for (const Worker* worker : all_) {
    if (worker != this && worker->waits_behind_) worker->Wake();
  }
}

void Worker::WrotePages(std::uint64_t unique) {
  filesystem_.page_writes.End(unique);
  if (!ends()) WakeWhoWaitsBehind();
}

void Worker::Recover(NodeId node, Message message, Waits waits) {
  // Servers may come and go as often as they like, within the deadline.
  const std::uint64_t epoch = filesystem_.mount.info().epoch;
  if (std::exchange(waits.stale_at, epoch) != epoch) message.attempts = 0;
  waits_[message.unique] = waits;
  StaleRecovery::Start(*this, node, std::move(message));
}

Status Worker::Sleep() {
  const TimePoint now = lane_->Now();
  if (filesystem_.kept.next() < now) TakeDropped(now);
  SendReleases();
  if (!lane_->Arm()) return {};
  std::array<pollfd, 3> entries{
      {{.fd = lane_->fd(), .events = POLLIN, .revents = 0},
       {.fd = wake_.fd(), .events = POLLIN, .revents = 0},
       {.fd = fuse_session_fd(session_), .events = POLLIN, .revents = 0}}};
  if (std::exchange(kept_one_, false)) (*all_.begin())->Wake();
  const TimePoint duty_ends = duty_ends_.load();
  const bool on_duty = OnDuty(now);
  // Without a buffer to read into, a waiting request would keep us from sleeping.
  if (!on_duty || !ReadyToReceive()) entries[2].fd = -1;
  TimePoint timer = lane_->NextTimer();
  if (!helps_) timer = std::min(timer, filesystem_.kept.next());
  if (helps_ && on_duty) timer = std::min(timer, duty_ends);
  timer = std::min(timer, next_look_for_dying_);
  for (const Awaited& awaited : awaited_) timer = std::min(timer, awaited.until);
  timer = std::min(timer, std::exchange(next_look_at_order_, TimePoint::max()));
  if (interrupted_) {
    const std::lock_guard lock(interrupts_mutex_);
    timer = std::min(timer, interrupts_.next_look());
  }
  const int timeout = timer == TimePoint::max() ? -1 : PollTimeoutMs(timer, now);
  off_duty_ = !on_duty;
  if (poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) {
    return Status::FromErrno(errno, "poll of /dev/fuse");
  }
  const bool called = !on_duty && !off_duty_.exchange(false);
  // poll(2) reports an unmounted FUSE descriptor as an error: the read says ENODEV then.
  look_ = called || entries[2].revents != 0;
  turns_blind_ = 0;
  if ((entries[1].revents & POLLIN) != 0) wake_.Drain();
  return {};
}

}  // namespace rdfs::fs::fuse
