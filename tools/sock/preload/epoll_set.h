// EpollSet: one epoll instance of the program's, as far as TCP sockets are in it. See epoll.h.
//
// An entry is *quiet* when nothing of it is ready and its End will ring a bell when that changes;
// the others are in a list and are looked at by every wait, which is a short one while there is one
// of which no bell tells. So a wait costs what is busy, not what is registered.
//
// What the kernel is asked of a moved connection is what TCP still says of it: its end, errors. A
// program that waits for bytes and for room in turn changes its entry with each message, or takes
// it out and puts it in again. The kernel is not told of that where it is level-triggered: it may
// have been asked for more than the program wants, or for what is not in the set any more, until it
// says something that nobody wants to hear (Excess, TakeOut), or somebody else may hear it
// (Settle): a child of fork, who waits for the instance itself.
#pragma once

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/timeout.h"
#include "transport/base/adaptive_spin.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"

namespace rdfs::sock {

// How long a wait may take: for ever, or this long; to the nanosecond (epoll_pwait2(2)), or in
// milliseconds that are rounded up. By default no time.
class EpollTimeout {
 public:
  EpollTimeout() = default;
  explicit EpollTimeout(int milliseconds)
      : time_(std::chrono::milliseconds(milliseconds)), endless_(milliseconds < 0) {}
  explicit EpollTimeout(const timespec* time) : endless_(time == nullptr), exact_(true) {
    if (time == nullptr) return;
    time_ = std::chrono::seconds(std::min(time->tv_sec, kMostSeconds)) +
            std::chrono::nanoseconds(time->tv_nsec);
  }
  [[nodiscard]] std::chrono::nanoseconds time() const { return time_; }
  [[nodiscard]] bool endless() const { return endless_; }
  [[nodiscard]] bool none() const { return !endless_ && time_.count() == 0; }
  // What is left of it `now`.
  [[nodiscard]] EpollTimeout Left(CallDeadline deadline, CallDeadline now) const {
    EpollTimeout left = *this;
    if (!endless_) left.time_ = std::max<std::chrono::nanoseconds>(deadline - now, {});
    return left;
  }
  [[nodiscard]] EpollTimeout AtMost(std::chrono::nanoseconds most) const {
    EpollTimeout shorter = *this;
    if (!endless_ && time_ <= most) return shorter;
    shorter.time_ = std::max<std::chrono::nanoseconds>(most, {});
    shorter.endless_ = false;
    return shorter;
  }
  // The C library's call.
  int Wait(int epoll, std::span<epoll_event> events, const sigset_t* mask) const;

 private:
  std::chrono::nanoseconds time_{0};
  bool endless_ = false;
  bool exact_ = false;
};

class EpollSet {
 public:
  EpollSet() = default;
  EpollSet(const EpollSet&) = delete;
  EpollSet& operator=(const EpollSet&) = delete;

  // epoll_ctl(2), of a TCP socket of the program's, or of another descriptor.
  int Control(int epoll, int operation, int fd, epoll_event* event);
  // epoll_pwait(2). `mask`: null to leave the signal mask alone.
  int Wait(int epoll, std::span<epoll_event> events, const EpollTimeout& most,
           const sigset_t* mask);

  void Attached(Connection& connection, int fd);
  void Detached(const End& end, int fd);
  // What this process has put there.
  bool Has(int fd);
  void Forget(int fd);
  // The connection's program was refused room: it will want to know when there is some.
  void Refused(int fd);
  // Forks of this process that are under way: what the kernel has of a set then is the child's,
  // too.
  static void BeginFork() { ++forking_; }
  static void EndFork() {
    // A child that a signal handler has made in the middle of one has forgotten that already.
    std::uint32_t before = forking_;
    while (before > 0 && !forking_.compare_exchange_weak(before, before - 1)) {
    }
  }
  static void ForkedHere() { forking_ = 0; }
  void BeforeFork();
  void AfterForkInChild();
  // Who waits for the instance itself, as for any descriptor, hears of what is ready by the
  // kernel's part of it alone: what is ready now rings there, and so does what comes later.
  // `epoll`: by this number; -1: one that is not known.
  void WaitedForOutside(int epoll = -1);
  // It lies in another instance, or others lie in it: then each wait for that is one for these.
  void BeNested() { nested_ = true; }
  void HoldSets() { holds_sets_ = true; }
  [[nodiscard]] bool holds_sets() const { return holds_sets_; }
  [[nodiscard]] bool nested() const { return nested_; }
  // For a new instance of the program's, where an old one has been closed.
  void Renew();

  // Of the program's; 0: it is closed.
  std::atomic<std::uint32_t> descriptors{0};

