// What one client may take of a server that others need as well, and what is said when it wants
// more.
//
// ClientLimits: from the configuration file's [limits], constant for a server's life.
// UnreadAnswers: counts what nobody is refused for, but not heard. Refusals: counts and warns
// (log.h writes no more than a few warnings a second); any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "fs/protocol.h"
#include "transport/base/snapshot.h"
#include "transport/transport.h"

namespace rdfs::server {

// Of one mount, unless it says otherwise. The defaults are more than rdfs itself ever asks
// for: they are for clients that do not behave.
struct ClientLimits {
  std::size_t mounts = 256;  // from one address, or of one user of this host
  std::size_t lanes = 64;
  std::size_t open_files = 16384;
  std::size_t locks = 16384;
  std::size_t pinned_bytes = 256 << 20;  // for what it writes one-sided
  std::size_t requests = 16384;          // that are not answered yet, on all its lanes
  std::size_t wrong_keys = 8;            // from one address, before answers are held back
  // Bytes of requests that wait with their message, for other clients or a disk. Not in the file:
  // eight lanes full of writes inside messages, more than an honest client comes to. What it was
  // told is written already must not be refused for this.
  std::size_t request_bytes = 8 * fs::kMaxRequestsInFlight * fs::kMaxInlineDataBytes;
  // Bytes of answers that it has not taken, on all its lanes: with more, a lane of it that has some
  // is heard no more until it has taken them. Not in the file, either.
  std::size_t unread_bytes = 8 * transport::Connection::kBacklogLimit;
  // Of all mounts, the same: with more, each may have a small part of what it may have else.
  std::size_t unread_bytes_of_all = 16 * unread_bytes;
};

// Bytes of answers that are kept for peers which have not taken them: of one mount, which count in
// `whole` as well. Any thread.
class UnreadAnswers {
 public:
  static constexpr std::size_t kSmallPart = 32;

  explicit UnreadAnswers(std::size_t most, std::shared_ptr<UnreadAnswers> whole = nullptr)
      : most_(most), whole_(std::move(whole)) {}
  // What one lane has waiting was `before`.
  void Change(std::size_t before, std::size_t now) {
    bytes_.fetch_add(now - before, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Change(before, now);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Who has little pays for nobody else.
  [[nodiscard]] bool TooMany() const {
    const std::size_t own = bytes();
    return own > most_ || (own > most_ / kSmallPart && whole_ != nullptr && whole_->TooMany());
  }

 private:
  const std::size_t most_;
  std::atomic<std::size_t> bytes_{0};
  const std::shared_ptr<UnreadAnswers> whole_;
};

class Refusals {
 public:
  enum class What : std::uint8_t {
    kMounts,        // mount: EBUSY
    kLanes,         // the lane's connection is ended
    kOpenFiles,     // EMFILE
    kLocks,         // ENOLCK
    kPinned,        // fewer slots, or none: the bytes travel inside messages
    kRequests,      // EAGAIN
    kWrongKeys,     // EACCES; the answer waits
    kRequestBytes,  // EAGAIN
    kUsers,         // whose groups are being asked for: EAGAIN
    kCount
  };

  void Note(What what, std::string_view client);
  // A wrong key is logged where it is found out.
  void CountOnly(What what) { At(what).fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t count(What what) const {
    return counts_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);
  }
  void AddTo(Snapshot& out) const;

 private:
  std::atomic<std::uint64_t>& At(What what) { return counts_[static_cast<std::size_t>(what)]; }

  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(What::kCount)> counts_{};
};

}  // namespace rdfs::server
