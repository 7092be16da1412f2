// The bounds on peers that have proved nothing: how many there may be, which one goes when there
// are too many, and how long the answer to a wrong key is held.
//
// A right key is never made to wait: only failures are slowed, and a newcomer is never turned away
// for the sake of connections that are idle. Pure, in the caller's time; one thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <span>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"

namespace rdfs::transport::session {

// An IPv4 address, or the /64 that an IPv6 host picks its addresses from; zero for a stream that
// was given to us.
using PeerAddress = std::array<std::byte, 16>;

// Of one connection that is not authenticated yet.
struct HalfOpen {
  PeerAddress address{};
  int progress = 0;  // how many messages of the handshake it has sent
  TimePoint since{};
};

struct HalfOpenLimits {
  std::size_t total = 128;
  std::size_t per_address = 16;            // that have said nothing yet, or have failed
  std::size_t answering_per_address = 64;  // with those that answer: clients that come together
};

// Which of `open` has to go so that one more from `newcomer` may stay: of those that count against
// the bound that is reached, the one with the least progress, the oldest of these. So silent
// connections make room first, and a client that answers is not driven out by them.
std::optional<std::size_t> ChooseVictim(std::span<const HalfOpen> open, const PeerAddress& newcomer,
                                        const HalfOpenLimits& limits);

class WrongKeyLimit {
 public:
  using Duration = std::chrono::nanoseconds;

  explicit WrongKeyLimit(std::size_t free = 8) : free_(static_cast<double>(free)) {}

  // A wrong key came from `address`: how long to hold the answer. Nothing for the first few, then
  // doubling to 2 s; one failure is forgotten each second.
  Duration OnWrongKey(const PeerAddress& address, TimePoint now);
  [[nodiscard]] std::size_t addresses() const { return failures_.size(); }

  static constexpr Duration kFirstHold = std::chrono::milliseconds(25);
  static constexpr Duration kLongestHold = std::chrono::seconds(2);
  static constexpr double kToLongest = 8;  // so many more, each of which doubles it
  static constexpr std::size_t kMaxAddresses = 1024;

 private:
  struct Failures {
    double count = 0;
    TimePoint last{};
  };
  void ForgetOldest();

  const double free_;
  std::map<PeerAddress, Failures> failures_;
};

// So many at once, then so many a second: what one session may ask of a server.
class TokenBucket {
 public:
  TokenBucket(double burst, double per_second, TimePoint now)
      : burst_(burst), per_second_(per_second), level_(burst), last_(now) {}
  [[nodiscard]] bool Take(TimePoint now);

 private:
  double burst_;
  double per_second_;
  double level_;
  TimePoint last_;
};

}  // namespace rdfs::transport::session