 private:
  struct Entry {
    std::uint64_t data;
    std::uint64_t reported_gate;  // edge: what the ring was when it was last reported
    std::uint32_t reported_refusals;
    std::uint32_t events;         // the program's; 0 when it is not in the set
    std::uint32_t kernel_events;  // what the kernel was asked, or more
    std::uint32_t came;           // what the kernel said and nobody was told yet
    int next;                     // of the busy ones, one more than the descriptor; 0: the last
    bool present, attached, busy, spent;
    bool lies;   // not present, but the kernel has it
    bool bells;  // they lie in the inner set; they stay when a program takes it out and in again
    bool full;   // the ring, when it was armed last; or no bell tells of it
    bool soon;   // when looked at last, nothing but a look tells when it has room: it stays busy
    bool overhears;       // the data bell by its edges: bytes are not what the program waits for
    std::uint8_t arming;  // counts the program's epoll_ctls, for what the kernel said before one
    std::uint16_t forks;  // the set's, when the program last said something of it
    std::uint16_t misses = 0;  // looks that found nothing, since it became busy or had something
  };

  bool HasEntries();
  bool HasByAnotherNumber(int fd);
  int Remove(int fd, epoll_event* event);
  int Put(int operation, int fd, const epoll_event& event);
  [[nodiscard]] bool IsExact() const { return outside_ || nested_ || forking_ != 0; }
  [[nodiscard]] bool HasToAsk(const Entry& entry, std::uint32_t events) const;
  static std::uint32_t Exactly(const Entry& entry);
  void TakeOut(int fd, Entry& entry);
  void Excess(int fd, Entry& entry);
  void Settle();
  Entry* Find(int fd);
  // Else the kernel's part of it is a process's from before a fork.
  [[nodiscard]] bool IsOwn(const Entry& entry) const { return entry.forks == forks_; }
  void Busy(int fd, Entry& entry);
  void Ask(int fd, Entry& entry, std::uint32_t events);
  std::uint32_t Look(int fd, Entry& entry, bool arm, bool tell = true);
  void LookAtFull(TimePoint now);
  std::size_t Harvest(std::span<epoll_event> events, std::size_t told, bool arm);
  int Gather(int epoll, std::span<epoll_event> events, bool arm, bool& ask, Deadline& look_again);
  std::size_t Translate(std::span<epoll_event> told, std::span<epoll_event> events,
                        std::size_t count, std::size_t bells);
  void Heard(int fd, bool over);
  void Rung(bool take_waker, std::size_t most);
  bool SpinForOne();
  bool GiveWay();
  int HandOn(int result);
  bool Hear(int operation, int bell, std::uint32_t events, std::uint32_t what);
  bool MakeBells();
  void HearBytes(const End& end, int fd, Entry& entry);
  void AddBells(const End& end, int fd, Entry& entry);
  static std::uint32_t Wanted(const Entry& entry);
  void WakeWaiters();
  void Announce(int fd, Entry& entry);
  void RingWaker();
  void QuietWaker();
  int WaitInKernel(int epoll, std::span<epoll_event> events, int mine, const EpollTimeout& timeout,
                   const sigset_t* mask, int& told);
  void RemoveBells(const End& end, Entry& entry);

  static inline constinit std::atomic<std::uint32_t> forking_{0};
  pthread_mutex_t lock_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  std::atomic<int> fd_{-1};  // of the program's, the last that was used
  Fd bells_;
  Fd waker_;  // an eventfd among the bells, for waits that others have overtaken
  Entry* entries_ = nullptr;
  int busy_ = 0;      // as Entry::next
  int busy_end_ = 0;  // the last of them
  // When to look at those whose ring is full, of which no bell may tell.
  Deadline look_at_full_ = Deadline::max();
  std::atomic<bool> soon_{false};  // a busy one is Entry::soon: somebody has to look
  std::atomic<std::uint32_t> attached_{0};
  std::uint32_t lying_ = 0;  // entries that the kernel has alone
  // How often it was asked for less, since it said something in vain.
  std::atomic<std::uint32_t> silenced_{0};
  std::atomic<bool> mixed_{false};  // what the kernel says may be ours
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<bool> nested_{false};
  std::atomic<bool> holds_sets_{false};
  std::atomic<bool> outside_{false};  // somebody has waited for the instance itself
  // What only the kernel knows has its turn now and then, also when there is always something.
  std::atomic<std::uint32_t> unasked_{0};
  std::atomic<std::uint32_t> told_unasked_{0};  // events, in those waits
  std::atomic<std::int64_t> asked_at_{0};       // by the coarse clock, in ns
  AdaptiveSpin spin_{kLongestSpin};             // while several are busy
  bool ask_ = false;                            // the kernel has to be asked, beside what was found
  std::uint16_t forks_ = 0;                     // since it was made, down to this process
};

}  // namespace rdfs::sock
