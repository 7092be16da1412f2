// Reaching and removing what lies beneath a directory without ever leaving it.
//
// Any thread; blocks in the file system, or until the export's server has answered.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tools/copy/file/file.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// openat2(2) with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, and O_CLOEXEC.
// `path`: as CheckPath wants it; may be longer than PATH_MAX. Empty: the directory again.
Result<Fd> OpenBeneath(int directory, const std::string& path, int flags);

// The names in a directory, without "." and "..", in no order. Reads them from the beginning.
Result<std::deque<std::string>> NamesIn(File& directory);

struct Removal {
  // What stays, and with it what it holds and every directory that it is in. `path`: from where the
  // removal began on. May be empty.
  std::function<bool(const std::string& path, const struct stat& info)> keeps{};
  bool dry_run = false;                     // nothing is removed, and all the rest is the same
  const std::atomic<bool>* stop = nullptr;  // once it is set, all stays that has not gone
};

// Removes `name` in `directory` and what is beneath, at any depth; stays in it and follows nothing.
// Goes on behind what cannot be removed, and says the first of it. Adds to `gone` what went, of a
// directory of which nothing is left itself only.
Status RemoveTree(File& directory, const std::string& name, const Removal& how,
                  std::vector<std::string>& gone);

}  // namespace rdfs::copy
