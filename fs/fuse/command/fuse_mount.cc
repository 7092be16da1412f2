#include "fs/fuse/command/fuse_mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fuse3/fuse_log.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "fs/fuse/command/mount_point.h"
#include "fs/fuse/worker/init_reply.h"
#include "transport/base/log.h"
#include "transport/ssh/child_process.h"

namespace rdfs::fs::fuse {
namespace {

// A value inside a comma list of libfuse's.
std::string Escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// libfuse's own messages, by our log.
void LogOfFuse(fuse_log_level level, const char* format, va_list arguments) {
  std::array<char, 512> line{};
  // NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): libfuse's format
  (void)vsnprintf(line.data(), line.size(), format, arguments);
  std::string_view text = line.data();
  while (text.ends_with('\n')) text.remove_suffix(1);
  Log(level <= FUSE_LOG_ERR ? LogLevel::kWarn : LogLevel::kDebug, "libfuse: {}", text);
}

// Keeps what fusermount3 and libfuse print to standard error while it lives, so that the user gets
// one sentence instead of theirs.
class StandardErrorCatcher {
 public:
  StandardErrorCatcher()
      : caught_(memfd_create("stderr", MFD_CLOEXEC)), saved_(fcntl(2, F_DUPFD_CLOEXEC, 3)) {
    if (caught_.valid() && saved_.valid()) dup2(caught_.get(), STDERR_FILENO);
  }
  StandardErrorCatcher(const StandardErrorCatcher&) = delete;
  StandardErrorCatcher& operator=(const StandardErrorCatcher&) = delete;
  ~StandardErrorCatcher() { Restore(); }

