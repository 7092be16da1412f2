#include "tools/sock/preload/slot.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "tools/sock/preload/cancel.h"
#include "transport/base/fd.h"
#include "transport/base/set_size.h"

namespace rdfs::sock {
namespace {

constinit SlotArena g_arena;

bool IsDead(pid_t pid) {
  const int saved = errno;
  const bool dead = kill(pid, 0) != 0 && errno == ESRCH;
  errno = saved;
  return dead;
}

}  // namespace

SlotArena& Slots() { return g_arena; }

bool Slot::Join(pid_t pid) {
  for (std::atomic<pid_t>& holder : holders) {
    pid_t none = 0;
    if (holder.compare_exchange_strong(none, pid)) return true;
  }
  for (std::atomic<pid_t>& holder : holders) {
    pid_t other = holder;
    if ((other == 0 || IsDead(other)) && holder.compare_exchange_strong(other, pid)) return true;
  }
  crowded = true;
  return false;
}

// This and Leave change first and then look, so that of two at once one at least sees both.
bool Slot::DropFork() {
  --forks;
  return OnlyHolderIs(0);
}

bool Slot::Leave(pid_t pid) {
  for (std::atomic<pid_t>& holder : holders) {
    pid_t self = pid;
    holder.compare_exchange_strong(self, 0);
  }
  return OnlyHolderIs(0);
}

// A child joins before it is no fork any more, and is looked for in the other order.
bool Slot::OnlyHolderIs(pid_t pid) {
  if (crowded || forks != 0) return false;
  for (std::atomic<pid_t>& holder : holders) {
    const pid_t other = holder;
    if (other != 0 && other != pid && !IsDead(other)) return false;
  }
  return true;
}

// Before the slots: how many have ever been used, and the free ones among them. The upper half of
// the head counts takes and gives, so that a head seen twice is the same one.
struct SlotArena::Heads {
  alignas(kCacheLine) std::atomic<std::uint64_t> free;
  std::atomic<std::uint32_t> used;
  std::atomic<bool> apart;
  std::atomic<TimePoint> looked;  // at all of them, in vain
};

SlotArena::Heads& SlotArena::HeadsOf(Slot* slots) {
  return *std::launder(reinterpret_cast<Heads*>(slots + kMost));
}

namespace {

// One more for the heads.
constexpr std::size_t kArenaBytes = (SlotArena::kMost + 1) * sizeof(Slot);

Slot* MapSlots(int fd) {
  void* const memory =
      mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Slot*>(memory);
}

}  // namespace

Slot* SlotArena::Slots() {
  Slot* slots = slots_.load(std::memory_order_acquire);
  if (slots != nullptr) return slots;
  const int saved = errno;
  const NotCancelled not_cancelled;  // SetSize looks for a signal, where a thread may end
  Fd fd(memfd_create("rdsock-slots", MFD_CLOEXEC));
  Slot* made = nullptr;
  if (fd.valid() && SetSize(fd.get(), kArenaBytes)) made = MapSlots(fd.get());
  errno = saved;
  if (made == nullptr) return nullptr;
  static_assert(sizeof(Heads) <= sizeof(Slot));
  if (slots_.compare_exchange_strong(slots, made)) {
    fd_ = fd.Release();
    return made;
  }
  munmap(made, kArenaBytes);
  return slots;
}

bool SlotArena::Adopt(int fd) {
  struct stat status {};
  if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &status) != 0 || status.st_uid != geteuid() ||
      status.st_size != static_cast<off_t>(kArenaBytes)) {
    return false;  // nobody's slots, or another version's
  }
  Slot* const slots = MapSlots(fd);
  if (slots == nullptr) return false;
  slots_ = slots;
  fd_ = fd;
  return true;
}

// The heads stand in the place of slot kMost.
std::uint32_t SlotArena::Take(TimePoint now) {
  Slot* const slots = Slots();
  if (slots == nullptr) return kMost;
  Heads& heads = HeadsOf(slots);
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::uint64_t head = heads.free;
    while ((head & 0xffffffffU) != 0) {
      const auto index = static_cast<std::uint32_t>(head & 0xffffffffU) - 1;
      if (index >= kMost) return kMost;  // written by a child that has given up rights since
      const std::uint64_t after =
          ((head >> 32U) + 1) << 32U | slots[index].next.load(std::memory_order_relaxed);
      if (!heads.free.compare_exchange_weak(head, after)) continue;
      new (slots + index) Slot;
      slots[index].live = true;
      return index;
    }
    const std::uint32_t fresh = heads.used < kMost ? heads.used++ : kMost;
    if (fresh < kMost) {
      new (slots + fresh) Slot;
      slots[fresh].live = true;
      return fresh;
    }
    if (attempt == 0) Reclaim(now);
  }
  return kMost;
}

void SlotArena::Give(std::uint32_t index) {
  Slot* const slots = slots_.load(std::memory_order_acquire);
  // Two processes may both have seen the other go.
  if (!slots[index].live.exchange(false)) return;
  Heads& heads = HeadsOf(slots);
  std::uint64_t head = heads.free;
  std::uint64_t after = 0;
  do {
    slots[index].next = static_cast<std::uint32_t>(head & 0xffffffffU);
    after = ((head >> 32U) + 1) << 32U | (index + 1);
  } while (!heads.free.compare_exchange_weak(head, after));
}

void SlotArena::SetApart() {
  if (Slot* const slots = slots_.load(std::memory_order_acquire)) HeadsOf(slots).apart = true;
}

// Takes back what processes held that are gone without a close: a system call for each slot, while
// a program has a connection to accept.
void SlotArena::Reclaim(TimePoint now) {
  Slot* const slots = slots_.load(std::memory_order_acquire);
  Heads& heads = HeadsOf(slots);
  if (heads.apart) return;
  const TimePoint looked = heads.looked;
  // A time that is to come is that of another time namespace.
  if (now >= looked && now - looked < kBetweenLooks) return;
  bool found = false;
  for (std::uint32_t i = 0; i < kMost; ++i) {
    if (!slots[i].live || !slots[i].OnlyHolderIs(0)) continue;
    Give(i);
    found = true;
  }
  if (!found) heads.looked = now;
}

}  // namespace rdfs::sock
