#include "tools/copy/file/file.h"

#include <dirent.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>

#include "tools/copy/file/beneath.h"
#include "transport/base/fd.h"

namespace rdfs::copy {
namespace {

// Names are asked for so many bytes at a time: a few hundred.
constexpr std::size_t kBatch = 32 << 10;
// linux/magic.h has it only in newer versions.
constexpr long kCifs = 0xFF534D42;
constexpr long kSmb2 = 0xFE534D42;
constexpr long kCeph = 0x00C36400;
constexpr long kFuse = 0x65735546;

// A network file system copies between two files of its server.
bool CopiesByItself(int fd) {
  struct statfs info {};
  if (fstatfs(fd, &info) != 0) return false;
  const long type = info.f_type;
  return type == NFS_SUPER_MAGIC || type == kCifs || type == kSmb2 || type == kCeph ||
         type == kFuse;
}

// A file that somebody has a lease of (fcntl(2)), as Samba and an NFS server do: who does not wait
// is refused it. But only a regular file is waited for. EAGAIN where that cannot be.
Fd OpenBehindLease(int directory, const std::string& path, int flags) {
  const Fd led(openat(directory, path.c_str(), O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW)));
  struct stat info {};
  if (!led.valid() || fstat(led.get(), &info) != 0) return {};
  Fd opened;
  if (S_ISREG(info.st_mode)) {
    const std::string itself = fmt::format("/proc/self/fd/{}", led.get());
    opened = Fd(open(itself.c_str(), (flags & ~(O_NONBLOCK | O_NOFOLLOW | O_CREAT)) | O_CLOEXEC));
    if (opened.valid() || errno != ENOENT) return opened;
  }
  errno = EAGAIN;
  return opened;
}

class LocalFile final : public File {
 public:
  // Without a descriptor: the current directory.
  explicit LocalFile(Fd fd) : own_(std::move(fd)), fd_(own_.valid() ? own_.get() : AT_FDCWD) {}

  FilePtr Open(const std::string& path, int flags, mode_t mode) override {
    Fd opened(openat(fd_, path.c_str(), flags | O_CLOEXEC, mode));
    if (!opened.valid() && errno == EAGAIN && (flags & O_NONBLOCK) != 0) {
      opened = OpenBehindLease(fd_, path, flags);
    }
    return Made(std::move(opened));
  }
  FilePtr OpenBeneath(const std::string& path, int flags) override {
    auto opened = copy::OpenBeneath(fd_, path, flags);
    if (opened.ok()) return Made(*std::move(opened));
    errno = opened.status().errno_value();
    return nullptr;
  }
  int Stat(const std::string& path, bool follow, struct stat& out) override {
    if (path.empty()) return fstat(fd_, &out);
    return fstatat(fd_, path.c_str(), &out, follow ? 0 : AT_SYMLINK_NOFOLLOW);
  }
  int ReadLink(const std::string& path, std::string& target) override {
    target.resize(PATH_MAX);
    const ssize_t got = readlinkat(fd_, path.c_str(), target.data(), target.size());
    if (got < 0) return -1;
    target.resize(static_cast<std::size_t>(got));
    return 0;
  }
  int MakeDirectory(const std::string& name, mode_t mode) override {
    return mkdirat(fd_, name.c_str(), mode);
  }
  int MakeSymlink(const std::string& target, const std::string& name) override {
    return symlinkat(target.c_str(), fd_, name.c_str());
  }
  int MakeNode(const std::string& name, mode_t mode, dev_t device) override {
    return mknodat(fd_, name.c_str(), mode, device);
  }
  int Link(const std::string& name, File& to, const std::string& new_name) override {
    if (to.descriptor() != -1) {
      return linkat(fd_, name.c_str(), to.descriptor(), new_name.c_str(), 0);
    }
    errno = EXDEV;
    return -1;
  }
  int Rename(const std::string& name, const std::string& new_name) override {
    return renameat(fd_, name.c_str(), fd_, new_name.c_str());
  }
  int Remove(const std::string& name, bool is_directory) override {
    return unlinkat(fd_, name.c_str(), is_directory ? AT_REMOVEDIR : 0);
  }
  int ReadNames(std::deque<std::string>& out) override;

