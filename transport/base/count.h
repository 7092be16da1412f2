// Count: a number that one thread writes and any reads. Adding to it is a load and a store of
// memory that nobody else writes.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdfs {

class Count {
 public:
  void Add(std::uint64_t n = 1) {
    // One writer: no read-modify-write needed.
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void Raise(std::uint64_t to) {
    if (to > value_.load(std::memory_order_relaxed)) value_.store(to, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace rdfs
