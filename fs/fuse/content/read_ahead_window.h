// ReadAheadWindow: how much of a file that is read from front to back is to be on its way from the
// server, so that the wire is never idle: twice what the wire carries in a round trip, as TCP BBR
// has it, and what client and server need to work side by side. Pure; one thread.
//
// The kernel's own read-ahead, which only root can raise, is 128 KiB: over a wire of 1 ms that is
// some 200 MB/s, however fast the wire is.
//
// Source: draft-ietf-ccwg-bbr, section 4 (rate samples, the bandwidth-delay product).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "transport/base/clock.h"

namespace rdfs::fs::fuse {

class ReadAheadWindow {
 public:
  static constexpr std::uint32_t kMost = 8U << 20U;
  // Before it is known how fast the wire is. On one host, with the kernel's 128 KiB, that much is
  // 1.5 times as fast as none over shared memory and 1.2 times over TCP; twice as much is no
  // faster, and leaves the processor's cache.
  static constexpr std::uint32_t kFirst = 1U << 20U;
  // What else goes over a slow wire waits behind that much.
  static constexpr std::uint32_t kLeast = 256U << 10U;

  // `fixed`: so many bytes, whatever the wire is like.
  ReadAheadWindow(std::chrono::nanoseconds round_trip, std::optional<std::uint32_t> fixed)
      : round_trip_(round_trip), fixed_(fixed) {}

  [[nodiscard]] std::uint32_t bytes() const {
    if (fixed_) return *fixed_;
    if (bytes_per_second_ == 0) return kFirst;
    const double in_a_round_trip =
        bytes_per_second_ * std::chrono::duration<double>(round_trip_ + kSideBySide).count();
    return static_cast<std::uint32_t>(
        std::clamp<double>(2 * in_a_round_trip, double{kLeast}, double{kMost}));
  }

  // What one read asks for: a few of them fill the window.
  [[nodiscard]] std::uint32_t PieceBytes(std::uint32_t most) const {
    std::uint32_t piece = kSmallestPiece;
    while (piece < most && piece * 8 <= bytes()) piece *= 2;
    return std::min(piece, most);
  }

  // What has come of the file so far: to be kept with each piece that is asked for.
  [[nodiscard]] std::uint64_t came() const { return came_; }
  // A piece that was asked for then, when so much had come.
  void Came(std::uint32_t bytes, TimePoint asked, std::uint64_t came_then, TimePoint now) {
    came_ += bytes;
    if (came_then > came_) return;  // of another one, before this one began
    const double seconds = std::chrono::duration<double>(now - asked).count();
    if (seconds <= 0) return;
    const double sample = static_cast<double>(came_ - came_then) / seconds;
    // A slow reader's samples say little about the wire: what was faster is forgotten slowly.
    bytes_per_second_ = std::max(sample, bytes_per_second_ - (bytes_per_second_ - sample) / 16);
  }

 private:
  static constexpr std::uint32_t kSmallestPiece = 128U << 10U;
  // What client, server and program have to do at the same time, on top of the wire.
  static constexpr std::chrono::microseconds kSideBySide{400};

  std::chrono::nanoseconds round_trip_;
  std::optional<std::uint32_t> fixed_;
  std::uint64_t came_ = 0;
  double bytes_per_second_ = 0;
};

}  // namespace rdfs::fs::fuse
