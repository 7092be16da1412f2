#include "tools/sock/preload/registry.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace rdfs::sock {
namespace {

constinit DescriptorTable g_table;

}  // namespace

DescriptorTable& Registry() { return g_table; }

void* MapZeros(std::size_t size, bool shared) {
  const int saved = errno;
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE,
           MAP_ANONYMOUS | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
  errno = saved;
  return memory == MAP_FAILED ? nullptr : memory;
}

std::atomic<std::uint32_t>* DescriptorTable::Words() {
  std::atomic<std::uint32_t>* words = words_.load(std::memory_order_acquire);
  if (words != nullptr) return words;
  constexpr std::size_t kBytes = kMost * sizeof(*words);
  // Zero bytes are words of nothing.
  auto* const made = static_cast<std::atomic<std::uint32_t>*>(MapZeros(kBytes, false));
  if (made == nullptr) return nullptr;
  if (words_.compare_exchange_strong(words, made)) return made;
  munmap(made, kBytes);
  return words;
}

Word DescriptorTable::Set(int fd, Word word) {
  if (fd < 0 || fd >= kMost) return {};
  if (word == Word() && Get(fd) == Word()) return {};
  std::atomic<std::uint32_t>* const words = Words();
  if (words == nullptr) return {};
  for (int end = end_; word != Word() && end <= fd && !end_.compare_exchange_weak(end, fd + 1);) {
  }
  return Word::FromBits(words[fd].exchange(word.bits()));
}

void DescriptorTable::Change(int fd, Word from, Word to) {
  if (Get(fd) != from) return;
  std::uint32_t bits = from.bits();
  words_.load(std::memory_order_acquire)[fd].compare_exchange_strong(bits, to.bits());
}

// High enough to be out of a program's way, low enough that the kernel's own table stays small.
int DescriptorTable::hidden_base() {
  constexpr int kHighest = 4096;
  int base = hidden_base_.load(std::memory_order_relaxed);
  if (base != 0) return base;
  rlimit limit{};
  base = kHighest;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    base = static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 4 * 3, kHighest));
  }
  hidden_base_.store(base, std::memory_order_relaxed);
  return base;
}

}  // namespace rdfs::sock
