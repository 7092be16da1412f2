#include "tools/sock/preload/connection.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "tools/sock/preload/calling.h"
#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/keeper.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/undisturbed.h"

namespace rdfs::sock {
namespace {

// Of what only has to be about right: where two threads count at once, one of them may be lost.
template <typename Number>
Number Count(std::atomic<Number>& counter, Number more) {
  const Number now = counter.load(std::memory_order_relaxed) + more;
  counter.store(now, std::memory_order_relaxed);
  return now;
}

// Of the references, calls.
constexpr std::uint64_t kUsers = 0xffffffffU;

// One call less of those that `calls` are, unless there is none: one that a signal handler has
// interrupted to fork ends in the child as well, where it is not counted. Returns what there was.
// (One that was moving bytes just then, and not asleep, goes on with a lock that is not its own:
// the connection may be reset for both.)
template <typename Number>
Number DropCall(std::atomic<Number>& counter, Number calls) {
  Number now = counter;
  while ((now & calls) != 0 && !counter.compare_exchange_weak(now, now - 1)) {
  }
  return now;
}

}  // namespace

// --- references

bool Connection::AddUser() {
  std::uint64_t references = references_;
  do {
    if (references >> 32U == 0) return false;
  } while (!references_.compare_exchange_weak(references, references + 1));
  return true;
}
void Connection::DropUser() {
  if (DropCall(references_, kUsers) == 1) TearDown();
}
void Connection::AddDescriptor() { references_.fetch_add(std::uint64_t{1} << 32U); }
void Connection::DropDescriptor() {
  constexpr std::uint64_t kOne = std::uint64_t{1} << 32U;
  if (references_.fetch_sub(kOne) == kOne) TearDown();
}

void Connection::Open(std::uint32_t index, bool opened) {
  index_ = index;
  slot().opened = opened;
  slot().Join(ThisProcess());
  AddDescriptor();
}

void Connection::TearDown() {
  const Undisturbed undisturbed;
  const int kept = kept_.exchange(-1);
  if (kept >= 0) close(kept);
  end_.reset();
  const Reason why = WhyOver();
  if (InFork()) {
    LeaveUnfreed();
  } else {
    met_.reset();
    DropMeeting();
    asking_.reset();
  }
  if (!slot().Leave(ThisProcess())) return;
  if (mode_ == Mode::kUndecided) ++TheCounts().stayed[static_cast<std::size_t>(why)];
  Slots().Give(index_);
}

// --- fork

bool Connection::BeforeFork() {
  if (forking_) return false;
  forking_ = true;
  ++slot().forks;
  // Who attaches has seen no other holder; the child must be found an end, or none.
  while (mode_ == Mode::kAttaching) sched_yield();
  return true;
}
void Connection::AfterForkInParent(bool failed) {
  if (failed) NotInherited();
  forking_ = false;
}
void Connection::NotInherited() {
  if (!forking_) return;
  forking_ = false;
  if (slot().DropFork()) Slots().Give(index_);
}
void Connection::AfterForkInChild(bool apart) {
  if (!forking_) return;
  forking_ = false;
  if (apart) slot().crowded = true;  // the others would seem dead
  slot().Join(ThisProcess());
  --slot().forks;
  // The other threads are not here. (What this one is in, below a signal handler: DropCall.)
  references_ &= ~kUsers;
  in_kernel_ = 0;
  touching = Calling::Mine(*this) ? Calling::touches() : 0;
  working_.clear();
  pending_ = false;
  if (mode_ == Mode::kAttached) return;
  // Who began after the wait in BeforeFork finds the fork, and goes back; but not here.
  if (mode_ == Mode::kAttaching) mode_ = Mode::kUndecided;
  LeaveUnfreed();
  quiet_until_ = TimePoint();
}

// Around a fork: the allocator's own handlers run in front of ours and behind them, if it has any,
// and between them its locks are held.
void Connection::LeaveUnfreed() {
  if (meeting_ != nullptr) meeting_.release()->CloseUnfreed();
  if (asking_ != nullptr) asking_.release()->CloseUnfreed();
  if (met_) met_->CloseUnfreed();
  new (&met_) std::optional<Meeting::Result>;
}

// --- calls

Connection::Road Connection::Enter(int fd, bool counts) {
  for (;;) {
    switch (mode_) {
      case Mode::kAttached:
        return Road::kEnd;
      case Mode::kTcp:
        return Road::kTcp;
      case Mode::kAttaching:
        sched_yield();
        continue;
      case Mode::kUndecided:
        break;
    }
    const std::uint32_t calls = counts ? Count(calls_, std::uint32_t{1}) : 0;
    if (counts && (pending_ || Due(calls)) && !LooksTooOften()) Work(fd);
    ++in_kernel_;
    if (mode_ == Mode::kUndecided) return Road::kCounted;
    DropCall(in_kernel_, ~std::uint32_t{0});
    counts = false;
  }
}

void Connection::Leave(ssize_t moved) {
  DropCall(in_kernel_, ~std::uint32_t{0});
  if (moved > 0) Count(bytes_, static_cast<std::uint64_t>(moved));
}

void Connection::NeedTcp(int fd, Reason reason, std::optional<Deadline> deadline) {
  const Undisturbed undisturbed;
  for (;;) {
    switch (mode_) {
      case Mode::kTcp:
        return;
      case Mode::kAttached:
        return LeaveEnd(fd, deadline);
      default:
        break;
    }
    if (!working_.test_and_set()) {
      const bool undecided = mode_ == Mode::kUndecided;
      // A child of vfork must not free what its parent has open.
      const bool ours = IsThisProcess();
      if (undecided && ours) Stay(fd, reason);
      if (undecided && !ours) slot().stays = true;
      working_.clear();
      if (undecided) return;
    }
    sched_yield();
  }
}

// It may take a while, in which another thread may close the number.
void Connection::LeaveEnd(int fd, std::optional<Deadline> deadline) {
  const Calling calling(*this, fd);
  slot().stays = true;
  const bool owed = end_->Leave(fd, deadline) == End::Departure::kOwed;
  const TimePoint since = deadline ? *deadline : BootClock::now();
  if (owed && !StartKeeper(fd, *end_, index_, since)) End::Reset(fd);
  HasLeft();
}

void Connection::BeginLeaving(int fd) {
  const Undisturbed undisturbed;
  if (!attached()) return;
  const Calling calling(*this, fd);
  slot().stays = true;
  if (end_->Leave(fd, TimePoint()) != End::Departure::kOwed) HasLeft();
}

void Connection::HasLeft() {
  mode_ = Mode::kTcp;
  ++TheCounts().left;
  EpollDetached(*this);
}

// For the calls that other threads are in: the kernel's hold the socket, and not its number.
void Connection::Keep(int fd) {
  if (kept_ >= 0) return;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, Registry().hidden_base());
  if (copy < 0) return;
  Registry().Hide(copy);
  int none = -1;
  if (!kept_.compare_exchange_strong(none, copy)) close(copy);
}

