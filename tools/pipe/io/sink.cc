#include "tools/pipe/io/sink.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "tools/pipe/wire/digest.h"
#include "transport/base/random.h"

namespace rdfs::pipe {
namespace {

constexpr int kPipeBytes = 1 << 20;  // as in source.cc
constexpr std::string_view kPartialSuffix = ".rdpart";
// What may be read again soon is left in the page cache: small files, and what a file begins with.
constexpr std::uint64_t kCachedHead = 32 << 20;
// Direct I/O in whole pages, of which a buffered write has nothing.
constexpr std::uint64_t kPage = 4096;
// Zeros for a hole in a stream.
constexpr std::size_t kZeros = 64 << 10;
// The kernel's bound.
constexpr std::size_t kMostXattr = 64 << 10;

struct Place {
  std::string folder, name;
};

Place Split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// Where `path` leads: through symlinks, also to what is not there yet, so that what they point to
// is made or replaced and not they.
Place PlaceOf(const std::string& path) {
  constexpr int kMostLinks = 40;  // path_resolution(7)
  std::string whole = path;
  for (int i = 0; i < kMostLinks; ++i) {
    if (char* resolved = realpath(whole.c_str(), nullptr); resolved != nullptr) {
      whole = resolved;
      std::free(resolved);  // NOLINT: as realpath(3) says
      break;
    }
    std::array<char, PATH_MAX> target;  // NOLINT: filled before it is read
    const ssize_t length = readlink(whole.c_str(), target.data(), target.size());
    if (length <= 0) break;
    const std::string_view to(target.data(), static_cast<std::size_t>(length));
    whole = to.starts_with('/') ? std::string(to) : Split(whole).folder + "/" + std::string(to);
  }
  return Split(whole);
}

bool IsInPlace(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

}  // namespace

Status Sink::Failure(int error) const {
  return Status::FromErrno(error, "cannot write " + NameInMessages());
}

std::string Sink::NameInMessages() const {
  return options_.path.empty() ? "standard output" : options_.path;
}

Status Sink::Check(const SinkOptions& options) {
  if (options.path.empty()) {
    if (!options.keep_partial && !options.resume) return {};
    return {Code::kInvalidArgument, "--keep-partial and --resume need a FILE"};
  }
  struct stat info {};
  if (stat(options.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Status::FromErrno(EISDIR, "cannot write " + options.path);
  }
  if (IsInPlace(options.path)) {
    if (options.keep_partial || options.resume) {
      return {Code::kInvalidArgument,
              "--keep-partial and --resume need a file: " + options.path +
                  " is written in place, and has no part to keep or to go on with"};
    }
    if (access(options.path.c_str(), W_OK) == 0) return {};
    return Status::FromErrno(errno, "cannot write " + options.path);
  }
  const Place place = PlaceOf(options.path);
  if (place.name.empty()) return Status::FromErrno(EISDIR, "cannot write " + options.path);
  if (access(place.folder.c_str(), W_OK | X_OK) == 0) return {};
  return Status::FromErrno(errno, "cannot make " + options.path + " in " + place.folder);
}

Result<std::unique_ptr<Sink>> Sink::Open(const SinkOptions& options, const StopFlag& stop) {
  std::unique_ptr<Sink> sink(new Sink(options, stop));
  if (options.program != nullptr) return sink;
  const bool in_place = options.path.empty() || IsInPlace(options.path);
  RDFS_RETURN_IF_ERROR(in_place ? sink->OpenInPlace() : sink->OpenBeside());
  return sink;
}

Sink::~Sink() {
  if (!done_) (void)Abandon(0);
}

Status Sink::OpenInPlace() {
  fd_ = STDOUT_FILENO;
  if (!options_.path.empty()) {
    do {
      owned_.Reset(open(options_.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    } while (!owned_.valid() && errno == EINTR && !*stop_);
    if (!owned_.valid()) return Status::FromErrno(errno, "cannot open " + options_.path);
    fd_ = owned_.get();
  }
  struct stat info {};
  if (fstat(fd_, &info) == 0 && S_ISFIFO(info.st_mode)) (void)fcntl(fd_, F_SETPIPE_SZ, kPipeBytes);
  return {};
}

Status Sink::OpenBeside() {
  const Place place = PlaceOf(options_.path);
  folder_path_ = place.folder;
  final_name_ = place.name;
  folder_.Reset(open(place.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.valid()) return Status::FromErrno(errno, "cannot open " + place.folder);
  // Until it is whole a file that replaces another one is ours alone: that one may be private.
  if (faccessat(folder_.get(), final_name_.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) mode_ = 0600;
  RDFS_RETURN_IF_ERROR(options_.keep_partial || options_.resume ? TakePartialName()
                                                                : TakeRandomName());
  fd_ = owned_.get();
  ranged_ = true;
  OpenDirect();
  return {};
}

void Sink::OpenDirect() {
  struct statx info {};
  if (statx(fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0 ||
      (info.stx_mask & STATX_DIOALIGN) == 0 || info.stx_dio_offset_align == 0 ||
      kPage % info.stx_dio_offset_align != 0 || kPage % info.stx_dio_mem_align != 0) {
    return;
  }
  const std::string itself = "/proc/self/fd/" + std::to_string(fd_);
  direct_.Reset(open(itself.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
}

bool Sink::GoesDirect(std::uint64_t offset, ByteSpan bytes) const {
  return direct_.valid() && offset >= kCachedHead && offset % kPage == 0 &&
         bytes.size() % kPage == 0 &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage == 0 &&  // NOLINT: an address
         !direct_refused_;
}

void Sink::BeAsOpenAsReplaced() const {
  struct stat replaced {};
  struct stat ours {};
  if (fstatat(folder_.get(), final_name_.c_str(), &replaced, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISREG(replaced.st_mode)) return;
  if (fchown(fd_, replaced.st_uid, replaced.st_gid) != 0) {
    (void)!fchown(fd_, static_cast<uid_t>(-1), replaced.st_gid);
  }
  // The rights of a group are another one's where it could not be kept, and with an ACL they are
  // the mask of it.
  const bool same_group = fstat(fd_, &ours) == 0 && ours.st_gid == replaced.st_gid && TakeAcl();
  (void)fchmod(fd_, replaced.st_mode & (same_group ? 0777U : 0707U));
}

// Whether it has the one that the replaced file has, or none as that.
bool Sink::TakeAcl() const {
  constexpr const char* kName = "system.posix_acl_access";
  const std::string replaced = fmt::format("/proc/self/fd/{}/{}", folder_.get(), final_name_);
  std::string acl(kMostXattr, '\0');
  const ssize_t got = lgetxattr(replaced.c_str(), kName, acl.data(), acl.size());
  if (got >= 0) return fsetxattr(fd_, kName, acl.data(), static_cast<std::size_t>(got), 0) == 0;
  const auto is_none = [] { return errno == ENODATA || errno == ENOTSUP; };
  // The folder may have given it one.
  return is_none() && (fremovexattr(fd_, kName) == 0 || is_none());
}

Status Sink::TakeRandomName() {
  for (int tries = 0; tries < 16; ++tries) {
    temporary_name_ = fmt::format(".rdrecv-{:016x}", RandomU64());
    owned_.Reset(openat(folder_.get(), temporary_name_.c_str(),
                        O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode_));
    if (owned_.valid()) return {};
    if (errno != EEXIST) break;
  }
  const int error = errno;
  temporary_name_.clear();
  return Status::FromErrno(error, "cannot make a file in " + folder_path_);
}

Status Sink::TakePartialName() {
  const std::string name = final_name_ + std::string(kPartialSuffix);
  const std::string path = folder_path_ + "/" + name;
  owned_.Reset(
      openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode_));
  if (!owned_.valid()) return Status::FromErrno(errno, "cannot make " + path);
  struct stat info {};
  if (fstat(owned_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return {Code::kInvalidArgument, path + " is in the way, and is not a file: remove it"};
  }
  // Where everybody may make files, as in /tmp. (Elsewhere a file system may choose their owner.)
  struct stat folder {};
  constexpr mode_t kForAll = S_ISVTX | S_IWOTH;
  if (info.st_uid != geteuid() && fstat(folder_.get(), &folder) == 0 &&
      (folder.st_mode & kForAll) == kForAll) {
    return {Code::kInvalidArgument, path + " is in the way, and is another user's: remove it"};
  }
  const int locked = flock(owned_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  RDFS_RETURN_IF_ERROR(JudgeLock(locked, path));
  // Who held the lock may have finished, and given the file its name.
  struct stat named {};
  const bool is_there = fstatat(folder_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0;
  if (!is_there && errno != ENOENT) return Status::FromErrno(errno, "cannot look at " + path);
  if (!is_there || named.st_ino != info.st_ino) return JudgeLock(EWOULDBLOCK, path);
  temporary_name_ = name;
  if (options_.resume) return {};
  return ftruncate(owned_.get(), 0) == 0 ? Status::Ok() : Failure(errno);
}

Result<Partial> Sink::ReadPartial() const {
  Partial partial;
  struct stat info {};
  if (!ranged_ || !(options_.resume || paused_) || fstat(fd_, &info) != 0 || info.st_size == 0) {
    return partial;
  }
  partial.bytes = static_cast<std::uint64_t>(info.st_size);
  partial.block_bytes = kLeastBlockBytes;
  while ((partial.bytes - 1) / partial.block_bytes >= kMaxBlocks) partial.block_bytes *= 2;
  // A block may be GiB: it is hashed as it is read.
  BlockDigest digest;
  std::vector<std::byte> piece(std::min(partial.bytes, kLeastBlockBytes));
  for (std::uint64_t at = 0; at < partial.bytes;) {
    const std::uint64_t length = std::min(partial.block_bytes, partial.bytes - at);
    std::uint64_t have = 0;
    while (have < length) {
      const std::size_t room = std::min<std::uint64_t>(piece.size(), length - have);
      const ssize_t got = pread(fd_, piece.data(), room, static_cast<off_t>(at + have));
      const int error = *stop_ ? EINTR : got < 0 ? errno : 0;
      if (error == EINTR && !*stop_) continue;
      if (error != 0) return Status::FromErrno(error, "cannot read " + temporary_name_);
      if (got == 0) return Status(Code::kErrno, EIO, temporary_name_ + " became shorter");
      digest.Add(ByteSpan(piece).first(static_cast<std::size_t>(got)));
      have += static_cast<std::size_t>(got);
    }
    partial.blocks.push_back(digest.Take());
    at += length;
  }
  return partial;
}

Status Sink::StartAt(std::uint64_t offset) {
  started_ = true;
  if (!ranged_) return {};
  return ftruncate(fd_, static_cast<off_t>(offset)) == 0 ? Status::Ok() : Failure(errno);
}

Status Sink::Pause(std::uint64_t whole) {
  if (!started_) return {};  // what may be there is somebody's from before
  if (ftruncate(fd_, static_cast<off_t>(whole)) != 0) return Failure(errno);
  started_ = false;
  paused_ = true;
  return {};
}

Result<Fd> Sink::Reader() const {
  Fd reader(fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  if (!reader.valid()) return Failure(errno);
  return reader;
}

Status Sink::Write(std::uint64_t offset, ByteSpan bytes) const {
  while (!bytes.empty()) {
    const bool direct = GoesDirect(offset, bytes);
    const int fd = direct ? direct_.get() : fd_;
    const ssize_t put = ranged_ ? pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset))
                                : write(fd, bytes.data(), bytes.size());
    if (put > 0) {
      offset += static_cast<std::uint64_t>(put);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      continue;
    }
    if (put < 0 && direct && errno == EINVAL) {
      direct_refused_ = true;
      continue;
    }
    if (put < 0 && errno == EAGAIN) {  // somebody else made it non-blocking
      pollfd entry{.fd = fd_, .events = POLLOUT, .revents = 0};
      (void)poll(&entry, 1, -1);
    } else if (put < 0 && errno != EINTR) {
      return Failure(errno);
    }
    if (*stop_) return Failure(EINTR);
  }
  return {};
}

Status Sink::ReachTo(std::uint64_t end) const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return Failure(errno);
  if (static_cast<std::uint64_t>(info.st_size) >= end) return {};
  return ftruncate(fd_, static_cast<off_t>(end)) == 0 ? Status::Ok() : Failure(errno);
}

bool Sink::Unblock() {
  if (ranged_) return false;
  if (options_.program != nullptr) return true;
  auto own = OpenUnblocked(fd_, O_WRONLY);
  if (!own) return false;
  if (own->valid()) {
    owned_ = *std::move(own);
    fd_ = owned_.get();
  }
  return true;
}

Result<std::size_t> Sink::WriteSome(ByteSpan bytes) const {
  if (options_.program != nullptr) return options_.program->Put(bytes);
  for (;;) {
    const ssize_t put = write(fd_, bytes.data(), bytes.size());
    if (put >= 0) return static_cast<std::size_t>(put);
    if (errno == EAGAIN) return std::size_t{0};
    if (errno != EINTR || *stop_) return Failure(errno);
  }
}

Status Sink::WriteHole(std::uint64_t length) const {
  static constexpr std::array<std::byte, kZeros> kNothing{};
  while (!ranged_ && length > 0) {
    const std::size_t size = std::min<std::uint64_t>(length, kNothing.size());
    RDFS_RETURN_IF_ERROR(Write(0, ByteSpan(kNothing).first(size)));
    length -= size;
  }
  return {};
}

Status Sink::Finish(std::uint64_t length) {
  if (options_.program != nullptr) options_.program->End();
  struct stat info {};
  if (ranged_ && ftruncate(fd_, static_cast<off_t>(length)) != 0) return Failure(errno);
  if (fstat(fd_, &info) == 0 && (S_ISREG(info.st_mode) || S_ISBLK(info.st_mode)) &&
      fsync(fd_) != 0) {
    return Failure(errno);
  }
  if (ranged_) {
    // That took its time, and who has stopped it meanwhile is told that it failed.
    if (*stop_) return Failure(EINTR);
    BeAsOpenAsReplaced();
    if (renameat(folder_.get(), temporary_name_.c_str(), folder_.get(), final_name_.c_str()) != 0) {
      return Status::FromErrno(errno, "cannot rename " + temporary_name_ + " to " + options_.path);
    }
    temporary_name_.clear();
    // The name is there; that it lasts through a power failure is a bonus some folders refuse.
    (void)fsync(folder_.get());
  }
  done_ = true;
  return {};
}

std::string Sink::Abandon(std::uint64_t whole) {
  done_ = true;
  if (!ranged_ || temporary_name_.empty()) return {};
  struct stat info {};
  const bool may_be_kept = options_.resume || (paused_ && options_.keep_partial);
  const bool untouched = may_be_kept && !started_ && fstat(fd_, &info) == 0 && info.st_size > 0;
  const bool keep = (options_.keep_partial || options_.resume) && started_ && whole > 0 &&
                    ftruncate(fd_, static_cast<off_t>(whole)) == 0;
  if (untouched || keep) return folder_path_ + "/" + temporary_name_;
  (void)unlinkat(folder_.get(), temporary_name_.c_str(), 0);
  return {};
}

Status JudgeLock(int error, const std::string& path) {
  switch (error) {
    case 0:
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOLCK:
      return {};
    case EWOULDBLOCK:
      return {Code::kBusy, "another rdrecv writes " + path};
    default:
      return Status::FromErrno(error, "cannot lock " + path);
  }
}

Status WithKept(const Status& why, const std::string& kept) {
  if (kept.empty()) return why;
  return {why.code(), why.errno_value(), why.message() + "; what had come is kept in " + kept};
}

}  // namespace rdfs::pipe