  int SetMode(const std::string& name, mode_t mode) override {
    // A symlink that has taken the name since: EOPNOTSUPP. Before Linux 6.6 libc needs /proc.
    return name.empty() ? fchmod(fd_, mode)
                        : fchmodat(fd_, name.c_str(), mode, AT_SYMLINK_NOFOLLOW);
  }
  int SetOwner(const std::string& name, uid_t uid, gid_t gid) override {
    return name.empty() ? fchown(fd_, uid, gid)
                        : fchownat(fd_, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW);
  }
  int SetTimes(const std::string& name, const std::array<timespec, 2>& times) override {
    return name.empty() ? futimens(fd_, times.data())
                        : utimensat(fd_, name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
  }
  ssize_t ListXattrs(const std::string& name, char* out, std::size_t size) override {
    if (!name.empty()) return llistxattr(PathOf(name).c_str(), out, size);
    const ssize_t got = flistxattr(fd_, out, size);
    return IsPathOnly(got) ? listxattr(PathOf("").c_str(), out, size) : got;
  }
  ssize_t GetXattr(const std::string& name, const char* attribute, char* out,
                   std::size_t size) override {
    if (!name.empty()) return lgetxattr(PathOf(name).c_str(), attribute, out, size);
    const ssize_t got = fgetxattr(fd_, attribute, out, size);
    return IsPathOnly(got) ? getxattr(PathOf("").c_str(), attribute, out, size) : got;
  }
  int SetXattr(const std::string& name, const char* attribute, const std::string& value) override {
    return name.empty() ? fsetxattr(fd_, attribute, value.data(), value.size(), 0)
                        : lsetxattr(PathOf(name).c_str(), attribute, value.data(), value.size(), 0);
  }
  int RemoveXattr(const std::string& name, const char* attribute) override {
    return name.empty() ? fremovexattr(fd_, attribute)
                        : lremovexattr(PathOf(name).c_str(), attribute);
  }
  [[nodiscard]] bool IsPrivileged() const override { return geteuid() == 0; }
  std::optional<uid_t> Maker() override { return geteuid(); }

  int Lock() override { return flock(fd_, LOCK_EX | LOCK_NB); }

  ssize_t Read(MutableByteSpan out, std::uint64_t offset) override {
    return pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
  }
  ssize_t Write(ByteSpan bytes, std::uint64_t offset) override {
    return pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  }
  int Truncate(std::uint64_t size) override { return ftruncate(fd_, static_cast<off_t>(size)); }
  int PunchHole(std::uint64_t offset, std::uint64_t length) override {
    return fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(length));
  }
  off_t Seek(std::uint64_t offset, int whence) override {
    return lseek(fd_, static_cast<off_t>(offset), whence);
  }
  // Each close(2) asks the file system (FUSE_FLUSH, NFS's commit), not the last one alone.
  int Flush() override {
    const int again = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    return again < 0 ? -1 : close(again);
  }
  int Sync() override {
    if (fdatasync(fd_) != 0) return -1;
    (void)posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
  }
  ssize_t CopyRange(File& to, std::uint64_t offset, std::size_t length) override {
    if (to.descriptor() < 0 || !CopiesByItself(to.descriptor())) {
      errno = EXDEV;
      return -1;
    }
    auto in = static_cast<off64_t>(offset);
    off64_t out = in;
    return copy_file_range(fd_, &in, to.descriptor(), &out, length, 0);
  }

  [[nodiscard]] int descriptor() const override { return fd_; }

 private:
  static FilePtr Made(Fd fd) {
    return fd.valid() ? std::make_shared<LocalFile>(std::move(fd)) : nullptr;
  }
  // There are no extended attributes by a directory and a name.
  [[nodiscard]] std::string PathOf(const std::string& name) const {
    if (fd_ == AT_FDCWD) return name;
    return fmt::format("/proc/self/fd/{}{}{}", fd_, name.empty() ? "" : "/", name);
  }
  // O_PATH knows none either.
  static bool IsPathOnly(ssize_t got) { return got < 0 && errno == EBADF; }

  const Fd own_;
  const int fd_;
};

// getdents64(2) itself: readdir(3) would cost a stream for each directory.
int LocalFile::ReadNames(std::deque<std::string>& out) {
  alignas(dirent64) std::array<char, kBatch> buffer;  // NOLINT: filled before it is read
  const long got = syscall(SYS_getdents64, fd_, buffer.data(), buffer.size());
  for (std::size_t at = 0; got > 0 && at < static_cast<std::size_t>(got);) {
    const char* record = &buffer[at];
    unsigned short length = 0;
    std::memcpy(&length, record + offsetof(dirent64, d_reclen), sizeof(length));
    const char* name = record + offsetof(dirent64, d_name);
    if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) out.emplace_back(name);
    at += length;
  }
  return got < 0 ? -1 : static_cast<int>(got > 0);
}

}  // namespace

FilePtr Here() { return std::make_shared<LocalFile>(Fd()); }

}  // namespace rdfs::copy
