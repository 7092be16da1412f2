#include "fs/fuse/command/mount_point.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "transport/base/fd.h"
#include "transport/base/memlock.h"
#include "transport/base/search_path.h"

namespace rdfs::fs::fuse {
namespace {

Status Refuse(int errno_value, std::string sentence) {
  return {Code::kInvalidArgument, errno_value, std::move(sentence)};
}

Status ExplainMissing(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
      // mkdir makes nothing in its place. (With '/' behind it lstat(2) follows it.)
      if (struct stat info{};
          lstat(path.substr(0, path.find_last_not_of('/') + 1).c_str(), &info) == 0 &&
          S_ISLNK(info.st_mode)) {
        return Refuse(error, fmt::format("the mount point {} is a symlink that leads nowhere; "
                                         "remove it",
                                         path));
      }
      return Refuse(error,
                    fmt::format("the mount point {0} is not there; make it: mkdir {0}", path));
    case ENOTDIR:
      return Refuse(error, fmt::format("the mount point {} is not a directory; name one", path));
    case ENOTCONN:
    case EIO:
      return Refuse(error, fmt::format("a mount at {0} has lost its program; end it first: "
                                       "fusermount3 -u {0}",
                                       path));
    case EACCES:
      return Refuse(error, fmt::format("you may not enter the mount point {}; use a directory of "
                                       "your own",
                                       path));
    default:
      return Status::FromErrno(error, "the mount point " + path + " cannot be used");
  }
}

// The whole of a small file of the kernel's or the system's; empty when it cannot be read.
std::string ReadText(const std::string& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

Status CheckEmpty(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (!directory) return ExplainMissing(path, errno);
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    return Refuse(ENOTEMPTY,
                  fmt::format("the mount point {} is not empty, and what is in it would be hidden; "
                              "name an empty directory",
                              path));
  }
  return {};
}

// mountinfo writes blanks, newlines and backslashes as three octal digits.
std::string DecodeOctal(std::string_view text) {
  const auto digit = [&](std::size_t at, char most) { return text[at] >= '0' && text[at] <= most; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && text.size() - i > 3 && digit(i + 1, '3') && digit(i + 2, '7') &&
        digit(i + 3, '7')) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Calls `visit` with each line until it returns true; returns whether one did.
template <typename Visit>
bool AnyLine(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (visit(text.substr(0, end))) return true;
    if (end == text.npos) return false;
    text.remove_prefix(end + 1);
  }
  return false;
}

struct MountLine {
  std::string_view path;  // as the kernel writes it
  MountEntry entry;
};

// "36 35 98:0 /root /mount/point options ... - type source options"; all empty for another line.
MountLine ParseMountLine(std::string_view line) {
  std::array<std::string_view, 5> fields;
  std::string_view rest = line;
  for (std::string_view& field : fields) {
    const std::size_t blank = rest.find(' ');
    if (blank == rest.npos) return {};
    field = rest.substr(0, blank);
    rest.remove_prefix(blank + 1);
  }
  constexpr std::string_view kSeparator = " - ";
  const std::size_t separator = rest.find(kSeparator);
  if (separator == rest.npos) return {};
  rest.remove_prefix(separator + kSeparator.size());
  return {fields[4], {fields[2], rest.substr(0, rest.find(' '))}};
}

// What root does so that this user may use the file at `path`: into its group with him, where that
// may do `group_bits` and is not root's own; else `otherwise`.
std::string LetIn(const std::string& path, mode_t group_bits, std::string otherwise) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || info.st_gid == 0) return otherwise;
  if ((info.st_mode & group_bits) != group_bits) return otherwise;
  const struct group* const of_file = getgrgid(info.st_gid);
  const passwd* const user = getpwuid(geteuid());
  if (of_file == nullptr || user == nullptr) return otherwise;
  return fmt::format("usermod -aG {} {}, and log in again", of_file->gr_name, user->pw_name);
}

// False for a mount whose program is gone.
bool CanBeOpened(const std::string& directory) {
  const Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  return fd.valid() || errno != ENOTCONN;
}

}  // namespace

std::optional<MountEntry> FindMount(std::string_view mountinfo, std::string_view path) {
  std::optional<MountEntry> found;
  AnyLine(mountinfo, [&](std::string_view text) {
    const MountLine line = ParseMountLine(text);
    if (!line.path.empty() && DecodeOctal(line.path) == path) found = line.entry;
    return false;
  });
  return found;
}

bool IsDeviceMounted(std::string_view mountinfo, std::string_view device) {
  return AnyLine(mountinfo, [device](std::string_view text) {
    return ParseMountLine(text).entry.device == device;
  });
}

std::string ReadMountInfo() { return ReadText("/proc/self/mountinfo"); }

