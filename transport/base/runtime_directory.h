// Where running programs of ours keep what goes when the host restarts: control sockets, and the
// records of what a crash may not lose. One directory for each user, which nobody else may enter:
//
//   $XDG_RUNTIME_DIR/rdfs  of ordinary users, where that is a directory of theirs; what came
//                          through sudo is not
//   /tmp/rdfs-UID          of ordinary users without it: cron, su, a container
//   /run/rdfs              root's, also where root's login has an $XDG_RUNTIME_DIR: that goes at
//                          its end, and what root serves and mounts does not
//
// A program may have been started with the variable, and asked by somebody without it: so whoever
// looks for one of an ordinary user looks into /run/user/UID/rdfs and into /tmp/rdfs-UID. A
// variable that names another place than a login's, /run/user/UID, names the only one, root's as
// well.
//
// Any thread; what others may have put in the way is hostile until checked.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs {

// Where things of this user may be, the place for new ones first. `variable`: $XDG_RUNTIME_DIR, or
// empty without one of theirs. Pure.
std::vector<std::string> RuntimeDirectoriesOf(uid_t user, std::string_view variable);
// Those of this process's user.
std::vector<std::string> RuntimeDirectories();

// Whether it is a directory, no link to one, of this user with mode 0700. Errors: kErrno,
// kInvalidArgument.
Status CheckRuntimeDirectory(const std::string& path);
// The first of RuntimeDirectories(), made where it was missing, and checked. Errors: as there.
Result<std::string> MakeRuntimeDirectory();

struct ForeignDirectory {
  uid_t owner = 0;
  Fd directory;  // open to be listed: what has its name may be another a moment later
};
// Those of all other users, which only root may open: what is not its owner's alone is left out.
// Below `root`, for tests. Empty where the variable names a place of its own.
std::vector<ForeignDirectory> ForeignRuntimeDirectories(const std::string& root = "");

}  // namespace rdfs