  // The last line that was caught.
  std::string Restore() {
    if (!saved_.valid() || !caught_.valid()) return {};
    dup2(saved_.get(), STDERR_FILENO);
    saved_.Reset();
    std::array<char, 1024> text{};
    const ssize_t got = pread(caught_.get(), text.data(), text.size(), 0);
    std::string_view line(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (line.ends_with('\n')) line.remove_suffix(1);
    return std::string(line.substr(line.rfind('\n') + 1));
  }

 private:
  Fd caught_;
  Fd saved_;
};

Status RaiseReadAhead(const std::string& device, unsigned kib) {
  const std::string path = fmt::format("/sys/class/bdi/{}/read_ahead_kb", device);
  const Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open " + path);
  const std::string text = std::to_string(kib);
  if (write(fd.get(), text.data(), text.size()) < 0) {
    return Status::FromErrno(errno, "cannot write to " + path);
  }
  return {};
}

// What is behind fusermount3's own words, where they do not say it: it looks at the mount point as
// root, whom another user's FUSE mount lets in only with allow_other.
std::string_view Why(const std::string& mount_point, std::string_view said) {
  constexpr std::int64_t kFuse = 0x65735546;  // statfs(2)
  struct statfs info {};
  if (geteuid() == 0 || said.find("failed to access mountpoint") == said.npos ||
      statfs(mount_point.c_str(), &info) != 0 || info.f_type != kFuse) {
    return {};
  }
  return "; it lies inside another FUSE mount without allow_other, which fusermount3 may not look "
         "into: name a directory outside of that";
}

Status UnmountPath(const std::string& path, bool detach) {
  if (geteuid() == 0) {
    if (umount2(path.c_str(), UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) == 0) return {};
    return Status::FromErrno(errno, "cannot unmount " + path);
  }
  std::vector<std::string> command{"fusermount3", "-u", "-q"};
  if (detach) command.emplace_back("-z");
  command.emplace_back("--");
  command.push_back(path);
  using transport::ssh::ChildProcess;
  RDFS_ASSIGN_OR_RETURN(ChildProcess::Started started,
                        ChildProcess::Start(command, /*own_session=*/true));
  const std::optional<int> status = started.process->Wait(TimePoint::max());
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return {};
  return {Code::kErrno, EBUSY, "fusermount3 cannot unmount " + path};
}

}  // namespace

Status EndStaleMount(const std::string& path) {
  const std::string absolute = PathOfStaleMount(path);
  const std::string mountinfo = ReadMountInfo();
  const std::optional<MountEntry> there = FindMount(mountinfo, absolute);
  if (!there || there->type != "fuse.rdfs") {
    return {Code::kNotFound, absolute + " is no mount of ours"};
  }
  // Nobody loses anything by detaching: what is still open in it has been lost already.
  return UnmountPath(absolute, /*detach=*/true);
}

std::vector<std::string> SessionArguments(const Options& options, std::uint32_t max_transfer_bytes,
                                          bool root) {
  std::string words = "default_permissions,subtype=rdfs,fsname=" + Escaped(options.source_text) +
                      ",max_read=" + std::to_string(max_transfer_bytes);
  const auto add = [&](bool wanted, std::string_view word) {
    if (wanted) words.append(",").append(word);
  };
  // libfuse sets these two unless it is told otherwise, and fusermount3 for everybody but root.
  add(true, root && options.set_uid ? "suid" : "nosuid");
  add(true, root && options.devices ? "dev" : "nodev");
  add(options.no_exec, "noexec");
  add(options.no_atime, "noatime");
  add(options.read_only, "ro");
  add(options.allow_other, "allow_other");
  return {"rdfs", "-o" + words};
}

Result<std::unique_ptr<FuseMount>> FuseMount::Create(const Options& options,
                                                     const std::string& mount_point,
                                                     Filesystem& filesystem) {
  fuse_set_log_func(LogOfFuse);
  const std::vector<std::string> words =
      SessionArguments(options, filesystem.transfer_bytes, geteuid() == 0);
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  for (const std::string& word : words) {
    if (fuse_opt_add_arg(&arguments, word.c_str()) != 0) {
      return Status(Code::kResourceExhausted, "no memory left");
    }
  }
  fuse_session* session =
      fuse_session_new(&arguments, &Operations(), sizeof(fuse_lowlevel_ops), &filesystem);
  fuse_opt_free_args(&arguments);
  if (session == nullptr) return Status(Code::kInternal, "libfuse refuses its arguments");
  StandardErrorCatcher noise;
  const int failed = fuse_session_mount(session, mount_point.c_str());
  const std::string said = noise.Restore();
  if (failed != 0) {
    fuse_session_destroy(session);
    return Status(Code::kUnavailable,
                  fmt::format("cannot mount on {}: {}{}", mount_point,
                              said.empty() ? "the kernel refuses it; in a container it needs "
                                             "--cap-add SYS_ADMIN"
                                           : said,
                              Why(mount_point, said)));
  }
  std::unique_ptr<FuseMount> mount(new FuseMount(session, mount_point));
  const int fd = fuse_session_fd(session);
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return Status::FromErrno(errno, "fcntl of /dev/fuse");
  }
  RDFS_RETURN_IF_ERROR(SendRepliesOurselves(session));
  return mount;
}

FuseMount::~FuseMount() {
  End();
  fuse_session_destroy(session_);  // closes /dev/fuse
}

void FuseMount::End() {
  if (std::exchange(ended_, true)) return;
  fuse_session_exit(session_);  // so that libfuse is silent about replies that nobody awaits
  const std::string mountinfo = ReadMountInfo();
  // One that was detached is nowhere any more: its path may be somebody else's mount by now, and
  // libfuse takes away what is on the path.
  const bool elsewhere = !mountinfo.empty() && !device_.empty() && !IsOnItsPath(mountinfo);
  if (!detached_ && !elsewhere) {
    fuse_session_unmount(session_);
    return;
  }
  detached_ = true;
  // An unmount may wait in the kernel until /dev/fuse is closed. The number stays libfuse's, which
  // closes it with the session.
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.valid()) dup3(null.get(), fuse_session_fd(session_), O_CLOEXEC);
}

// With autofs, or another mount, what is there without ours is not ours to unmount.
bool FuseMount::IsOnItsPath(std::string_view mountinfo) const {
  const std::optional<MountEntry> there = FindMount(mountinfo, mount_point_);
  return there && (device_.empty() || there->device == device_);
}

Status FuseMount::Unmount() {
  if (!IsOnItsPath(ReadMountInfo())) {
    detached_ = true;
    return {Code::kNotFound, mount_point_ + " is not mounted any more"};
  }
  return UnmountPath(mount_point_, /*detach=*/false);
}

Status FuseMount::Detach() {
  RDFS_RETURN_IF_ERROR(UnmountPath(mount_point_, /*detach=*/true));
  detached_ = true;
  return {};
}

Status FuseMount::WaitUntilUp(unsigned read_ahead_kib) {
  // The kernel answers this once INIT is done, which would set the read-ahead back.
  struct stat root {};
  if (stat(mount_point_.c_str(), &root) != 0) {
    return Status::FromErrno(errno, "the mount on " + mount_point_ + " does not answer");
  }
  device_ = fmt::format("{}:{}", major(root.st_dev), minor(root.st_dev));
  if (geteuid() != 0 || read_ahead_kib == 0) return {};
  const Status raised = RaiseReadAhead(device_, read_ahead_kib);
  if (!raised.ok()) LogInfo("the read-ahead stays as it is: {}", raised.message());
  return {};
}

}  // namespace rdfs::fs::fuse
