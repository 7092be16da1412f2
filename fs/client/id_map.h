// IdMap: from 64-bit numbers (sequences, tickets) to small values, without an allocation for each.
//
// Open addressing with linear probing; erasing shifts back (Knuth, TAOCP 3, 6.4, algorithm R), so
// that there are no tombstones to sweep. Grows when more than half full, never shrinks. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rdfs::fs::client {

template <typename T>
class IdMap {
 public:
  explicit IdMap(std::size_t capacity = 64) : cells_(capacity) {}  // a power of two

  [[nodiscard]] std::size_t size() const { return size_; }
  // `id` must not be there yet.
  void Insert(std::uint64_t id, T value) {
    if (2 * (size_ + 1) > cells_.size()) Grow();
    std::size_t at = HomeOf(id);
    while (cells_[at].used) at = NextOf(at);
    cells_[at] = {.used = true, .id = id, .value = std::move(value)};
    ++size_;
  }
  [[nodiscard]] T* Find(std::uint64_t id) {
    for (std::size_t at = HomeOf(id); cells_[at].used; at = NextOf(at)) {
      if (cells_[at].id == id) return &cells_[at].value;
    }
    return nullptr;
  }
  std::optional<T> Take(std::uint64_t id) {
    for (std::size_t at = HomeOf(id); cells_[at].used; at = NextOf(at)) {
      if (cells_[at].id != id) continue;
      std::optional<T> value(std::move(cells_[at].value));
      EraseAt(at);
      return value;
    }
    return std::nullopt;
  }
  template <typename F>
  void ForEach(F&& visit) {
    for (Cell& cell : cells_) {
      if (cell.used) visit(cell.id, cell.value);
    }
  }
  void Clear() {
    for (Cell& cell : cells_) cell = {};
    size_ = 0;
  }

 private:
  struct Cell {
    bool used = false;
    std::uint64_t id = 0;
    T value{};
  };

  [[nodiscard]] std::size_t HomeOf(std::uint64_t id) const {
    // Ids are mostly consecutive: they hardly collide as they are; the fold is for those that count
    // in their high bits.
    return static_cast<std::size_t>(id ^ (id >> 32U)) & (cells_.size() - 1);
  }
  [[nodiscard]] std::size_t NextOf(std::size_t at) const { return (at + 1) & (cells_.size() - 1); }
  void EraseAt(std::size_t hole) {
    for (std::size_t at = NextOf(hole); cells_[at].used; at = NextOf(at)) {
      // A cell may move into the hole unless its home lies behind the hole.
      const std::size_t from_home = (at - HomeOf(cells_[at].id)) & (cells_.size() - 1);
      const std::size_t from_hole = (at - hole) & (cells_.size() - 1);
      if (from_home < from_hole) continue;
      cells_[hole] = std::move(cells_[at]);
      hole = at;
    }
    cells_[hole] = {};
    --size_;
  }
  void Grow() {
    std::vector<Cell> old = std::exchange(cells_, std::vector<Cell>(cells_.size() * 2));
    size_ = 0;
    for (Cell& cell : old) {
      if (cell.used) Insert(cell.id, std::move(cell.value));
    }
  }

  std::vector<Cell> cells_;
  std::size_t size_ = 0;
};

}  // namespace rdfs::fs::client
