// PageWrites: keeps reads into the kernel's pages in order with the writes of programs to the same
// pages.
//
// A write(2) that is no direct one has put its bytes into the kernel's pages before the kernel asks
// for it to be carried out. Where such a page goes meanwhile (somebody opens the file anew, a
// recall comes), the next read of it is a request of its own; answered with what was there before
// the write it would leave old bytes in a page for as long as the page stays. So
//
//   - a read is not asked for while a write to a page of its is under way (UnderWay), and
//   - what was read while one began is not told (ReadEnds), but asked for again.
//
// Any thread; one short lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

class PageWrites {
 public:
  using Number = std::uint64_t;  // never 0; counts up

  // The request `unique` writes `length` bytes at `offset`; again without effect while it is known.
  void Begin(std::uint64_t unique, NodeId node, std::uint64_t offset, std::uint64_t length);
  // The server has it, or it has failed; nothing where it is not known.
  void End(std::uint64_t unique);

  // The last write to a page of these bytes that is under way; 0: there is none.
  [[nodiscard]] Number UnderWay(NodeId node, std::uint64_t offset, std::uint64_t length) const;
  // Whether that one has come to its end.
  [[nodiscard]] bool IsOver(Number number) const;

  // A read is about to be asked for, or answered from what is here: what ReadEnds is given, once.
  Number ReadBegins();
  // Whether no write to a page of these bytes has begun since.
  bool ReadEnds(Number read, NodeId node, std::uint64_t offset, std::uint64_t length);

  // Answered ones that are remembered for the sake of reads: of a read that takes longer nobody can
  // say, and it is asked for again.
  static constexpr std::size_t kMost = 4096;
  [[nodiscard]] std::size_t remembered() const {
    const std::lock_guard lock(mutex_);
    return pieces_.size();
  }

 private:
  struct Piece {
    NodeId node = 0;
    std::uint64_t first = 0, last = 0;  // pages
    bool over = false;
    [[nodiscard]] bool Meets(const Piece& other) const {
      return node == other.node && first <= other.last && other.first <= last;
    }
  };
  static Piece PagesOf(NodeId node, std::uint64_t offset, std::uint64_t length);
  // Those that no read has to know of any more, and the oldest where there are too many.
  void Forget();

  mutable std::mutex mutex_;
  std::map<Number, Piece> pieces_;
  std::unordered_map<std::uint64_t, Number> under_way_;  // by request
  std::multiset<Number> reads_;                          // by the number that was next
  Number forgotten_ = 0;                                 // up to here, though a read may want it
  Number next_ = 1;
};

}  // namespace rdfs::fs::fuse
