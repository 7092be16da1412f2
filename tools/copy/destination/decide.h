// Whether a file is copied, from what is at its place already.
//
// Pure; any thread.
#pragma once

#include <sys/stat.h>

#include <optional>

#include "tools/copy/file/entry.h"

namespace rdfs::copy {

struct Policy {
  bool update = false;    // -u: only what is newer than what is there
  bool sync = false;      // --sync: not what has the same size and time
  bool checksum = false;  // --checksum: not what has the same content, whatever its time
};

enum class Verdict : std::uint8_t {
  kCopy,
  kLeave,    // what is there stays as it is
  kSame,     // the data are right; owner, mode and so on are to be set
  kCompare,  // kSame if the content, or the symlink's target, is equal; else kCopy
};

Verdict Decide(const Entry& entry, const std::optional<struct stat>& now, const Policy& policy);

}  // namespace rdfs::copy
