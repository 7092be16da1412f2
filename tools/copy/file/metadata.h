// Owner, mode, extended attributes, ACLs and times: read from a file, and set on another.
//
// The order in which they are set matters (see Apply): a change of owner clears setuid and
// capabilities, a mode without write permission forbids user attributes, and an ACL is part of the
// mode. Any thread; blocks in the file system, or
// until the export's server has answered.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "tools/copy/file/entry.h"
#include "tools/copy/file/file.h"
#include "transport/base/status.h"

namespace rdfs::copy {

Kind KindOf(mode_t mode);
inline FileId IdOf(const struct stat& info) { return {info.st_dev, info.st_ino}; }
// What stat(2) knows; path, source and target are the caller's.
Entry EntryOf(const struct stat& info);

// Whether what is there is the entry itself, on this machine, through an export of it, or through
// two: of what is seen in two ways, inode and change time tell.
bool IsItself(const Entry& entry, const struct stat& now);

// Where a symlink leads.
Result<std::string> ReadLinkAt(File& directory, const std::string& name);

// Attributes of those classes that `keep` has; none where the file system has none.
// `name`: of what cannot be opened, such as a symlink, in the directory; needs /proc here.
Result<std::vector<Xattr>> ReadXattrs(File& file, const Keep& keep, const std::string& name = "");

// What is to be changed: the file, or what `name` in that directory is, unfollowed.
struct Subject {
  File& file;
  std::string name{};
  const struct stat* now = nullptr;  // as it is; spares calls that would change nothing
  bool fresh = true;                 // made by us just now: has no attributes to be removed
  bool unwritten = false;            // since `now`, whose times are its own
};

// Attributes, owner, mode, ACLs and capabilities, times, in that order, as far as `keep` says.
// All of it is tried; the first failure is returned. What only root may do is no failure for
// others: the owner, and attributes that are not in user.* or ACLs. What has the modification time
// keeps its access time.
Status Apply(const Subject& subject, const Entry& entry, const Keep& keep);

}  // namespace rdfs::copy
