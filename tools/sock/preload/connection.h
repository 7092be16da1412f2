// Connection: a TCP connection as this process holds it, from connect or accept to the close of its
// last descriptor here: first plain, then perhaps with an End that moves its bytes through memory.
// PROTOCOL.md, "Meeting, on one host", says when it tries.
//
// Reached only through Use, which keeps it while a call lasts, even when another thread closes the
// descriptor meanwhile. Any thread; none of its locks is held asleep. A child of fork has its own.
//
//                 met, no call in flight              the program needs TCP
//   kUndecided ----------> kAttaching ----> kAttached ----------------------> kTcp
//        |                     | a call is in flight: later                    ^
//        |<--------------------+                                               |
//        +---------------------------------------------------------------------+
//          no partner in three attempts, or none that may be
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "tools/sock/asking.h"
#include "tools/sock/end.h"
#include "tools/sock/meeting.h"
#include "tools/sock/preload/loners.h"
#include "tools/sock/preload/registry.h"
#include "tools/sock/preload/settings.h"
#include "tools/sock/preload/slot.h"

namespace rdfs::sock {

class Connection {
 public:
  enum class Mode : std::uint8_t { kUndecided, kAttaching, kAttached, kTcp };
  // How a call on it goes: by the kernel, with Leave afterwards; by the kernel alone; by the end.
  enum class Road : std::uint8_t { kCounted, kTcp, kEnd };

  // Takes the road for one call that moves bytes, or waits for them; a waiting one does not count.
  Road Enter(int fd, bool counts);
  void Leave(ssize_t moved);

  [[nodiscard]] Mode mode() const { return mode_; }
  [[nodiscard]] bool attached() const { return mode_ == Mode::kAttached; }
  // Only when attached.
  End& end() { return *end_; }
  [[nodiscard]] Slot& slot() const { return Slots()[index_]; }
  // How often a program was told that it may not send now.
  std::atomic<std::uint32_t> refusals{0};
  // Whether it ever was in an epoll set.
  std::atomic<bool> in_epoll{false};

  // Calls of other threads that use a number of it at this moment; and what they use when that is
  // closed, -1 when there is nothing.
  std::atomic<std::uint32_t> touching{0};
  [[nodiscard]] int kept() const { return kept_; }
  void Keep(int fd);
  // Where other threads are in calls on it, and the number is to be closed.
  void KeepForOthers(int fd);
  // Before a child that nobody tells of it, where it would stay open: what no call uses but the
  // caller's.
  void DropIdleKept() {
    if ((references_ & 0xffffffffU) == 1) DropKept();
  }

  // TCP for good, losing nothing. The other end is waited for until `deadline`, if there is one.
  void NeedTcp(int fd, Reason reason, std::optional<Deadline> deadline = std::nullopt);
  // As much of that as needs no wait for a call of the other end's program: so that it is under way
  // with many before the first is waited for. NeedTcp has to follow.
  void BeginLeaving(int fd);
  // Before a descriptor of it is closed; and after the number is nobody's, but before it can be
  // another file's.
  void BeforeClose(int fd);
  void AwaitUntouched() const;

  bool AddUser();
  void DropUser();
  void AddDescriptor();
  void DropDescriptor();
  [[nodiscard]] std::uint32_t descriptors() const {
    return static_cast<std::uint32_t>(references_ >> 32U);
  }

