// What the calls of a mount take and give: plain values, decoded and checked.
//
// Views (DirPage, names, xattr values, link targets) point into the reply and are valid only inside
// the callback that got them. Times are CLOCK_BOOTTIME; a thing that "expires" may be cached until
// then, counted from before its request was sent and with 1 % of drift taken off already.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/protocol.h"
#include "transport/base/clock.h"

namespace rdfs::fs::client {

// Who calls, and how long the call may take.
struct CallContext {
  std::uint32_t uid = 0, gid = 0, pid = 0;
  bool tell_directories = false;  // see Lane::DirectoriesTold
  // A read or write that is too late ends when no device touches its slice any more, and not at its
  // deadline: for memory that is used again at once, and not given back to the pool.
  bool keeps_memory = false;
  std::uint64_t trace = 0;  // for logs on both sides
  // Not set: MountOptions::timeout. Zero: for ever (a blocking lock).
  std::optional<std::chrono::milliseconds> timeout{};
};

struct Attributes {
  AttrWire attr;
  TimePoint expires;
};

// A name that was found or made.
struct NamedFile {
  Handle handle;
  AttrWire attr;
  TimePoint attr_expires;
  TimePoint name_expires;
};

struct DirEntry {
  std::uint64_t ino = 0;
  std::uint64_t cookie = 0;  // of the position behind this entry
  std::uint32_t type = 0;    // DT_...
  std::string_view name{};   // 1 to 255 bytes without '/' and NUL; "." and ".." occur
  std::optional<NamedFile> file{};
};

// One reply of ReadDir, checked as a whole before anyone sees its first entry.
class DirPage {
 public:
  DirPage(ByteSpan entries, bool plus, TimePoint asked)
      : rest_(entries), plus_(plus), asked_(asked) {}
  // The next entry, or none. A page without any entry is the end of the directory.
  std::optional<DirEntry> Next();
  // Whether nothing follows the entries of this page; known once Next has returned none.
  [[nodiscard]] bool ends_directory() const { return ends_directory_; }
  // Whether every entry is well-formed.
  [[nodiscard]] bool Check() const;

 private:
  ByteSpan rest_;
  bool plus_;
  TimePoint asked_;
  bool ends_directory_ = false;
};

struct ReadDone {
  std::uint32_t length = 0;     // short only at the end of the file
  std::uint64_t file_size = 0;  // as far as known with these bytes
};

struct WriteDone {
  std::uint64_t offset = 0;  // where the bytes went (append: the server's choice)
  std::uint32_t written = 0;
  int rest_errno = 0;  // why less than asked was written
  std::uint64_t file_size = 0;
  std::uint64_t change = 0;
  TimePoint write_lease{};  // as of Opened; in the past for copies
};

struct XattrReply {
  std::uint32_t size = 0;
  ByteSpan value;  // empty when only the size was asked for
};

struct StatFs {
  std::uint64_t blocks = 0, blocks_free = 0, blocks_available = 0, files = 0, files_free = 0;
  std::uint32_t block_size = 0, fragment_size = 0, name_max = 0;
};

struct SetAttributes {
  std::uint32_t valid = 0;  // kSetMode ...
  std::uint32_t mode = 0, uid = 0, gid = 0;
  std::uint64_t size = 0;
  TimeWire atime{}, mtime{};
};

struct DeviceNumber {
  std::uint32_t major = 0, minor = 0;
};

struct Lock {
  std::uint64_t owner = 0;           // as FUSE tells it
  std::uint64_t start = 0, end = 0;  // inclusive; 2^63-1: to the end, wherever that is
  LockType type = LockType::kUnlock;
  std::uint32_t pid = 0;
};

// One name on the way from the root to a file, and the handle that is expected behind it.
struct PathStep {
  Handle parent;
  std::string name;
  Handle expected;
  friend bool operator==(const PathStep&, const PathStep&) = default;
};
using Path = std::vector<PathStep>;
// Tells the ways to a file that a restarted server does not know by its handle any more, by its
// names, the one that was seen last first. Called on the mount's own thread and on lanes'.
using PathFinder = std::function<std::vector<Path>(const Handle&)>;
// The handles in the body of a request that may have been carried out already and must not be
// twice: an answer that they are not known would not do. None for those that may be repeated.
std::vector<Handle> HandlesToFind(Opcode opcode, ByteSpan body);

// When a lease of `lease_ms` that was asked for at `asked` is over for us.
TimePoint LeaseEnd(TimePoint asked, std::uint32_t lease_ms);
// How long behind `asked` that is.
std::chrono::nanoseconds LeaseLength(std::uint32_t lease_ms);

}  // namespace rdfs::fs::client
