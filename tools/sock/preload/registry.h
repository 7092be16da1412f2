// What this process knows of its descriptors: one word each, found without a lock.
//
// One table per process; a child of fork begins with a copy. Descriptors that it has no word for
// are none of this library's business. Any thread, also in a signal handler. The words are changed
// by whoever opens, duplicates and closes the descriptor, before the number can be used again.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdfs::sock {

// What a descriptor is.
class Word {
 public:
  enum class Kind : std::uint32_t { kNone, kSocket, kConnection, kEpoll, kHidden };
  constexpr Word() = default;
  constexpr Word(Kind kind, std::uint32_t index)
      : bits_(static_cast<std::uint32_t>(kind) << 24U | index) {}
  static constexpr Word FromBits(std::uint32_t bits) {
    Word word;
    word.bits_ = bits;
    return word;
  }
  [[nodiscard]] Kind kind() const { return static_cast<Kind>(bits_ >> 24U); }
  // Which connection or epoll instance.
  [[nodiscard]] std::uint32_t index() const { return bits_ & 0xffffffU; }
  [[nodiscard]] std::uint32_t bits() const { return bits_; }
  bool operator==(const Word&) const = default;

 private:
  std::uint32_t bits_ = 0;
};

// A TCP socket before connect. Once others have it as well, or code that this library does not see,
// what it becomes stays on TCP. Of a listener it says nothing.
inline constexpr Word kOwnSocket(Word::Kind::kSocket, 0);
inline constexpr Word kSharedSocket(Word::Kind::kSocket, 1);

class DescriptorTable {
 public:
  // More descriptors than this are not looked after.
  static constexpr int kMost = 1 << 20;

  [[nodiscard]] Word Get(int fd) const {
    const std::atomic<std::uint32_t>* const words = words_.load(std::memory_order_acquire);
    if (words == nullptr || fd < 0 || fd >= kMost) return {};
    return Word::FromBits(words[fd].load(std::memory_order_acquire));
  }
  // Returns what was there. Without memory for a table nothing is noted.
  Word Set(int fd, Word word);
  // Unless it is something else by now.
  void Change(int fd, Word from, Word to);
  void Hide(int fd) { Set(fd, Word(Word::Kind::kHidden, 0)); }
  void Forget(int fd) { Set(fd, Word()); }
  [[nodiscard]] bool IsHidden(int fd) const { return Get(fd).kind() == Word::Kind::kHidden; }
  // Above every descriptor with a word.
  [[nodiscard]] int end() const { return end_.load(std::memory_order_relaxed); }
  // Where descriptors of our own begin.
  [[nodiscard]] int hidden_base();

 private:
  std::atomic<std::uint32_t>* Words();

  std::atomic<std::atomic<std::uint32_t>*> words_{nullptr};
  std::atomic<int> end_{0};
  std::atomic<int> hidden_base_{0};
};

DescriptorTable& Registry();

// A mapping of zero bytes, used only as far as it is touched; null when there is none.
void* MapZeros(std::size_t size, bool shared);

}  // namespace rdfs::sock
