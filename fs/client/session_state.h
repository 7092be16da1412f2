// What a mount decides about its session, without I/O: numbering and acknowledging requests, when
// to try again, when a silent peer counts as dead, what a mount grant means.
//
// SequenceCounter: any thread. The others are values of one thread; the time is an argument.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fs/client/types.h"
#include "fs/protocol.h"
#include "transport/base/clock.h"

namespace rdfs::fs::client {

// Sequence numbers of a session, and the highest one up to which every reply has arrived, over all
// lanes: each lane keeps the oldest number that it still waits for in its own cell.
class SequenceCounter {
 public:
  static constexpr std::size_t kCells = 64;
  static constexpr std::uint64_t kIdle = std::numeric_limits<std::uint64_t>::max();

  SequenceCounter() {
    for (auto& cell : oldest_) cell.store(kIdle);
  }
  // A new number for the owner of `cell`, which is answered later and said so by SetOldest.
  std::uint64_t Take(std::size_t cell) {
    // The cell is set before the number is taken, to a bound below it: whoever computes
    // Acknowledged in between either sees the cell, or a next_ that is not above the number.
    if (oldest_[cell].load() == kIdle) oldest_[cell].store(next_.load());
    return next_.fetch_add(1);
  }
  // The oldest number of `cell` without an answer, or kIdle. The cell's owner only.
  void SetOldest(std::size_t cell, std::uint64_t sequence) { oldest_[cell].store(sequence); }
  [[nodiscard]] std::uint64_t Acknowledged() const {
    std::uint64_t below = next_.load();
    for (const auto& cell : oldest_) below = std::min(below, cell.load());
    return below - 1;
  }

 private:
  std::atomic<std::uint64_t> next_{1};
  std::array<std::atomic<std::uint64_t>, kCells> oldest_;
};

// How long to wait before the next attempt to connect: at once, then 50 ms, doubled up to 2 s, each
// with up to a quarter more by `jitter`, so that a restarted server does not meet all its clients
// in the same moment.
class Backoff {
 public:
  explicit Backoff(std::uint64_t jitter_seed) : jitter_(jitter_seed | 1U) {}
  std::chrono::milliseconds Next();
  void Reset() { failures_ = 0; }

 private:
  std::uint64_t jitter_;
  unsigned failures_ = 0;
};

// Whether a connection's peer is still there, and that the session lives on: a lane asks after a
// third of the session's lease (at most 10 s) without a word from the peer, and gives the
// connection up when the same time again brought none. Every lane does, since recalls may be on
// their way to any. Where calls wait for less than the lease it is a third of that, and a
// second at least: what waits has time left to go over another connection.
//
//   quiet --interval without a word--> asked --a word--> quiet
//                                        \--interval without a word--> dead
class Heartbeat {
 public:
  enum class Action { kNone, kAsk, kDead };
  // `call_timeout`: zero for ever.
  explicit Heartbeat(std::chrono::milliseconds session_lease = std::chrono::seconds(30),
                     std::chrono::milliseconds call_timeout = {});

  void OnReceived(TimePoint now);  // a word, or connected
  Action Check(TimePoint now);
  [[nodiscard]] TimePoint NextCheck() const;

 private:
  std::chrono::nanoseconds interval_;
  TimePoint last_word_{};
  std::optional<TimePoint> asked_;
};

// The session as the server knows it.
struct Admission {
  MountGrant grant;
  NamedFile root;
  bool resumed = false;       // opens and locks are still there
  bool must_reclaim = false;  // the server does not know our opens
  std::uint64_t generation = 0;
};

class SessionState {
 public:
  // A random client id: who knows it resumes the session.
  static SessionState Create(std::string export_name, std::string host_name, std::uint32_t uid,
                             std::uint32_t gid, std::uint32_t flags);
  SessionState(std::array<std::byte, 16> client_id, std::string export_name, std::string host_name,
               std::uint32_t uid, std::uint32_t gid, std::uint32_t flags);

  // The opening words of the next session.
  [[nodiscard]] std::vector<std::byte> Request() const;
  // What the server granted; `asked` is when the request was sent. kProtocolError or
  // kVersionMismatch for what no correct server says.
  Result<Admission> OnGrant(ByteSpan grant, TimePoint asked);

 private:
  std::array<std::byte, 16> client_id_;
  std::string export_name_, host_name_;
  std::uint32_t uid_, gid_, flags_;
  std::uint64_t last_epoch_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace rdfs::fs::client
