// Liveness: when to say that we are here, and when to believe that the peer is not.
//
// An idle RC queue pair never notices a dead host, and a stream may idle for hours. Pure, in the
// caller's time; one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/base/clock.h"

namespace rdfs::pipe {

class Liveness {
 public:
  using Duration = std::chrono::nanoseconds;
  // Often enough that a few lost ones do not matter within the default limit.
  static constexpr Duration kPingEvery = std::chrono::seconds(5);
  static constexpr Duration kAnswerEvery = std::chrono::milliseconds(200);
  static constexpr Duration kDefaultLimit = std::chrono::seconds(60);

  // `limit` zero: a silent peer is waited for as long as the connection stands.
  Liveness(Duration limit, TimePoint now) : limit_(limit), heard_(now), sent_(now) {}

  void Heard(TimePoint now) {
    heard_ = now;
    answered_ = std::exchange(asked_, false);
  }
  // Sent for no other reason than that nothing else was.
  void Pinged() { asked_ = true; }
  void Sent(TimePoint now) { sent_ = now; }
  [[nodiscard]] bool PingDue(TimePoint now) const { return now >= sent_ + Every(); }
  // Whether a Ping is answered: who pings may have a shorter limit than ours, and hear too seldom
  // from us. Not where it was the answer to ours.
  [[nodiscard]] bool AnswersPing(TimePoint now) const {
    return !answered_ && now >= sent_ + kAnswerEvery;
  }
  [[nodiscard]] bool Dead(TimePoint now) const {
    return limit_ > Duration::zero() && now >= heard_ + limit_;
  }
  [[nodiscard]] Deadline Next() const {
    const Deadline ping = sent_ + Every();
    return limit_ > Duration::zero() ? std::min(ping, heard_ + limit_) : ping;
  }
  [[nodiscard]] Duration limit() const { return limit_; }

 private:
  [[nodiscard]] Duration Every() const {
    return limit_ > Duration::zero() ? std::min(kPingEvery, limit_ / 4) : kPingEvery;
  }

  Duration limit_;
  TimePoint heard_, sent_;
  bool asked_ = false;     // a Ping of ours has not been answered
  bool answered_ = false;  // what was heard last is its answer
};

}  // namespace rdfs::pipe
