#include "fs/library/transfers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "fs/library/operations.h"

namespace rdfs::fs::library {
namespace {

// Large enough that what a piece costs is small beside its bytes, small enough that a few overlap.
constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr std::size_t kPiecesUnderWay = 4;

struct Piece {
  OperationPtr operation;
  Memory memory;
  std::size_t begin = 0, length = 0;  // in the program's memory
};

// What moves bytes between the program's memory and a piece.
using Copy = void (*)(MutableByteSpan program, MutableByteSpan piece);

struct Direction {
  void (*start)(rdfs_queue&, const OperationPtr&, rdfs_file&, const Transfer&);
  Copy before, after;  // null: nothing to copy then
};

void CopyIn(MutableByteSpan program, MutableByteSpan piece) {
  std::memcpy(piece.data(), program.data(), program.size());
}
void CopyOut(MutableByteSpan program, MutableByteSpan piece) {
  std::memcpy(program.data(), piece.data(), program.size());
}
constexpr Direction kIn{.start = StartRead, .before = nullptr, .after = CopyOut};
constexpr Direction kOut{.start = StartWrite, .before = CopyIn, .after = nullptr};

class Transfers {
 public:
  Transfers(rdfs_queue& queue, rdfs_file& file, const std::string& what, const Direction& direction)
      : queue_(queue), file_(file), what_(what), direction_(direction) {
    // What can always be had in the end.
    if (queue.LargestLoan() != 0) largest_ = std::min(largest_, queue.LargestLoan());
  }

  ssize_t Move(MutableByteSpan program, std::uint64_t offset) {
    // Only the server knows where the end is: one append after the other.
    const bool append = (file_.open->flags() & kOpenAppend) != 0;
    const std::size_t most = append && direction_.before != nullptr ? 1 : kPiecesUnderWay;
    std::size_t begun = 0;
    do {
      while (!ended_ && begun < program.size() && pieces_.size() < most) {
        const std::size_t length = std::min(largest_, program.size() - begun);
        const int refused = Begin(program.subspan(begun, length), begun, offset + begun);
        if (refused != 0) {
          ended_ = pieces_.empty();
          if (ended_) error_ = queue_.Refuse(what_, refused);
          break;
        }
        begun += length;
      }
      if (!pieces_.empty()) Take(program);
    } while (!pieces_.empty() || (!ended_ && begun < program.size()));
    return moved_ > 0 || error_ == 0 ? static_cast<ssize_t>(moved_) : error_;
  }

 private:
  // 0, or why not. Who has nothing under way waits for memory that others were lent.
  int Begin(MutableByteSpan program, std::size_t begin, std::uint64_t offset) {
    Memory memory = queue_.Lend(program.size(), pieces_.empty());
    if (memory == nullptr) return ENOBUFS;
    if (direction_.before != nullptr) direction_.before(program, memory->bytes());
    const Transfer transfer{.memory = memory, .at = 0, .length = program.size(), .offset = offset};
    OperationPtr operation = queue_.BeginToWait(what_, [&](const OperationPtr& under_way) {
      direction_.start(queue_, under_way, file_, transfer);
    });
    if (operation == nullptr) {
      queue_.GiveBack(memory);
      return EAGAIN;
    }
    pieces_.push_back({std::move(operation), std::move(memory), begin, program.size()});
    return 0;
  }

  // The oldest one. What comes behind a short one, or an error, does not count.
  void Take(MutableByteSpan program) {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    queue_.WaitFor(*piece.operation);
    const auto count = static_cast<std::size_t>(piece.operation->count);
    if (!ended_) {
      if (!piece.operation->status.ok()) error_ = queue_.Report(*piece.operation);
      if (direction_.after != nullptr) {
        direction_.after(program.subspan(piece.begin, count), piece.memory->bytes());
      }
      moved_ += count;
      ended_ = error_ != 0 || count < piece.length;
    }
    queue_.GiveBack(piece.memory);
  }

  rdfs_queue& queue_;
  rdfs_file& file_;
  const std::string& what_;
  const Direction& direction_;
  std::size_t largest_ = kPieceBytes;
  std::deque<Piece> pieces_;
  std::size_t moved_ = 0;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace

ssize_t ReadInto(rdfs_queue& queue, rdfs_file& file, const std::string& what, MutableByteSpan to,
                 std::uint64_t offset) {
  return Transfers(queue, file, what, kIn).Move(to, offset);
}

ssize_t WriteFrom(rdfs_queue& queue, rdfs_file& file, const std::string& what, ByteSpan from,
                  std::uint64_t offset) {
  // Nothing is written there: CopyIn only reads.
  const MutableByteSpan program(const_cast<std::byte*>(from.data()), from.size());
  return Transfers(queue, file, what, kOut).Move(program, offset);
}

}  // namespace rdfs::fs::library
