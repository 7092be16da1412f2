// One real process that works on a mount and notes each call with its beginning and end.
//
// There are rounds, each with objects of its own: two groups of a content, a mode and a directory
// of three names, a file whose flocks are taken and one whose ranges are. Of each mount one
// process at a time works on the objects of a group: of a change under way other processes of its
// own client may see what was before (ARCHITECTURE.md, "Known limits"). Locks are everybody's.
//
// Belongs to the process that was forked for it; Shared is in memory of all.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>

#include "tests/e2e/linearizable/event.h"

namespace rdfs::linearizable {

inline constexpr std::uint32_t kGroups = 2;
inline constexpr std::uint32_t kCallsInARound = 60;  // at most; what is held then is given back

struct Shared {
  pthread_barrier_t barrier{};
  std::atomic<bool> stop{false};  // no further round
  bool last = false;              // written by the first worker, between two barriers
};

// What a worker has noted.
struct Notes {
  static constexpr std::size_t kMost = 400'000;
  std::atomic<std::size_t> count{0};
  Event events[kMost];
};

class Worker {
 public:
  // `number` of all, the first one prepares the rounds; it works on `group`.
  Worker(Shared& shared, Notes& notes, std::string mount, std::uint32_t number, std::uint32_t group,
         std::uint64_t seed)
      : shared_(shared),
        notes_(notes),
        mount_(std::move(mount)),
        number_(number),
        group_(group),
        random_(seed + number) {}

  // Until a round ends behind Shared::stop. False: something cannot be, and stderr says what.
  bool Run();

 private:
  bool Prepare();
  bool WorkRound();
  void Content();
  void WriteContent(int fd);
  void Mode();
  void Names();
  void Flock();
  void Range();
  void GiveBack();
  // Notes a call: `call` returns 0 or an errno.
  template <typename Call>
  void Note(Event event, Call&& call);

  [[nodiscard]] std::string Path(const std::string& name) const;
  std::uint32_t Pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  Shared& shared_;
  Notes& notes_;
  const std::string mount_;
  const std::uint32_t number_, group_;
  std::mt19937_64 random_;
  std::uint32_t round_ = 0;
  std::uint64_t written_ = 0;  // values so far: each is written once
  int flocks_ = -1, ranges_ = -1, kept_ = -1;
  bool has_flock_ = false;
  std::uint32_t has_ranges_ = 0;  // a bit a byte
};

}  // namespace rdfs::linearizable
