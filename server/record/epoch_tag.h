// Which servers share a directory of records, told by their epochs: by a tag in the upper bits,
// which the first of them has made. Where the directory is gone when a host is started anew (below
// /run), the next server makes another tag. A clock would not tell: the host's may be set back, or
// have been ahead.
//
// Clients compare epochs for equality only. Those of earlier versions are microseconds since 1970
// and have no tag; of a directory that such a server was the first of, the order tells.
//
// Pure functions.
#pragma once

#include <cstdint>

namespace rdfs::server {

inline constexpr unsigned kEpochCountBits = 40;  // of microseconds: 12 days
inline constexpr std::uint64_t kTaggedEpoch = std::uint64_t{1} << 63U;

// 0: none.
constexpr std::uint64_t EpochTag(std::uint64_t epoch) {
  return (epoch & kTaggedEpoch) != 0 ? epoch >> kEpochCountBits : 0;
}

// `epoch`, as the keeper has it, in the company of servers whose first had `first`.
constexpr std::uint64_t WithTagOf(std::uint64_t first, std::uint64_t epoch) {
  if (EpochTag(first) == 0) return epoch;
  constexpr std::uint64_t kCount = (std::uint64_t{1} << kEpochCountBits) - 1;
  return EpochTag(first) << kEpochCountBits | (epoch & kCount);
}

// Whether `epoch` is of a server whose records went before the first server of these came.
constexpr bool IsBefore(std::uint64_t epoch, std::uint64_t first) {
  return EpochTag(epoch) != EpochTag(first) || (EpochTag(first) == 0 && epoch < first);
}

}  // namespace rdfs::server
