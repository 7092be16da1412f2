// Source: what a stream is made of: standard input or FILE for rdsend; what a program hands over.
//
// A regular file is a source of ranges: Next says which piece comes next and Fill reads it, several
// at a time; holes are told, not read (lseek(2), SEEK_DATA). Everything else is a stream, which
// Next reads itself; what a relay passes on may be a file at its beginning (head.h). Next by one
// thread at a time, Fill by any; both block until there are bytes, and return kErrno EINTR soon
// after `stop` was set (stopping.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tools/pipe/io/handover.h"
#include "tools/pipe/io/head.h"
#include "tools/pipe/io/stopping.h"
#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::pipe {

struct Piece {
  enum class Kind : std::uint8_t { kRead, kToFill, kHole, kEnd, kNone };
  Kind kind = Kind::kEnd;
  std::uint64_t offset = 0;  // in the stream
  std::uint64_t length = 0;
};

// In a pipe of our own, before so many bytes; or alone, for a hole of so many.
using FrameHead = std::array<std::byte, 8>;
FrameHead HeadOfFrame(std::uint64_t length, bool hole);

class Source {
 public:
  // `path` empty: standard input. Blocks while a FIFO has no writer. Errors name the file.
  static Result<std::unique_ptr<Source>> Open(const std::string& path, const StopFlag& stop);

  // What comes out of a pipe of our own, behind `head` (null: from its beginning on), in frames:
  // bytes, or a hole (HeadOfFrame). `length`, set
  // before the pipe is closed: of all of it; a stream of another length, and one that ends while it
  // is one of these two, has broken off. kPaused: somebody else may go on with it. `kept`, if any,
  // opens a file that has all that ever went into the pipe, and the head (see Again).
  static constexpr std::uint64_t kBrokenOff = UINT64_MAX, kPaused = UINT64_MAX - 1;
  static std::unique_ptr<Source> OfPipe(Fd fd, std::shared_ptr<const Head> head,
                                        const std::atomic<std::uint64_t>& length,
                                        const StopFlag& stop, std::function<Fd()> kept = {});

  // What a program writes. Only for who unblocks it.
  static std::unique_ptr<Source> OfProgram(std::shared_ptr<Handover> program, const StopFlag& stop);
  [[nodiscard]] bool of_program() const { return program_ != nullptr; }

  // How much will come, where that is known.
  [[nodiscard]] std::optional<std::uint64_t> size() const {
    return ranged_ ? std::optional(size_) : std::nullopt;
  }
  // It can begin elsewhere than at its beginning: anywhere in the first fixed() bytes. Those are
  // nothing while they are not known, and fixed_told() becomes readable then.
  [[nodiscard]] bool seekable() const { return ranged_ || head_ != nullptr; }
  [[nodiscard]] std::optional<std::uint64_t> fixed() const;
  [[nodiscard]] int fixed_told() const { return head_ != nullptr ? head_->told() : -1; }

  // Of a seekable one, before the first Next; within fixed().
  void StartAt(std::uint64_t offset);
  // Back to the beginning, for another receiver; nobody uses it meanwhile. False where what has
  // been read is in no file.
  bool Again();
  // Why a stream ends that was interrupted: `stopped`, or that it has broken off before it got
  // here.
  [[nodiscard]] Status WhyInterrupted(const Status& stopped) const;
  // From now on Next waits for no other process: where nothing is there it says kNone, and fd()
  // becomes readable in time. False where that cannot be had; then nothing has changed.
  bool Unblock();
  [[nodiscard]] int fd() const { return fd_; }
  // The next piece, at most as long as `room`. kRead: it is in `room`. kToFill: see Fill.
  Result<Piece> Next(MutableByteSpan room);
  // All of a kToFill piece. Errors: what read(2) says, and kErrno when the file has become shorter.
  Status Fill(std::uint64_t offset, MutableByteSpan room) const;

 private:
  Source(Fd fd, int number, std::string name, const StopFlag& stop)
      : owned_(std::move(fd)), fd_(number), name_(std::move(name)), stop_(stop) {}
  void LookAtKind();
  [[nodiscard]] int file() const { return head_ != nullptr ? head_->file() : fd_; }
  Result<Piece> NextRange(std::size_t room);
  Result<Piece> ReadStream(MutableByteSpan room);
  // At least one byte of `room`; of a pipe of our own only if a frame of bytes is there. 0: the
  // end; nullopt: nothing is there yet, or a hole.
  Result<std::optional<std::size_t>> ReadSome(MutableByteSpan room);
  // What is there beyond the size that the file had at first, if anything.
  Result<Piece> ReadTail(MutableByteSpan room);
  // nullopt: nothing is there yet.
  Result<std::optional<std::size_t>> ReadOnce(MutableByteSpan room) const;
  Result<std::size_t> ReadAt(std::uint64_t offset, MutableByteSpan room) const;
  [[nodiscard]] bool MoreIsThere() const;
  // That the file is still as long as it was: what is missing would look like a hole.
  [[nodiscard]] Status CheckLength() const;
  [[nodiscard]] Status BecameShorter() const;
  [[nodiscard]] Status BrokenOff() const;
  [[nodiscard]] Status Failure(int error) const;

  Fd owned_;
  int fd_;
  std::string name_;
  const StopFlag& stop_;
  const std::atomic<std::uint64_t>* length_ = nullptr;  // of a pipe of our own
  std::function<Fd()> kept_;                            // of the same
  std::shared_ptr<const Head> head_;                    // of the same; null for none
  std::shared_ptr<Handover> program_;                   // null unless it is one that writes
  bool ranged_ = false;
  std::uint64_t base_ = 0;  // where the stream begins in the file
  std::uint64_t size_ = 0;  // of what is in the file: the stream, as it was at first; its head
  std::uint64_t at_ = 0;
  bool dense_ = false;          // of a file: it has no holes
  std::uint64_t data_end_ = 0;  // bytes, not a hole, up to here
  bool waits_ = true;           // in Next, for whoever writes
  bool ended_ = false;          // of a stream: a terminal would have to say so twice
  // Of a pipe of our own: the head that is being read, and what is left of its frame.
  FrameHead frame_{};
  std::size_t frame_have_ = 0;
  std::uint64_t frame_bytes_ = 0, hole_ = 0;
};

}  // namespace rdfs::pipe
