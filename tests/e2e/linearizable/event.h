// One call of a real process on a mount, and what it answered: what workers note and the check
// reads. A value in memory that processes share.
#pragma once

#include <cstdint>

namespace rdfs::linearizable {

enum class What : std::uint32_t {
  kWriteContent,  // value
  kReadContent,   // value
  kChmod,         // value
  kStatMode,      // value
  kCreate,        // name; value: the inode
  kLink,          // name as other
  kRename,        // name to other
  kUnlink,        // name
  kStatName,      // name; value: the inode, or 0
  kFlock,         // exclusive
  kUnflock,
  kLockRange,  // exclusive, from name to other
  kUnlockRange,
};

struct Event {
  std::uint32_t round = 0;
  std::uint32_t group = 0;  // which of the objects of that kind
  std::uint32_t worker = 0;
  What what{};
  std::uint32_t name = 0, other = 0;
  std::uint32_t exclusive = 0;
  std::int32_t error = 0;  // errno; a lock's EAGAIN: refused
  std::uint64_t value = 0;
  std::uint64_t begin = 0, end = 0;  // CLOCK_MONOTONIC, ns
};

}  // namespace rdfs::linearizable
