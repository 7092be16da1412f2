// What a caller asked another machine for, and what it got: names of the command line, patterns in
// them, what each source is called at DST, and what may come of it.
//
// Pure but for FindSources, which looks into the file system. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copy/remote/wire.h"
#include "tools/copy/source/scanner.h"

namespace rdfs::copy {

// What a source of that path is called in a directory that it is copied into: its last component;
// nothing for "", "/", and what ends with "." or "..": its content goes there.
std::string NameAtDestination(std::string_view path);

// Whether the far end's sources are what was asked for, and no more: as many, or more where there
// was a pattern, and called so; and no fewer than that but for those of which it has `told` why.
// Errors: kProtocolError.
Status CheckSources(const std::vector<std::string>& asked, const Begin& begin, std::uint64_t told);

// Names at DST that one machine after the other brings.
class NamesTaken {
 public:
  // Notes those of one more machine; an error if a file of an earlier one would be replaced.
  Status Take(const Begin& begin);

 private:
  std::map<std::string, bool> taken_;  // and whether it is a directory
};

// Whether a correct sender that was asked for that comes to send the entry: directories and what is
// in them only with -r, no symlink where they are followed, no special file that is not kept, and
// nothing that the filter leaves out, nor what is beneath that. One thread.
bool WasAskedFor(const Entry& entry, const ScanOptions& asked, const Keep& keep);
// What is said of the rest; kProtocolError.
Status NotAskedFor(const std::string& name);

// The files that were asked for, as paths here, and the Begin that tells of them. `expand`: a name
// that is not there as it stands is taken for a pattern (source/pattern.h), and "~/" and "~user/"
// for home directories; else a shell has done that already. `tell` is called with what leads to
// nothing.
struct Found {
  std::vector<std::string> paths;
  Begin begin;
};
Found FindSources(const std::vector<std::string>& asked, bool follow, bool expand,
                  const std::function<void(const std::string& path, const Status&)>& tell);

// DST at this end: "~" and "~/" mean the home directory, "~user/" that of somebody else, nothing
// the current one. One thread at a time (getpwnam(3)).
std::string ExpandHome(const std::string& path);

}  // namespace rdfs::copy
