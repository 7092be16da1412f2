// GracePeriod: after a restart, the time in which clients of the epoch before come first.
//
// A client that had files open, or locks, when the server went must be able to ask for them again
// before another one unlinks the file, moves it, takes its access away or locks it. Until every
// such session has said that it has what it had (kGraceEnd) or is over, requests of these kinds are
// answered kGrace, whoever sends them, and their clients ask again. It ends by itself after a time
// that the owner sets.
//
// Decides only: the time is an argument. Any thread; one mutex, and none once it is over.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "fs/protocol.h"
#include "transport/base/bytes.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class GracePeriod {
 public:
  // For these sessions, until `end`. At the start, before any request.
  void Begin(const std::vector<std::uint64_t>& sessions, TimePoint end);
  // The session misses nothing any more; of no effect for one that nobody waits for.
  void Done(std::uint64_t session);

  [[nodiscard]] bool active(TimePoint now) const;
  // Whether this session may still ask for what it had.
  [[nodiscard]] bool Awaits(std::uint64_t session) const;
  // 0 when it is over, else at least 1 ms.
  [[nodiscard]] std::chrono::milliseconds left(TimePoint now) const;
  // Who has not come back.
  [[nodiscard]] std::size_t missing() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_set<std::uint64_t> missing_;
  TimePoint end_{};
  std::atomic<bool> on_{false};
};

// Whether such a request could take from a client what it has not asked for again yet. `body` may
// be malformed: then no.
bool MayTakeFromOthers(fs::Opcode opcode, ByteSpan body);

}  // namespace rdfs::server
