#include "fs/library/queue.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/base/signals_blocked.h"

namespace client = rdfs::fs::client;
using rdfs::BootClock;
using rdfs::Deadline;
using rdfs::EventFd;
using rdfs::Result;
using rdfs::Status;

namespace {

// Longer than most answers take, shorter than two changes of context cost when it is in vain.
constexpr std::chrono::microseconds kLongestSpin{100};
// So long after the program's last call the keeper takes over: a recall waits no longer.
constexpr std::chrono::milliseconds kKeeperPatience{20};
// Who takes completions that wait already looks for what the server wants this often.
constexpr std::chrono::milliseconds kLookEvery{1};
// Whoever sleeps looks again after that at the latest.
constexpr std::chrono::hours kLongestSleep{1};
constexpr std::size_t kSpareBytes = 256 * 1024;

std::string_view Remedy(int errno_value) {
  switch (errno_value) {
    case ETIMEDOUT:
      return "; the server did not answer within the deadline (option deadline=SECONDS)";
    case EROFS:
      return "; the export, or the session (option ro), is read-only";
    case ESTALE:
      return "; the server does not have the file any more: open it again";
    case ENOBUFS:
      return "; every buffer of the queue is in use: free one, or connect with larger queues";
    case EAGAIN:
      return "; too much is under way: take completions first";
    default:
      return "";
  }
}

std::string Sentence(const std::string& what, const Status& status) {
  const int number = status.errno_value();
  return fmt::format("{}{}", Status::FromErrno(number, what).message(), Remedy(number));
}

}  // namespace

Result<std::unique_ptr<rdfs_queue>> rdfs_queue::Open(rdfs_export& owner) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  RDFS_ASSIGN_OR_RETURN(EventFd completed, EventFd::Create());
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<client::Lane> lane,
                        owner.mount->OpenLane(rdfs::DeadlineAfter(owner.deadline)));
  return std::unique_ptr<rdfs_queue>(
      new rdfs_queue(owner, std::move(lane), std::move(wake), std::move(completed)));
}

rdfs_queue::rdfs_queue(rdfs_export& owner, std::unique_ptr<client::Lane> lane, EventFd wake,
                       EventFd completed)
    : owner_(owner),
      wake_(std::move(wake)),
      completed_(std::move(completed)),
      spin_(kLongestSpin),
      lane_(std::move(lane)),
      used_lane_(lane_.get()) {
  ++owner_.queues;
  // What rdfs_pread can count on, whatever the program takes.
  const std::size_t spare = std::min(kSpareBytes, lane_->buffers().free_bytes() / 4);
  if (auto buffer = lane_->buffers().Allocate(spare)) {
    spare_ = std::make_shared<client::Buffer>(std::move(*buffer));
  }
  const rdfs::SignalsBlocked blocked;
  thread_ = std::thread([this] { Keep(); });
}

rdfs_queue::~rdfs_queue() {
  {
    Lock lock = Hold();
    Enter();
    const Deadline deadline = rdfs::DeadlineAfter(owner_.deadline);
    while (under_way_ > 0 && BootClock::now() < deadline) Turn(lock, deadline);
    stopping_ = true;
    Kick();
    Wake();
  }
  keeper_.notify_all();
  thread_.join();
  for (const OperationPtr& operation : done_) Discard(*operation);
  done_.clear();
  buffers_.clear();
  spare_.reset();
  lane_.reset();  // ends what is still under way: those operations are dropped with it
  done_.clear();
  --owner_.queues;
}

// What nobody took is closed, so that it does not stay open at the server.
void rdfs_queue::Discard(Operation& operation) {
  if (operation.file == nullptr) return;
  lane_->Release(owner_.caller, operation.file->open, [](Status&&) {});
  lane_->Flush();
}

// ---- Operations ---------------------------------------------------------------------------------

bool rdfs_queue::Begin(const OperationPtr& operation, const Start& start) {
  Enter();
  if (!operation->closes && under_way_ + done_.size() >= RDFS_MAX_UNDER_WAY) return false;
  ++under_way_;
  start(operation);
  lane_->Flush();
  if (leading_) Kick();
  return true;
}

int rdfs_queue::Submit(std::string what, void* user, Start start, bool closes) {
  auto operation = std::make_shared<Operation>();
  operation->what = std::move(what);
  operation->user = user;
  operation->closes = closes;
  {
    const Lock lock = Hold();
    const bool begun = Begin(operation, start);
    // The memory that it holds may be nobody else's by now.
    start = nullptr;
    if (begun) return 0;
  }
  return Refuse(operation->what, EAGAIN);
}

