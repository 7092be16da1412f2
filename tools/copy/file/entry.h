// Entry: one name of a tree that is copied, as the source has it. Both forms of rdcp speak of files
// in these terms: the local form hands entries from the scanner to the destination, the remote form
// carries them over the wire in between.
//
// A value; nothing in it is a pointer or a descriptor. What comes from another machine is not
// trusted: Destination checks every field that it acts on.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rdfs::copy {

// Numbers are of the wire: never reused.
enum class Kind : std::uint8_t {
  kFile = 1,
  kDirectory = 2,
  kSymlink = 3,
  kFifo = 4,
  kSocket = 5,
  kCharDevice = 6,
  kBlockDevice = 7,
};

// An inode of the source's machine; of an export, the device is one that no machine has, and tells
// exports of one server, which has this epoch, by its upper bits.
inline constexpr std::uint64_t kFirstExportDevice = std::uint64_t{1} << 62;
inline constexpr unsigned kExportBits = 16;
constexpr std::uint64_t ExportDevice(std::uint64_t epoch, std::uint16_t number) {
  constexpr std::uint64_t kServers = (kFirstExportDevice >> kExportBits) - 1;
  return kFirstExportDevice | (epoch & kServers) << kExportBits | number;
}
// Whether one file may be seen with both of them, which are not the same: here and through an
// export, or through two of a server.
constexpr bool AreTwoWays(std::uint64_t one, std::uint64_t other) {
  const bool exports = one >= kFirstExportDevice && other >= kFirstExportDevice;
  if (!exports) return (one >= kFirstExportDevice) != (other >= kFirstExportDevice);
  return one != other && one >> kExportBits == other >> kExportBits;
}
struct FileId {
  std::uint64_t device = 0, inode = 0;
  friend auto operator<=>(const FileId&, const FileId&) = default;
};

struct Xattr {
  std::string name, value;
  friend bool operator==(const Xattr&, const Xattr&) = default;
};

struct Entry {
  // Which SRC of the command line it belongs to.
  std::uint32_t source = 0;
  // Bytes, relative to that SRC, components separated by one '/'; empty: SRC itself. May be longer
  // than PATH_MAX.
  std::string path;
  Kind kind = Kind::kFile;
  std::uint32_t mode = 0;  // permissions with setuid, setgid and sticky: 07777
  std::uint32_t uid = 0, gid = 0;
  timespec atime{}, mtime{};
  timespec ctime{};                    // for SourceMark only (destination/journal.h)
  std::uint64_t size = 0;              // of a file, in bytes
  std::uint32_t major = 0, minor = 0;  // of a device
  FileId id;                           // of the inode
  std::uint32_t links = 1;             // names of `id`; a directory has one
  std::string target;                  // of a symlink; bytes
  // In the order of the file system; POSIX ACLs (system.posix_acl_*) and capabilities
  // (security.capability) are among them, as the kernel encodes them. Empty until read: see
  // metadata.h.
  std::vector<Xattr> xattrs;
};

// What a copy has of its source besides names and data.
struct Keep {
  bool mode = false;      // else the source's permissions without umask's, or what was there
  bool owner = false;     // where allowed: an ordinary user's files stay his own
  bool times = false;     // in nanoseconds
  bool acls = false;      // system.posix_acl_*
  bool xattrs = false;    // the others
  bool links = false;     // hard links stay links
  bool specials = false;  // FIFOs, sockets, devices; else they are named and left out

  // -p
  static constexpr Keep Attributes() {
    return {.mode = true, .owner = true, .times = true, .acls = true};
  }
  // -a
  static constexpr Keep All() {
    return {.mode = true,
            .owner = true,
            .times = true,
            .acls = true,
            .xattrs = true,
            .links = true,
            .specials = true};
  }
};

}  // namespace rdfs::copy

template <>
struct std::hash<rdfs::copy::FileId> {
  std::size_t operator()(const rdfs::copy::FileId& id) const noexcept {
    return std::hash<std::uint64_t>()(id.inode * 0x9E3779B97F4A7C15U ^ id.device);
  }
};