  void Open(std::uint32_t index, bool opened);
  // Of a slot that this process holds since before exec.
  void Inherit(std::uint32_t index) { index_ = index; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  // Around fork; a connection with two descriptors is asked twice, and counts the child once.
  bool BeforeFork();
  void AfterForkInParent(bool failed);
  // `apart`: in a PID namespace where no process from before the fork can be seen.
  void AfterForkInChild(bool apart);
  // The child that was counted has none of it, or is not there.
  void NotInherited();

 private:
  [[nodiscard]] bool Due(std::uint32_t calls) const;
  [[nodiscard]] bool LooksTooOften() const;
  void SpaceLooks();
  void Work(int fd);
  void Attempt(int fd);
  bool Begin(int fd);
  bool IsWorthLooking(int fd);
  void DropMeeting();
  bool BeginAsking(int fd, std::uint64_t cookie);
  bool GoOn(int fd);
  void Refused(int fd, std::optional<far::Refusal> refusal);
  void Attach(int fd);
  void ReadOptions(int fd);
  void Stay(int fd, Reason reason);
  [[nodiscard]] Reason WhyOver() const;
  void LeaveEnd(int fd, std::optional<Deadline> deadline);
  void HasLeft();
  void DropKept();
  void TearDown();
  void LeaveUnfreed();

  // Descriptors in the upper half, calls in the lower.
  std::atomic<std::uint64_t> references_{0};
  std::uint32_t index_ = 0;
  std::atomic<int> kept_{-1};
  std::atomic<Mode> mode_{Mode::kUndecided};
  std::atomic<std::uint32_t> in_kernel_{0};  // calls
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic_flag working_ = ATOMIC_FLAG_INIT;
  // Changed only by whoever has set working_.
  std::atomic<bool> pending_{false};
  std::uint32_t attempts_ = 0;
  Loners::Place place_ = 0;         // of the server, once it has been tried to meet
  Reason before_ = Reason::kEnded;  // what the last attempt has come to, if only later ones decide
  std::uint32_t retries_ = 0;
  std::uint32_t looks_ = 0;  // of this attempt
  std::chrono::milliseconds between_looks_{};
  std::atomic<TimePoint> quiet_until_{};  // the next one is worth its system calls only then
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Asking> asking_;      // never beside the other
  std::optional<Meeting::Result> met_;  // and then the channel and the bells
  std::optional<End> end_;
  bool forking_ = false;
};

// The connection behind a descriptor, for as long as this lives; empty when there is none.
class Use {
 public:
  // kMovable skips connections that stay on TCP for good.
  enum class Of : std::uint8_t { kMovable, kAll };
  explicit Use(int fd, Of which = Of::kMovable);
  ~Use() {
    if (connection_ != nullptr) connection_->DropUser();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const { return connection_ != nullptr; }
  Connection& operator*() const { return *connection_; }
  Connection* operator->() const { return connection_; }
  // The caller ends it with DropUser.
  Connection* Release() { return std::exchange(connection_, nullptr); }

 private:
  Connection* connection_ = nullptr;
};

// Each number by which this process has it.
template <typename Do>
void ForEachDescriptor(const Connection& connection, Do act) {
  const int end = Registry().end();
  for (int fd = 0; fd < end; ++fd) {
    const Word word = Registry().Get(fd);
    if (word.kind() == Word::Kind::kConnection && word.index() == connection.index()) act(fd);
  }
}

// Which process this is, as far as this library was told: not a child of vfork, which runs in its
// parent's memory and must not change it. Not asked any more by one that stands aside (below).
bool IsThisProcess();
// Its number, without a system call; for those that IsThisProcess.
pid_t ThisProcess();

// Whether this thread is between the handlers of pthread_atfork, before the child is there.
bool InFork();

// `fd` is now a connection that this process alone holds.
void NoteConnection(int fd, bool opened);
// `copy` is now another descriptor for what `fd` is.
void NoteDuplicate(int fd, int copy);
// `fd` is about to be closed; what has to follow the close is done by Closed.
class Closing {
 public:
  explicit Closing(int fd);
  ~Closing();
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  Word was_;
};
// `fd` is a connection that exec has brought, with its slot; the `first` of its descriptors.
void NoteInherited(int fd, std::uint32_t index, bool first);
// Calls act(argument, fd, index) for each descriptor of a plain connection that exec leaves open
// (`stay`), or that it closes.
void ForEachHeld(bool stay, void (*act)(void* argument, int fd, std::uint32_t index),
                 void* argument);
// Fork, by a call that runs the handlers of pthread_atfork, or does not.
pid_t ForkCounted(pid_t (*call)(), bool runs_handlers);
// Before a child is made that this library cannot tell what to do: TCP for what it gets.
void BeforeUnseenChild();
// Everything that exec hands over: no program without this library may find it half in memory.
// `taken`: what the next program may take (handover.h).
void BeforeExec(std::span<const std::uint32_t> taken = {});
// TCP for everything, now and later: the program is about to forbid itself system calls.
void StandAside();
bool StandsAside();
// TCP for good, if it is a connection or becomes one.
void NeedTcp(int fd, Reason reason = Reason::kNeedsTcp);

}  // namespace rdfs::sock
