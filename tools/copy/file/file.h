// File: an open file or directory, of this machine or of an export. Scanner and Destination reach
// the file system through nothing else, so that what they promise holds wherever a tree is.
//
// The calls are the system's of like names, relative to a directory that is open: -1 (null for a
// File) and errno where they fail. A `name` is one component, unless said otherwise; where "" is
// allowed it means the file itself, and any other name is not followed if it is a symlink's.
//
// Owned by whoever opened it; closed with the last reference. Any thread, but ReadNames, which goes
// on where it was. Blocks in the file system, or until the export's server has answered.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/bytes.h"

namespace rdfs::copy {

class File;
using FilePtr = std::shared_ptr<File>;

class File {
 public:
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // ---- what is in a directory -------------------------------------------------------------------
  // `flags`: open(2)'s; O_CLOEXEC is a matter of course. `path`: may have several components, and
  // be absolute; ".." and symlinks but a last one with O_NOFOLLOW are followed as usual.
  virtual FilePtr Open(const std::string& path, int flags, mode_t mode = 0) = 0;
  // `path`: as CheckPath (names.h) wants it, or empty: itself. Leaves the directory by no symlink:
  // ELOOP. May be longer than PATH_MAX.
  virtual FilePtr OpenBeneath(const std::string& path, int flags) = 0;
  // `path`: as for Open, or "".
  virtual int Stat(const std::string& path, bool follow, struct stat& out) = 0;
  virtual int ReadLink(const std::string& path, std::string& target) = 0;
  virtual int MakeDirectory(const std::string& name, mode_t mode) = 0;
  virtual int MakeSymlink(const std::string& target, const std::string& name) = 0;
  virtual int MakeNode(const std::string& name, mode_t mode, dev_t device) = 0;
  // `to`: of the same file system, else EXDEV.
  virtual int Link(const std::string& name, File& to, const std::string& new_name) = 0;
  virtual int Rename(const std::string& name, const std::string& new_name) = 0;
  virtual int Remove(const std::string& name, bool is_directory) = 0;
  // Appends some names, but "." and "..", in no order. 0: there are no more.
  virtual int ReadNames(std::deque<std::string>& out) = 0;

  // ---- attributes; `name` may be "" ------------------------------------------------------------
  virtual int SetMode(const std::string& name, mode_t mode) = 0;
  virtual int SetOwner(const std::string& name, uid_t uid, gid_t gid) = 0;
  virtual int SetTimes(const std::string& name, const std::array<timespec, 2>& times) = 0;
  virtual ssize_t ListXattrs(const std::string& name, char* out, std::size_t size) = 0;
  virtual ssize_t GetXattr(const std::string& name, const char* attribute, char* out,
                           std::size_t size) = 0;
  virtual int SetXattr(const std::string& name, const char* attribute,
                       const std::string& value) = 0;
  virtual int RemoveXattr(const std::string& name, const char* attribute) = 0;
  // Whether we may give files away, and set what only root may.
  [[nodiscard]] virtual bool IsPrivileged() const = 0;
  // Whose the files are that we make in this directory; none where that cannot be told.
  virtual std::optional<uid_t> Maker() = 0;

  // flock(2), exclusive, for as long as the file is open: EAGAIN where somebody else has it. At an
  // export that waits until the server has given up who may have been killed; and who has lost the
  // lock can no longer write.
  virtual int Lock() = 0;

  // ---- content ----------------------------------------------------------------------------------
  // Both may move fewer bytes than asked; Read 0 at the end only.
  virtual ssize_t Read(MutableByteSpan out, std::uint64_t offset) = 0;
  virtual ssize_t Write(ByteSpan bytes, std::uint64_t offset) = 0;
  virtual int Truncate(std::uint64_t size) = 0;
  // fallocate(2) with PUNCH_HOLE and KEEP_SIZE.
  virtual int PunchHole(std::uint64_t offset, std::uint64_t length) = 0;
  virtual off_t Seek(std::uint64_t offset, int whence) = 0;  // SEEK_DATA, SEEK_HOLE
  // What close(2) would say, while the file stays open: network file systems, and FUSE ones as
  // ours, may tell only there that a write which they had answered has failed.
  virtual int Flush() = 0;
  // Data to where they are kept, and what is cached of them here is dropped.
  virtual int Sync() = 0;
  // Where the file system copies by itself, without the bytes coming by; else EXDEV.
  virtual ssize_t CopyRange(File& to, std::uint64_t offset, std::size_t length) = 0;

  // Which file system's: of one, all are of one class. Null: this machine's.
  [[nodiscard]] virtual const void* system() const { return nullptr; }
  // Of this machine's; -1 for others.
  [[nodiscard]] virtual int descriptor() const { return -1; }

 protected:
  File() = default;
};

// The current directory of this machine, for paths as the user gave them. Nothing is opened.
FilePtr Here();

}  // namespace rdfs::copy
