// FixedQueue: a first-in first-out queue of at most N, which allocates nothing after it is made.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

namespace rdfs::transport::tcp {

template <typename T, std::size_t N>
class FixedQueue {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& front() { return items_[first_]; }
  // Only while size() < N.
  void push(T item) {
    items_[(first_ + size_) % N] = std::move(item);
    ++size_;
  }
  // Only while not empty.
  T pop() {
    T item = std::move(items_[first_]);
    first_ = (first_ + 1) % N;
    --size_;
    return item;
  }

 private:
  std::array<T, N> items_{};
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace rdfs::transport::tcp
