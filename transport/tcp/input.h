// InputBuffer: bytes received and not yet used. Frames are parsed where they lie, and messages are
// handed out there, so nothing moves until MakeRoom is called.
//
// Owned by one Connection, used by its thread. Of fixed size: the largest frame that is parsed as a
// whole fits, and larger payloads go around it.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include "transport/base/bytes.h"
#include "transport/tcp/frame.h"

namespace rdfs::transport::tcp {

class InputBuffer {
 public:
  // Twice what a frame may need, so that bytes are moved rarely. Pages never reached are never
  // backed.
  static constexpr std::size_t kBytes = 2 * (kMaxMessageBytes + 4096);

  InputBuffer() : bytes_(std::make_unique_for_overwrite<std::byte[]>(kBytes)) {}

  [[nodiscard]] ByteSpan unread() const { return {bytes_.get() + begin_, end_ - begin_}; }
  void Consume(std::size_t size) { begin_ += size; }
  // Where the next bytes go, and that they came.
  [[nodiscard]] MutableByteSpan room() { return {bytes_.get() + end_, kBytes - end_}; }
  void Received(std::size_t size) { end_ += size; }
  void Discard() { begin_ = end_ = 0; }
  // Makes sure that a frame of the largest size fits behind unread().begin. Invalidates unread().
  void MakeRoom() {
    if (begin_ == end_) {
      begin_ = end_ = 0;
    } else if (begin_ > kBytes / 2) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace rdfs::transport::tcp
