// SharedMemory: a sealed memory file (memfd_create(2)) mapped into this process.
//
// All memory that a peer may reach is one of these, so that every transport can carry it: verbs
// registers the mapping, shm hands the descriptor over, tcp copies from it. The size is fixed for
// life by seals (fcntl(2), F_ADD_SEALS), so that no holder of the descriptor can make a mapping
// fault. Owned by shared_ptr, because registrations of several domains refer to it. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs {

class SharedMemory {
 public:
  // kReadOnlyForPeers adds F_SEAL_FUTURE_WRITE after our own mapping is made: whoever receives the
  // descriptor, however it is reopened, can map it for reading only.
  enum class Peers { kMayWrite, kReadOnly };

  // `size` is rounded up to whole pages, zero-filled. Huge pages are asked for by madvise(2) where
  // the kernel has them for shared memory; nothing fails without. Errors: kInvalidArgument for a
  // size of 0, kErrno, kResourceExhausted.
  static Result<std::shared_ptr<SharedMemory>> Create(const std::string& name, std::size_t size,
                                                      Peers peers);
  // Maps a descriptor that a peer sent, and closes it. Refuses one whose size is not exactly `size`
  // or that lacks the seals SHRINK, GROW and SEAL (and FUTURE_WRITE for kReadOnly, mapped to read).
  static Result<std::shared_ptr<SharedMemory>> Adopt(Fd fd, std::size_t size, Peers peers);

  // Maps [offset, offset + size) of such memory once more, to be offered apart from the rest. It
  // has no descriptor, so it cannot be handed over. `fd`: sealed, and only read here. Errors:
  // kInvalidArgument for a place that is not of whole pages, kErrno.
  static Result<std::shared_ptr<SharedMemory>> Part(int fd, std::size_t offset, std::size_t size);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // The mapping; of an adopted kReadOnly memory it must not be written to (the page is read-only).
  [[nodiscard]] MutableByteSpan bytes() const { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] Peers peers() const { return peers_; }

 private:
  SharedMemory(Fd fd, std::byte* data, std::size_t size, Peers peers)
      : fd_(std::move(fd)), data_(data), size_(size), peers_(peers) {}

  Fd fd_;
  std::byte* data_;
  std::size_t size_;
  Peers peers_;
};

}  // namespace rdfs
