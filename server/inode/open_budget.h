// OpenBudget: how many descriptors the open files of all sessions may take, so that no client can
// take those that everybody needs.
//
// A session may have twice as many as are left for all: one alone gets two thirds of them, two get
// two fifths each, and there is always something left for the next. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace rdfs::server {

class OpenBudget {
 public:
  explicit OpenBudget(std::size_t total) : left_(total) {}

  // One more for a session that has `mine`. False: too many.
  [[nodiscard]] bool Take(std::size_t mine) {
    std::size_t left = left_.load();
    do {
      if (left == 0 || mine >= 2 * left) return false;
    } while (!left_.compare_exchange_weak(left, left - 1));
    return true;
  }
  void Return(std::size_t count) { left_.fetch_add(count); }
  [[nodiscard]] std::size_t left() const { return left_.load(); }

 private:
  std::atomic<std::size_t> left_;
};

}  // namespace rdfs::server