void Connection::KeepForOthers(int fd) {
  if (__libc_single_threaded != 0) return;
  const std::uint64_t users = references_ & kUsers;
  users > (Calling::Mine(*this) ? 1U : 0U) ? Keep(fd) : DropKept();
}
void Connection::DropKept() {
  const int kept = kept_.exchange(-1);
  if (kept >= 0) close(kept);
}

// They are in the kernel for a moment, unless their processor has something better to do. Not for
// ever: a signal handler may have come in between.
void Connection::AwaitUntouched() const {
  constexpr int kYields = 100;
  constexpr int kMostMs = 1000;
  const NotCancelled not_cancelled;
  for (int i = 0; i < kYields + kMostMs && touching > Calling::touches(); ++i) {
    if (i < kYields) {
      sched_yield();
    } else {
      (void)libc().poll(nullptr, 0, 1);
    }
  }
}

void Connection::BeforeClose(int fd) {
  if (!attached() || !IsThisProcess()) return;
  const int saved = errno;
  KeepForOthers(fd);
  end_->BeforeClose(fd);
  // What stays on TCP may have been given to somebody: a message in flight holds it, or a program
  // without the library.
  const bool last =
      descriptors() == 1 && !slot().stays.load() && slot().OnlyHolderIs(ThisProcess());
  if (last) end_->RefuseMore();
  if (last && end_->UnreadInRing() > 0) {
    // As TCP has it for a socket that is closed with unread bytes in its queue (RFC 2525, 2.17).
    const linger reset{.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  errno = saved;
}

}  // namespace rdfs::sock
