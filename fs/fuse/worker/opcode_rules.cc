#include "fs/fuse/worker/opcode_rules.h"

#include <fcntl.h>
#include <linux/fuse.h>

#include "fs/fuse/content/short_reads.h"
#include "fs/fuse/content/writes_behind.h"

namespace rdfs::fs::fuse {

bool Changes(const Message& message) {
  switch (message.header().opcode) {
    case FUSE_SETATTR:
    case FUSE_SYMLINK:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_LINK:
    case FUSE_WRITE:
    case FUSE_SETXATTR:
    case FUSE_REMOVEXATTR:
    case FUSE_CREATE:
    case FUSE_FALLOCATE:
    case FUSE_COPY_FILE_RANGE:
      return true;
    case FUSE_OPEN:
      return (message.Body<fuse_open_in>().flags & O_TRUNC) != 0;
    default:
      return false;
  }
}

bool Cuts(const Message& message) {
  const std::uint32_t opcode = message.header().opcode;
  return (opcode == FUSE_SETATTR || opcode == FUSE_OPEN) && ChangesContentOf(message).has_value();
}

std::optional<NodeId> ChangesContentOf(const Message& message) {
  const fuse_in_header header = message.header();
  switch (header.opcode) {
    case FUSE_WRITE:
    case FUSE_FALLOCATE:
      return header.nodeid;
    case FUSE_SETATTR:
      if ((message.Body<fuse_setattr_in>().valid & FATTR_SIZE) == 0) return std::nullopt;
      return header.nodeid;
    case FUSE_OPEN:
      if (!Changes(message)) return std::nullopt;
      return header.nodeid;
    case FUSE_COPY_FILE_RANGE:
      return message.Body<fuse_copy_file_range_in>().nodeid_out;
    default:
      return std::nullopt;
  }
}

std::optional<NodeId> Follows(const Message& message) {
  const fuse_in_header header = message.header();
  switch (header.opcode) {
    case FUSE_LOOKUP:
    case FUSE_OPENDIR:  // brings entries
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
    case FUSE_LINK:
    case FUSE_RENAME:  // who looks the name up is told of the file that it becomes
    case FUSE_RENAME2:
    case FUSE_COPY_FILE_RANGE:
      return WritesBehind::kAnyNode;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
    case FUSE_OPEN:
    case FUSE_READ:
    case FUSE_RELEASE:
    case FUSE_FSYNC:
    case FUSE_SETXATTR:
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
    case FUSE_REMOVEXATTR:
    case FUSE_FLUSH:
    case FUSE_GETLK:
    case FUSE_SETLK:
    case FUSE_SETLKW:
    case FUSE_LSEEK:
    case FUSE_FALLOCATE:
      return header.nodeid;
    default:
      return std::nullopt;
  }
}

bool IsShortRead(const Message& message) {
  return message.size >= sizeof(fuse_in_header) + sizeof(fuse_read_in) &&
         message.header().opcode == FUSE_READ &&
         message.Body<fuse_read_in>().size <= ShortReads::kLongest;
}

}  // namespace rdfs::fs::fuse
