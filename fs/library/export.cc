#include "fs/library/export.h"

#include <unistd.h>

#include "fs/fuse/command/dialer.h"
#include "fs/fuse/command/options.h"
#include "transport/base/signals_blocked.h"

namespace rdfs::fs::library {
rdfs_attributes ToAttributes(const AttrWire& attr) {
  return {.ino = attr.ino,
          .size = attr.size,
          .blocks = attr.blocks,
          .atime = attr.atime.seconds,
          .mtime = attr.mtime.seconds,
          .ctime = attr.ctime.seconds,
          .btime = attr.btime.seconds,
          .atime_ns = attr.atime.nanoseconds,
          .mtime_ns = attr.mtime.nanoseconds,
          .ctime_ns = attr.ctime.nanoseconds,
          .btime_ns = attr.btime.nanoseconds,
          .mode = attr.mode,
          .nlink = attr.nlink,
          .uid = attr.uid,
          .gid = attr.gid,
          .change = attr.change};
}

}  // namespace rdfs::fs::library

using rdfs::Result;
using rdfs::Status;
namespace client = rdfs::fs::client;
namespace fuse = rdfs::fs::fuse;

Result<std::unique_ptr<rdfs_export>> rdfs_export::Connect(const char* source, const char* options,
                                                          std::size_t queue_bytes) {
  RDFS_ASSIGN_OR_RETURN(const fuse::Options parsed,
                        fuse::ParseSourceAndOptions(source, options == nullptr ? "" : options));
  RDFS_ASSIGN_OR_RETURN(const rdfs::transport::Key key, fuse::ReadKey(parsed));
  const rdfs::SignalsBlocked blocked;
  RDFS_ASSIGN_OR_RETURN(client::MountOptions mount, fuse::MakeMountOptions(parsed, key));
  auto made = std::make_unique<rdfs_export>();
  made->deadline = parsed.deadline;
  made->caller = {.uid = geteuid(), .gid = getegid(), .pid = static_cast<std::uint32_t>(getpid())};
  // A program fills its buffer anew as soon as it has it back.
  made->caller.keeps_memory = true;
  mount.flags |= rdfs::fs::kMountDropsNames;  // nothing is kept by name
  mount.lane_buffer_bytes = queue_bytes;
  RDFS_ASSIGN_OR_RETURN(
      made->mount, client::Mount::Create(std::move(mount), rdfs::DeadlineAfter(parsed.deadline)));
  return made;
}

bool rdfs_export::IsOfThisProcess() const {
  return caller.pid == static_cast<std::uint32_t>(getpid());
}

rdfs_export::~rdfs_export() {
  for (rdfs_file* file : files_) delete file;
}

rdfs_file* rdfs_export::Add(std::unique_ptr<rdfs_file> file) {
  const std::lock_guard lock(mutex_);
  rdfs_file* added = file.release();
  files_.insert(added);
  return added;
}

std::unique_ptr<rdfs_file> rdfs_export::Take(rdfs_file* file) {
  const std::lock_guard lock(mutex_);
  if (files_.erase(file) == 0) return nullptr;
  return std::unique_ptr<rdfs_file>(file);
}
