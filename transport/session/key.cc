#include "transport/session/key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "transport/base/fd.h"
#include "transport/base/home_directory.h"
#include "transport/base/random.h"

namespace rdfs::transport {
namespace {

// Reads up to the end of the line, a byte at a time: what follows belongs to somebody else.
Result<Key> ReadLine(int fd, const std::string& source) {
  std::array<std::byte, Key::kMaxBytes + 1> line{};
  std::size_t length = 0;
  Status failure;
  for (;;) {
    const ssize_t got = read(fd, &line[length], 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      failure = Status::FromErrno(errno, "cannot read the key from " + source);
      break;
    }
    if (got == 0 || line[length] == std::byte{'\n'}) break;
    if (++length > Key::kMaxBytes) {
      failure = Status(Code::kInvalidArgument,
                       "the key in " + source + " is longer than 1024 bytes: is it a key at all?");
      break;
    }
  }
  if (length > 0 && line[length - 1] == std::byte{'\r'}) --length;
  if (failure.ok() && length == 0) {
    failure = Status(Code::kInvalidArgument,
                     "there is no key in " + source + ": its first line is empty (put one there)");
  }
  Key key(ByteSpan(line).first(failure.ok() ? length : 0));
  sodium_memzero(line.data(), line.size());
  if (!failure.ok()) return failure;
  return key;
}

Status CannotOpen(const std::string& path, int error) {
  const Status failed = Status::FromErrno(error, "cannot open the key file " + path);
  if (error == ENOENT) {
    return Status(
        Code::kNotFound, error,
        failed.message() +
            "; copy the other end's key file there (it says where it keeps it), with mode 0600");
  }
  if (error == EACCES) {
    return Status(failed.code(), error,
                  failed.message() + "; name a copy that is this user's own, with mode 0600");
  }
  return failed;
}

Status CheckOwnerOnly(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return Status::FromErrno(errno, "cannot look at the key file " + path);
  if (S_ISDIR(info.st_mode)) {
    return {Code::kInvalidArgument, EISDIR,
            "the key file " + path + " is a directory; name the file in it"};
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return {Code::kInvalidArgument, EPERM,
            "the key file " + path + " belongs to another user, who could change it: use a copy"};
  }
  if ((info.st_mode & 077U) != 0) {
    return {Code::kInvalidArgument, EPERM,
            "the key file " + path + " is open to other users: run `chmod 600 " + path + "`"};
  }
  return Status::Ok();
}

}  // namespace

Key::~Key() {
  if (!bytes_.empty()) sodium_memzero(bytes_.data(), bytes_.size());
}

Key Key::Random() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<std::byte, 32> bits{};
  FillRandom(bits);
  std::array<char, 64> text{};
  for (std::size_t i = 0; i < bits.size(); ++i) {
    text[2 * i] = kDigits[std::to_integer<std::size_t>(bits[i] >> 4)];
    text[2 * i + 1] = kDigits[std::to_integer<std::size_t>(bits[i] & std::byte{15})];
  }
  Key key(std::string_view(text.data(), text.size()));
  sodium_memzero(bits.data(), bits.size());
  sodium_memzero(text.data(), text.size());
  return key;
}

Result<Key> Key::FromFile(const std::string& file) {
  const std::string path = WithHomeDirectory(file);
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return CannotOpen(path, errno);
  RDFS_RETURN_IF_ERROR(CheckOwnerOnly(fd.get(), path));
  return ReadLine(fd.get(), "the key file " + path);
}

Result<Key> Key::FromFd(int fd) { return ReadLine(fd, "descriptor " + std::to_string(fd)); }

}  // namespace rdfs::transport
