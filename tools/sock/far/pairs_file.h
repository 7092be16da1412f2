// PairsFile: looks whether the file of pairings has changed, and reads it then, on a thread of its
// own: it lies in the home folder, whose server may not answer, and nobody else is to wait for
// that.
//
// Used by one thread, the carrier's; never blocks but where it says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tools/sock/far/pairs.h"
#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs::sock::far {

class PairsFile {
 public:
  // A look that takes longer is not waited for: what was found before it counts.
  static constexpr std::chrono::seconds kPatience{1};
  using Stamp = std::function<std::string(const std::string& path)>;

  // Errors: kResourceExhausted, kErrno (a thread, a descriptor).
  static Result<std::unique_ptr<PairsFile>> Create(std::string path, Stamp stamp);
  // Blocks until a look that is under way has ended, a second at most.
  ~PairsFile();
  PairsFile(const PairsFile&) = delete;
  PairsFile& operator=(const PairsFile&) = delete;

  // Readable when there is something to Take.
  [[nodiscard]] int fd() const;
  // Asks for a look that begins behind this call. Its number, which grows.
  std::uint64_t Look(TimePoint now);
  // Whether this look need not be waited for (any longer).
  [[nodiscard]] bool Over(std::uint64_t look, TimePoint now) const {
    return look <= done_ || now - since_ >= kPatience;
  }
  // What the looks have found: the pairings, or why they cannot be read; none without a change.
  std::optional<Result<Pairs>> Take(TimePoint now);
  // The next look finds a change.
  void Again();

 private:
  struct State;
  explicit PairsFile(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;  // the thread's, too
  std::uint64_t asked_ = 0;
  std::uint64_t done_ = 0;
  TimePoint since_{};  // the look behind `done_` is waited for
};

}  // namespace rdfs::sock::far