rdfs_queue::OperationPtr rdfs_queue::BeginToWait(std::string what, const Start& start,
                                                 bool closes) {
  auto operation = std::make_shared<Operation>();
  operation->what = std::move(what);
  operation->waited_for = true;
  operation->closes = closes;
  const Lock lock = Hold();
  return Begin(operation, start) ? operation : nullptr;
}

void rdfs_queue::WaitFor(const Operation& operation) {
  Lock lock = Hold();
  while (!operation.over) Turn(lock, Deadline::max());
  Wake();  // others may want to lead now
}

int rdfs_queue::Refuse(const std::string& what, int errno_value) {
  const Lock lock = Hold();
  sentence_ = Sentence(what, Status(rdfs::Code::kErrno, errno_value, {}));
  return -errno_value;
}

int rdfs_queue::Report(const Operation& operation) {
  if (operation.status.ok()) return 0;
  const Lock lock = Hold();
  sentence_ = Sentence(operation.what, operation.status);
  return -operation.status.errno_value();
}

const char* rdfs_queue::sentence() const {
  const Lock lock = Hold();
  return sentence_.c_str();
}

void rdfs_queue::End(const OperationPtr& operation, Status status, std::int64_t count) {
  operation->status = std::move(status);
  operation->count = count;
  operation->over = true;
  --under_way_;
  if (operation->waited_for) return;
  if (done_.empty() && program_sleeps_) completed_.Ring();
  done_.push_back(operation);
}

int rdfs_queue::Poll(rdfs_completion* completions, int most, int timeout_ms) {
  if (completions == nullptr || most <= 0) return Refuse("taking completions", EINVAL);
  Lock lock = Hold();
  Enter();
  const Deadline deadline =
      timeout_ms < 0 ? Deadline::max() : rdfs::DeadlineAfter(std::chrono::milliseconds(timeout_ms));
  // Also where some wait: who takes one after the other keeps the keeper away.
  if (!leading_ && (done_.empty() || IsLookDue())) Look();
  while (done_.empty() && BootClock::now() < deadline) Turn(lock, deadline);
  handed_out_.clear();
  int taken = 0;
  for (; taken < most && !done_.empty(); ++taken) HandOut(completions[taken]);
  if (program_sleeps_ && done_.empty()) completed_.Drain();
  Wake();
  return taken;
}

void rdfs_queue::HandOut(rdfs_completion& out) {
  Operation& operation = *done_.front();
  out = {.user = operation.user,
         .result = operation.count,
         .file = nullptr,
         .listing = operation.listing.release(),
         .sentence = nullptr};
  if (operation.file != nullptr) out.file = owner_.Add(std::move(operation.file));
  if (!operation.status.ok()) {
    out.result = -operation.status.errno_value();
    out.sentence = handed_out_.emplace_back(Sentence(operation.what, operation.status)).c_str();
  }
  done_.pop_front();
}

// ---- Who drives the lane ------------------------------------------------------------------------

void rdfs_queue::Enter() {
  ++uses_;
  if (leading_ && keeper_leads_ && !program_sleeps_) Kick();
}

void rdfs_queue::Kick() const { wake_.Ring(); }

void rdfs_queue::Look() {
  looked_ = BootClock::now();
  if (lane_->Poll() > 0) Wake();
}

bool rdfs_queue::IsLookDue() const { return BootClock::now() - looked_ >= kLookEvery; }

rdfs_queue::Lock rdfs_queue::Hold() const {
  Lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  ++wanted_;
  lock.lock();
  --wanted_;
  return lock;
}

void rdfs_queue::LetIn(Lock& lock) {
  if (wanted_ == 0) return;
  lock.unlock();
  ::sched_yield();
  lock = Hold();  // wanted, as the others' is
}

void rdfs_queue::Wake() {
  if (asleep_ == 0) return;
  wanted_ += asleep_;
  asleep_ = 0;
  ++wakes_;
  changed_.notify_all();
}

void rdfs_queue::Await(Lock& lock, std::chrono::nanoseconds most) {
  const std::uint64_t before = wakes_;
  ++asleep_;
  changed_.wait_for(lock, most);
  if (wakes_ == before) {
    --asleep_;
  } else {
    --wanted_;
  }
}

void rdfs_queue::Turn(Lock& lock, Deadline deadline) {
  if (leading_) return Sleep(lock, deadline);
  // Not before the caller has seen what the last poll brought, and not twice without a poll.
  if (std::exchange(polled_, false) && wanted_ > 0) return LetIn(lock);
  polled_ = true;
  if (lane_->Poll() > 0) {
    spin_.Came();
    return Wake();
  }
  const rdfs::TimePoint now = looked_ = BootClock::now();
  if (under_way_ == 0 || !spin_.GoOn(now)) return Sleep(lock, deadline);
  if (!gives_way_) return;
  lock.unlock();
  ::sched_yield();
  lock.lock();
  spin_.GaveWay(BootClock::now() - now);
}

