#include "tests/e2e/transcript.h"

#include <dirent.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace rdfs::e2e {
namespace {

std::string Printable(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    if (value >= 0x20 && value < 0x7f && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", value);
    }
  }
  return out;
}

// FNV-1a, 64 bits: enough to tell two contents of a test apart.
class Checksum {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) {
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
  }
  [[nodiscard]] unsigned long long value() const { return hash_; }

 private:
  unsigned long long hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace

Transcript::Transcript(std::string directory)
    : directory_(std::move(directory)),
      dir_(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

Transcript::~Transcript() {
  if (dir_ >= 0) close(dir_);
}

std::string Transcript::Path(std::string_view name) const {
  return directory_ + "/" + std::string(name);
}

void Transcript::Note(std::string_view what, std::string_view value) {
  lines_.push_back(fmt::format("{}: {}", what, Printable(value)));
}

void Transcript::Note(std::string_view what, long long value) {
  lines_.push_back(fmt::format("{}: {}", what, value));
}

long long Transcript::Call(std::string_view what, long long result) {
  if (result < 0) {
    const int error = errno;
    lines_.push_back(fmt::format("{}: {}", what, strerrorname_np(error)));
    errno = error;
  } else {
    Note(what, result);
  }
  return result;
}

int Transcript::Open(const char* name, int flags, mode_t mode) {
  const int fd = openat(dir_, name, flags | O_CLOEXEC, mode);
  const std::string what = fmt::format("open {} {:o} {:o}", Printable(name), flags, mode);
  if (fd < 0) {
    Call(what, fd);
  } else {
    Note(what, "ok");
  }
  return fd;
}

void Transcript::Close(int fd) {
  if (fd >= 0) Call("close", close(fd));
}

void Transcript::NoteStat(std::string_view what, int result, const struct stat& st) {
  if (result < 0) {
    Call(what, result);
    return;
  }
  const bool sized = S_ISREG(st.st_mode) || S_ISLNK(st.st_mode);
  Note(what, fmt::format("mode {:o} nlink {} size {} uid {} gid {} rdev {}", st.st_mode,
                         S_ISDIR(st.st_mode) ? 0 : st.st_nlink, sized ? st.st_size : 0, st.st_uid,
                         st.st_gid, st.st_rdev));
}

void Transcript::Stat(const char* name) {
  struct stat st {};
  const int result = fstatat(dir_, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
  NoteStat(fmt::format("stat {}", Printable(name)), result, st);
}

void Transcript::FStat(std::string_view what, int fd) {
  struct stat st {};
  const int result = fstat(fd, &st);
  NoteStat(what, result, st);
}

void Transcript::List(const char* name) {
  const int fd = openat(dir_, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    Call(fmt::format("list {}", Printable(name)), fd);
    return;
  }
  DIR* stream = fdopendir(fd);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream)) {
    names.push_back(
        fmt::format("{}({})", Printable(entry->d_name), static_cast<int>(entry->d_type)));
  }
  closedir(stream);
  std::ranges::sort(names);
  for (const std::string& entry : names) Note(fmt::format("list {}", Printable(name)), entry);
}

void Transcript::Content(const char* name) {
  const int fd = openat(dir_, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    Call(fmt::format("content {}", Printable(name)), fd);
    return;
  }
  std::array<char, 65536> buffer{};
  Checksum sum;
  long long total = 0;
  std::string head;
  ssize_t got = 0;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    sum.Add(bytes);
    total += got;
    if (head.size() < 64) head.append(bytes.substr(0, 64 - head.size()));
  }
  if (got < 0) Call(fmt::format("read {}", Printable(name)), got);
  close(fd);
  Note(fmt::format("content {}", Printable(name)),
       fmt::format("{} bytes {:x} {}", total, sum.value(), head));
}

}  // namespace rdfs::e2e
