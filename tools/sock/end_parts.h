// What both halves of an End (end.h) are made with: end_send.cc and end_receive.cc alone include
// it.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "tools/sock/end.h"

namespace rdfs::sock {

// Holds a half's lock; notes in `repair` that the holder before died with it. Does not hold it when
// this very thread does, of which a signal handler is the only way.
class Hold {
 public:
  Hold(pthread_mutex_t& lock, bool& repair) : lock_(lock) {
    const int result = pthread_mutex_lock(&lock_);
    held_ = result != EDEADLK;
    if (result != EOWNERDEAD) return;
    repair = true;
    pthread_mutex_consistent(&lock_);
  }
  ~Hold() {
    if (held_) pthread_mutex_unlock(&lock_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  pthread_mutex_t& lock_;
  bool held_;
};

// What is left of a call's pieces of memory, and how many bytes have gone.
class End::Cursor {
 public:
  explicit Cursor(Buffers buffers) : buffers_(buffers) {
    for (const iovec& buffer : buffers) left_ += buffer.iov_len;
    Skip();
  }
  [[nodiscard]] std::size_t left() const { return left_; }
  [[nodiscard]] std::size_t gone() const { return gone_; }
  // The piece that is next.
  [[nodiscard]] MutableByteSpan piece() const {
    if (buffers_.empty()) return {};
    const iovec& buffer = buffers_.front();
    return MutableByteSpan(static_cast<std::byte*>(buffer.iov_base), buffer.iov_len).subspan(at_);
  }
  // The next pieces with `most` bytes at most, as many as fit into `out`. Returns how many.
  std::size_t Pieces(std::span<iovec> out, std::size_t most) const {
    std::size_t count = 0;
    std::size_t at = at_;
    for (const iovec& buffer : buffers_) {
      if (count == out.size() || most == 0) break;
      const std::size_t length = std::min(buffer.iov_len - at, most);
      out[count++] = {static_cast<std::byte*>(buffer.iov_base) + at, length};
      most -= length;
      at = 0;
    }
    return count;
  }
  void Advance(std::size_t bytes) {
    gone_ += bytes;
    left_ -= bytes;
    while (bytes > 0) {
      const std::size_t here = std::min(bytes, buffers_.front().iov_len - at_);
      at_ += here;
      bytes -= here;
      Skip();
    }
  }

 private:
  void Skip() {
    while (!buffers_.empty() && at_ == buffers_.front().iov_len) {
      buffers_ = buffers_.subspan(1);
      at_ = 0;
    }
  }
  Buffers buffers_;
  std::size_t at_ = 0;  // in the first of them
  std::size_t left_ = 0;
  std::size_t gone_ = 0;
};

// With something in hand any signal ends a call, as in the kernel, which can restart only what has
// done nothing (sk_stream_wait_memory(), tcp_recvmsg()).
inline Patience With(std::size_t in_hand, const Patience& patience) {
  Patience now = patience;
  if (in_hand > 0) now.interrupts = [] { return true; };
  return now;
}

// Sleeps until one of `fds` says something, or for as long as `most`. False, with errno, when the
// call is over instead.
inline bool Sleep(std::span<pollfd> fds, const Patience& patience,
                  std::chrono::nanoseconds most = std::chrono::nanoseconds::max()) {
  const bool endless = patience.deadline == CallDeadline::max();
  const CallDeadline now = endless ? CallDeadline() : CallClock::now();
  if (now >= patience.deadline) {
    errno = EAGAIN;
    return false;
  }
  const std::chrono::nanoseconds left = std::min(most, patience.deadline - now);
  const int told = poll(fds.data(), fds.size(), PollTimeoutMs(left));
  if (told > 0) return true;
  if (told == 0) {
    errno = EAGAIN;
    return endless || CallClock::now() < patience.deadline;
  }
  for (pollfd& fd : fds) fd.revents = 0;
  return errno == EINTR && (patience.interrupts == nullptr || !patience.interrupts());
}

}  // namespace rdfs::sock