void rdfs_queue::Sleep(Lock& lock, Deadline deadline) {
  const auto now = BootClock::now();
  if (leading_) {
    const auto rest = std::min<std::chrono::nanoseconds>(deadline - now, kLongestSleep);
    Await(lock, rest);
    return;
  }
  if (!lane_->Arm()) return;
  const Deadline until = std::min(deadline, lane_->NextTimer());
  leading_ = true;
  lock.unlock();
  std::array<pollfd, 2> entries{{{.fd = lane_->fd(), .events = POLLIN, .revents = 0},
                                 {.fd = wake_.fd(), .events = POLLIN, .revents = 0}}};
  poll(entries.data(), entries.size(),
       until == Deadline::max() ? -1 : rdfs::PollTimeoutMs(until, now));
  lock.lock();
  leading_ = false;
  if (entries[1].revents != 0) wake_.Drain();
  Wake();
}

void rdfs_queue::Keep() {
  Lock lock = Hold();
  std::uint64_t seen = 0;
  while (!stopping_) {
    if (!program_sleeps_ && uses_ != seen) {
      seen = uses_;
      keeper_.wait_for(lock, kKeeperPatience);
      // Who only begins operations uses the queue, and looks at nothing.
      if (!stopping_ && !leading_ && IsLookDue()) Look();
    } else if (leading_) {
      // A thread of the program waits: it does all that is to be done.
      Await(lock, kLongestSleep);
    } else if (lane_->Poll() > 0) {
      Wake();
      LetIn(lock);
    } else {
      keeper_leads_ = true;
      Sleep(lock, Deadline::max());
      keeper_leads_ = false;
    }
  }
}

int rdfs_queue::CompletionFd() {
  const Lock lock = Hold();
  if (!program_sleeps_) {
    program_sleeps_ = true;
    if (!done_.empty()) completed_.Ring();
    keeper_.notify_all();
  }
  return completed_.fd();
}

// ---- Memory -------------------------------------------------------------------------------------

rdfs_buffer* rdfs_queue::Allocate(std::size_t bytes) {
  const Lock lock = Hold();
  Enter();
  std::optional<client::Buffer> memory = lane_->buffers().Allocate(bytes);
  if (!memory) return nullptr;
  auto buffer = std::make_unique<rdfs_buffer>(
      rdfs_buffer{.queue = *this, .memory = std::make_shared<client::Buffer>(std::move(*memory))});
  rdfs_buffer* made = buffer.get();
  buffers_.emplace(made, std::move(buffer));
  return made;
}

void rdfs_queue::Free(rdfs_buffer* buffer) {
  const Lock lock = Hold();
  Enter();
  buffers_.erase(buffer);
  ServeBorrowers();
}

std::shared_ptr<client::Buffer> rdfs_queue::LendNow(std::size_t bytes) {
  if (auto memory = lane_->buffers().Allocate(bytes)) {
    ++lent_;
    return std::make_shared<client::Buffer>(std::move(*memory));
  }
  if (spare_ == nullptr || spare_lent_ || spare_->size() < bytes) return nullptr;
  spare_lent_ = true;
  ++lent_;
  return spare_;
}

std::shared_ptr<client::Buffer> rdfs_queue::Lend(std::size_t bytes, bool wait) {
  Lock lock = Hold();
  std::shared_ptr<client::Buffer> memory;
  if (borrowers_.empty()) memory = LendNow(bytes);
  if (memory != nullptr || !wait) return memory;
  Borrower mine{.bytes = bytes};
  borrowers_.push_back(&mine);
  for (ServeBorrowers(); !mine.served; ServeBorrowers()) Turn(lock, Deadline::max());
  return std::move(mine.memory);
}

void rdfs_queue::ServeBorrowers() {
  bool any = false;
  while (!borrowers_.empty()) {
    Borrower& first = *borrowers_.front();
    first.memory = LendNow(first.bytes);
    // What is lent comes back: who holds some waits for none.
    if (first.memory == nullptr && lent_ > 0) break;
    first.served = any = true;
    borrowers_.pop_front();
  }
  if (!any) return;
  Wake();
  if (leading_) Kick();
}

std::size_t rdfs_queue::LargestLoan() const { return spare_ == nullptr ? 0 : spare_->size(); }

void rdfs_queue::GiveBack(std::shared_ptr<client::Buffer>& memory) {
  const Lock lock = Hold();
  if (memory == spare_) spare_lent_ = false;
  memory.reset();
  --lent_;
  ServeBorrowers();
}