std::string PathOfStaleMount(const std::string& path) {
  std::string_view trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.remove_suffix(1);
  const std::size_t slash = trimmed.rfind('/');
  const std::string parent =
      slash == trimmed.npos ? "." : std::string(trimmed.substr(0, std::max<std::size_t>(slash, 1)));
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(parent.c_str(), nullptr), free);
  if (!resolved) return std::string(trimmed);
  std::string absolute = resolved.get();
  if (!absolute.ends_with('/')) absolute += '/';
  return absolute + std::string(slash == trimmed.npos ? trimmed : trimmed.substr(slash + 1));
}

Result<std::string> CheckMountPoint(const std::string& path, const std::string& mounts) {
  if (path.empty()) return Refuse(EINVAL, "the mount point is empty; name a directory");
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(path.c_str(), nullptr), free);
  if (!resolved) return ExplainMissing(path, errno);
  std::string absolute = resolved.get();
  struct stat info {};
  if (stat(absolute.c_str(), &info) != 0) return ExplainMissing(path, errno);
  if (!S_ISDIR(info.st_mode)) return ExplainMissing(path, ENOTDIR);
  const std::string mountinfo = ReadText(mounts);
  if (const std::optional<MountEntry> there = FindMount(mountinfo, absolute)) {
    // x-systemd.automount's, which waits for this very mount: a look inside would wait for it, too.
    if (there->type == "autofs" && geteuid() == 0) return absolute;
    // The kernel may know its attributes still; one without a program cannot be opened.
    if (there->type == "fuse.rdfs" && !CanBeOpened(absolute)) {
      return ExplainMissing(path, ENOTCONN);
    }
    return Refuse(
        EBUSY, fmt::format("something is mounted on {0} already; end it (fusermount3 -u {0}, or as "
                           "root umount {0}) or name another directory",
                           absolute));
  }
  RDFS_RETURN_IF_ERROR(CheckEmpty(absolute));
  // fusermount3 demands it of everybody but root, so that nobody covers the directories of others.
  if (geteuid() != 0 && access(absolute.c_str(), W_OK) != 0) {
    if (errno == EROFS) {
      return Refuse(EROFS,
                    fmt::format("the mount point {} is on a read-only file system, where only root "
                                "mounts; name a directory elsewhere",
                                absolute));
    }
    return Refuse(EACCES, fmt::format("you may not write to the mount point {}; use a directory of "
                                      "your own",
                                      absolute));
  }
  return absolute;
}

Status CheckFuse(const std::string& device) {
  const Fd fd(open(device.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    const int error = errno;
    if (error == EACCES || error == EPERM) {
      return Refuse(error,
                    fmt::format("you may not open {0}; as root: {1} (in a container: "
                                "start it with --device {0} --cap-add SYS_ADMIN)",
                                device, LetIn(device, S_IRGRP | S_IWGRP, "chmod 666 " + device)));
    }
    return Refuse(error,
                  fmt::format("there is no working {0}; as root: modprobe fuse (in a container: "
                              "start it with --device {0})",
                              device));
  }
  return geteuid() == 0 ? Status() : CheckFusermount(SearchPath());
}

Status CheckFusermount(const std::string& search_path) {
  if (!FindProgram("fusermount3", search_path).empty()) return {};
  const std::string closed = FindFile("fusermount3", search_path);
  if (!closed.empty()) {
    return Refuse(EACCES,
                  fmt::format("you may not run {}, which mounts for ordinary users; as root: {}",
                              closed, LetIn(closed, S_IXGRP, "chmod 4755 " + closed)));
  }
  return Refuse(ENOENT,
                "there is no fusermount3, which mounts for ordinary users; install the package "
                "fuse3");
}

bool AllowsOthers(std::string_view fuse_conf) {
  return AnyLine(fuse_conf, [](std::string_view line) {
    constexpr std::string_view kBlank = " \t\r";
    const std::size_t begin = line.find_first_not_of(kBlank);
    if (begin == line.npos) return false;
    line = line.substr(begin, line.find_last_not_of(kBlank) - begin + 1);
    return line == "user_allow_other";
  });
}

Status CheckAllowOther(const std::string& fuse_conf) {
  if (geteuid() == 0 || AllowsOthers(ReadText(fuse_conf))) return {};
  return Refuse(EPERM,
                fmt::format("-o allow_other is root's unless {} has a line user_allow_other; "
                            "have it added, or leave the option out",
                            fuse_conf));
}

Status CheckMemlock(std::uint64_t memlock_bytes) {
  // The least that one lane pins: its buffers, and the control messages of two connections.
  constexpr std::uint64_t kLeastBytes = 2U << 20U;
  if (memlock_bytes >= kLeastBytes) return {};
  return {Code::kResourceExhausted, ENOMEM,
          fmt::format("only {} KiB of memory may be locked, and RDMA needs 2048 at least; {}",
                      memlock_bytes >> 10U, kMemlockRemedy)};
}

}  // namespace rdfs::fs::fuse
