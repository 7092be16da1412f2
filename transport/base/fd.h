// Fd: owns one file descriptor. Movable, not copyable; any thread, one at a time.
#pragma once

#include <unistd.h>

#include <utility>

namespace rdfs {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { Reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up: the caller closes it.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  // Closes what is held and takes `fd`. errno is left alone; whoever has written asks before (dup).
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Standard descriptors that were closed stay of no use (EBADF), and no file of ours gets their
// numbers: it would be read as input, or have our messages in it. Before anything is opened.
void HoldStandardDescriptors();

}  // namespace rdfs
