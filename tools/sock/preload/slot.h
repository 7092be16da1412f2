// Slot: what all processes that hold one connection share of it. It is made when the connection is,
// in memory that children of fork have too, so that an upgrade before or after a fork means the
// same to all of them; a connection that came in through exec or a message has none.
//
// Slots are counted by holders, processes and not descriptors: a process joins in fork and leaves
// when it closes its last descriptor. One that was killed is found out by its pid.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/sock/end.h"
#include "transport/base/clock.h"

namespace rdfs::sock {

struct Slot {
  static constexpr std::size_t kMostHolders = 8;

  std::atomic<std::uint32_t> next{0};  // of the free ones
  std::atomic<bool> live{false};
  std::array<std::atomic<pid_t>, kMostHolders> holders{};
  std::atomic<std::uint32_t> forks{0};   // children that have not joined yet
  std::atomic<std::uint32_t> handed{0};  // programs that were given it by exec, and have not come
  // More processes hold it than there is room for, or some do that cannot see the others.
  std::atomic<bool> crowded{false};
  std::atomic<bool> stays{false};  // on TCP for good
  bool opened = false;             // this end called connect
  // Of the open file description, once upgraded.
  std::atomic<bool> nonblocking{false};
  std::atomic<bool> tells_unread{false};  // TCP_INQ
  std::atomic<std::int64_t> receive_timeout_ns{0}, send_timeout_ns{0};
  alignas(EndMemory) std::array<std::byte, sizeof(EndMemory)> end{};

  bool Join(pid_t pid);
  // One of the forks gives no holder. Whether nobody holds it then, as for Leave.
  bool DropFork();
  // Whether `pid` was the last.
  bool Leave(pid_t pid);
  // Whether no other process can touch the connection.
  bool OnlyHolderIs(pid_t pid);
};

// All slots of a family of processes: one that exec made and its children of fork. Any thread.
class SlotArena {
 public:
  static constexpr std::uint32_t kMost = 1U << 16U;

  // So long after a look in vain there is no other one for what the dead have left.
  static constexpr std::chrono::seconds kBetweenLooks{1};

  // An index; kMost when there is none left.
  std::uint32_t Take(TimePoint now = BootClock::now());
  void Give(std::uint32_t index);
  // Of the slots' memory, to be handed to the next program of this process; -1 when there is none.
  [[nodiscard]] int fd() const { return fd_; }
  // Makes what a former program of this process used its own; once, before any other call.
  bool Adopt(int fd);
  // Some of the family's processes cannot see the others: who is gone nobody can tell any more.
  void SetApart();
  Slot& operator[](std::uint32_t index) { return slots_.load(std::memory_order_acquire)[index]; }

 private:
  Slot* Slots();
  void Reclaim(TimePoint now);

  struct Heads;
  static Heads& HeadsOf(Slot* slots);
  std::atomic<Slot*> slots_{nullptr};
  std::atomic<int> fd_{-1};
};

SlotArena& Slots();

}  // namespace rdfs::sock
