// VirtualTime: what happens when in a simulated world, and everything that is left to chance in it,
// from a seed: the same seed, the same world. One thread; belongs to a world.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace rdfs::coherence {

class VirtualTime {
 public:
  using Time = std::chrono::nanoseconds;

  explicit VirtualTime(std::uint32_t seed) : random_(seed) {}

  [[nodiscard]] Time now() const { return now_; }
  void At(Time when, std::function<void()> what) {
    queue_.push({.when = when, .order = ++events_, .what = std::move(what)});
  }
  void After(Time delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // Takes the next thing that happens; false: there is none before `end`.
  bool Step(Time end) {
    if (queue_.empty() || queue_.top().when >= end) return false;
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.when;
    event.what();
    return true;
  }

  Time Between(Time low, Time high) {
    return low +
           Time(static_cast<std::int64_t>(Pick(static_cast<std::uint64_t>((high - low).count()))));
  }
  bool Chance(unsigned one_in) { return random_() % one_in == 0; }
  std::uint64_t Pick(std::uint64_t below) { return random_() % below; }
  // How fast somebody's clock runs: up to 0.9 % wrong.
  double ClockRate() { return 1 + (static_cast<double>(Pick(19)) - 9) / 1000; }

 private:
  struct Event {
    Time when;
    std::uint64_t order;  // of events at one time
    std::function<void()> what;
    friend bool operator>(const Event& a, const Event& b) {
      return std::pair(a.when, a.order) > std::pair(b.when, b.order);
    }
  };
  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::uint64_t events_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
};

}  // namespace rdfs::coherence
