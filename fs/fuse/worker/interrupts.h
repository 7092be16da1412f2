// Interrupts: what becomes of a request whose caller got a signal.
//
// The kernel sends FUSE_INTERRUPT for every signal, also for a timer's that the program handles and
// for ^Z. A local file system lets none of them cut a call short: open, read, write, fsync and
// rename do not end with EINTR, and programs do not expect it (PostgreSQL panics when fsync does).
// Only who waits for a lock is let go (fcntl(2), flock(2)). So a request goes on, unless its caller
// is about to die of the signal: then the server is asked to hurry, and a second later nobody waits
// for it any more, so that kill(1) and ^C work also when the server does not answer. The kernel
// tells of the first signal only, therefore the caller of an interrupted request is looked at again
// every second.
//
// Decides only: no I/O but what `is_dying` does, no clock. One thread at a time: the worker's lock
// guards it, because another worker may read the interrupt of this one's request.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fs/client/client.h"

namespace rdfs::fs::fuse {

class Interrupts {
 public:
  struct Call {
    client::CallTicket ticket = 0;
    pid_t caller = 0;
    bool may_wait = false;  // for a lock: any signal lets it go
  };
  enum class Action : std::uint8_t { kNone, kCancel, kAbandon };
  struct Decision {
    client::CallTicket ticket = 0;
    Action action = Action::kNone;
  };
  using IsDying = bool (*)(pid_t caller);

  explicit Interrupts(IsDying is_dying) : is_dying_(is_dying) {}

  // The request `unique` waits for `call` from now on. kCancel: its interrupt came first. For a
  // call that only a dying caller gives up, the next Look says so.
  [[nodiscard]] Decision Track(std::uint64_t unique, const Call& call);
  void Untrack(std::uint64_t unique);

  // The kernel's message. An interrupt of no tracked request is kept for a while: another worker
  // may be about to track it.
  [[nodiscard]] Decision Interrupt(std::uint64_t unique, TimePoint now);
  // Looks at the callers of interrupted requests again, if it is time.
  [[nodiscard]] std::vector<Decision> Look(TimePoint now);
  // When there is something to look at; max() for never.
  [[nodiscard]] TimePoint next_look() const { return next_look_; }

 private:
  struct Entry {
    Call call;
    bool cancelled = false;
  };
  Decision Decide(Entry& entry);

  static constexpr std::size_t kEarly = 64;

  IsDying is_dying_;
  std::unordered_map<std::uint64_t, Entry> tracked_;
  std::vector<std::uint64_t> interrupted_;
  std::array<std::uint64_t, kEarly> early_{};  // a ring of the last ones; the kernel uses no 0
  std::size_t next_early_ = 0;
  TimePoint next_look_ = TimePoint::max();
};

// Whether a thread is about to die of a signal, as its /proc/PID/status says (proc(5)): SIGKILL is
// pending, into which the kernel turns most signals that end a process, or one that it leaves as it
// is: because it dumps core, or because another signal was pending already.
bool SaysDying(std::string_view status);
// The same of a thread of this machine. A thread that cannot be looked at (of another PID
// namespace, hidden by hidepid) counts as alive.
bool IsDying(pid_t thread);

}  // namespace rdfs::fs::fuse
