// Workers: the list of one mount's workers. It owns none of them; each outlives its place in it.
// One thread adds them, one after the other; any may look at those that are there already.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace rdfs::fs::fuse {

class Worker;

class Workers {
 public:
  static constexpr std::size_t kMost = 16;
  // One thread at a time.
  void Add(Worker& worker) {
    const std::size_t count = count_.load();
    list_.at(count) = &worker;
    count_.store(count + 1);
  }
  // Behind whoever adds.
  void Clear() { count_.store(0); }
  [[nodiscard]] std::size_t size() const { return count_.load(); }
  [[nodiscard]] Worker* const* begin() const { return list_.data(); }
  [[nodiscard]] Worker* const* end() const { return begin() + size(); }

 private:
  std::array<Worker*, kMost> list_{};
  std::atomic<std::size_t> count_{0};
};

}  // namespace rdfs::fs::fuse
