// INIT: which of the kernel's features this mount uses, and why. Logged once, at info.
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "fs/fuse/ops/ops.h"
#include "fs/fuse/worker/init_reply.h"
#include "transport/base/log.h"

namespace rdfs::fs::fuse {

namespace {

std::array<unsigned, 3> ParseRelease(std::string_view release) {
  std::array<unsigned, 3> version{};
  const char* at = release.data();
  const char* const end = at + release.size();
  for (unsigned& number : version) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) break;
    at = next == end ? end : next + 1;
  }
  return version;
}

}  // namespace

bool KernelHasEpochs() {
  utsname name{};
  return uname(&name) == 0 && ParseRelease(name.release) >= std::array{6U, 16U, 0U};
}

bool KernelDropsPagesAfterWrites(std::string_view release) {
  const std::array<unsigned, 3> version = ParseRelease(release);
  const bool fixed_6_18 = version[0] == 6 && version[1] == 18 && version[2] >= 10;
  return fixed_6_18 || version[0] > 6 || (version[0] == 6 && version[1] >= 19);
}

bool KernelDropsPagesAfterWrites() {
  utsname name{};
  return uname(&name) == 0 && KernelDropsPagesAfterWrites(name.release);
}

namespace ops {
namespace {

struct Feature {
  unsigned bit;
  std::string_view name;
  bool wanted;
  std::string_view why;
};

// Whether it is asked for.
bool Choose(unsigned offered, const Feature& feature) {
  if (!feature.wanted) {
    LogInfo("FUSE: without {}: {}", feature.name, feature.why);
  } else if ((offered & feature.bit) == 0) {
    LogInfo("FUSE: without {}: this kernel or libfuse does not have it", feature.name);
  } else {
    LogInfo("FUSE: with {}: {}", feature.name, feature.why);
    return true;
  }
  return false;
}

// What libfuse does not pass on, of what the kernel offers. Without them the kernel asks for a
// file's attributes before each chown, and for security.capability before each write.
std::uint32_t ChooseForReply(unsigned offered) {
  if (!kInitReplyCanBeChanged) offered = 0;
  const Feature both{
      FUSE_HANDLE_KILLPRIV_V2, "HANDLE_KILLPRIV_V2", true,
      "the server clears setuid, setgid and capabilities on write, truncate and chown"};
  const Feature some{FUSE_HANDLE_KILLPRIV, "HANDLE_KILLPRIV", true,
                     "the server clears setuid and setgid on write, truncate and chown"};
  if (Choose(offered, both)) return both.bit;
  return Choose(offered, some) ? some.bit : 0;
}

}  // namespace

void Init(void* userdata, fuse_conn_info* connection) {
  auto& filesystem = *static_cast<Filesystem*>(userdata);
  const FilesystemOptions& options = filesystem.options;
  const std::array features{
      Feature{FUSE_CAP_ASYNC_READ, "ASYNC_READ", true, "read-ahead keeps several reads in flight"},
      Feature{FUSE_CAP_ASYNC_DIO, "ASYNC_DIO", true, "O_DIRECT requests run side by side"},
      Feature{FUSE_CAP_PARALLEL_DIROPS, "PARALLEL_DIROPS", true,
              "look-ups in one directory run side by side"},
      Feature{FUSE_CAP_READDIRPLUS, "READDIRPLUS", true, "a listing brings the attributes along"},
      Feature{FUSE_CAP_READDIRPLUS_AUTO, "READDIRPLUS_AUTO", true,
              "only while somebody looks at the attributes"},
      Feature{FUSE_CAP_ATOMIC_O_TRUNC, "ATOMIC_O_TRUNC", true, "open and truncate in one request"},
      Feature{FUSE_CAP_POSIX_LOCKS, "POSIX_LOCKS", true, "fcntl locks hold across clients"},
      Feature{FUSE_CAP_FLOCK_LOCKS, "FLOCK_LOCKS", true, "flock holds across clients"},
      Feature{FUSE_CAP_DONT_MASK, "DONT_MASK", true,
              "the server applies the umask, because a default ACL replaces it"},
      Feature{FUSE_CAP_POSIX_ACL, "POSIX_ACL", options.acls, "access control lists count"},
      Feature{FUSE_CAP_EXPLICIT_INVAL_DATA, "EXPLICIT_INVAL_DATA", false,
              "pages of a file that has another size than before are dropped"},
      Feature{FUSE_CAP_CACHE_SYMLINKS, "CACHE_SYMLINKS", true,
              "where a symlink points never changes"},
      Feature{FUSE_CAP_AUTO_INVAL_DATA, "AUTO_INVAL_DATA", false,
              "it asks for attributes before cached reads; opens drop changed pages instead"},
      Feature{FUSE_CAP_WRITEBACK_CACHE, "WRITEBACK_CACHE", options.writeback,
              options.writeback ? "asked for: this mount is the only writer"
                                : "other clients must see a write when it has returned"},
      Feature{FUSE_CAP_SPLICE_READ, "SPLICE_READ", false,
              "requests are read into registered memory"},
      Feature{FUSE_CAP_SPLICE_WRITE, "SPLICE_WRITE", false, "replies come from registered memory"},
      Feature{FUSE_CAP_SPLICE_MOVE, "SPLICE_MOVE", false, "registered pages stay ours"},
  };
  for (const Feature& feature : features) {
    connection->want &= ~feature.bit;
    if (Choose(connection->capable, feature)) connection->want |= feature.bit;
  }
  connection->want &= ~unsigned{FUSE_CAP_HANDLE_KILLPRIV};
  const bool asks = options.asks_at_opendir;
  const Feature unopened{FUSE_CAP_NO_OPENDIR_SUPPORT, "NO_OPENDIR_SUPPORT", !asks,
                         asks ? "the server may refuse whom this kernel does not"
                              : "who lists a directory does not open it first"};
  filesystem.answers_opendir = !Choose(connection->capable, unopened);
  // As much of fuse_init_in as every kernel sends.
  struct Asked {
    std::uint32_t major, minor, max_readahead, flags;
  };
  const auto asked = Worker::Current().current_message().Body<Asked>();
  filesystem.init_flags = ChooseForReply(asked.flags);

  LogInfo("FUSE: {} direct writes: {}", options.direct_writes ? "with" : "without",
          options.direct_writes ? "what is only written is not copied into the page cache"
                                : "the kernel is older than 6.19, or writes back");
  const std::uint32_t transfer = filesystem.transfer_bytes;
  connection->max_write = transfer;
  connection->max_read = transfer;  // as the mount option says; libfuse wants them to agree
  connection->max_readahead = std::max(connection->max_readahead, transfer);
  // How many background requests (read-ahead, O_DIRECT) the kernel keeps in flight.
  connection->max_background = 128;
  connection->congestion_threshold = 96;
  connection->time_gran = 1;
}

}  // namespace ops
}  // namespace rdfs::fs::fuse
