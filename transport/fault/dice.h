// Dice: the random decisions of a fault plan. The n-th throw depends on the seed and n alone, so a
// schedule that failed can be run again. A value; one thread at a time.
#pragma once

#include <cstdint>

namespace rdfs::transport::fault {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
  std::uint64_t Next() {
    state_ += 0x9e37'79b9'7f4a'7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebULL;
    return z ^ (z >> 31U);
  }
  // True in `chance` of 10,000 throws. Each call is a throw, whatever the chance.
  bool Throw(std::uint32_t chance) { return Next() % 10'000 < chance; }

 private:
  std::uint64_t state_;
};

}  // namespace rdfs::transport::fault
