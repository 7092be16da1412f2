#include "tests/e2e/linearizable/worker.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace rdfs::linearizable {
namespace {

constexpr std::uint32_t kNames = 3;  // in a directory
constexpr std::uint32_t kBytes = 3;  // of a file whose ranges are locked

std::uint64_t Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

int ErrnoOf(int result) { return result < 0 ? errno : 0; }

int MakeFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const std::uint64_t nothing = 0;
  if (fd < 0 || ::pwrite(fd, &nothing, sizeof(nothing), 0) != sizeof(nothing)) return -1;
  return ::close(fd);
}

int LockRange(int fd, short type, std::uint32_t start, std::uint32_t end, bool wait) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = static_cast<off_t>(end - start) + 1;
  const int error = ErrnoOf(::fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock));
  return error == EACCES ? EAGAIN : error;
}

}  // namespace

std::string Worker::Path(const std::string& name) const {
  return mount_ + "/round-" + std::to_string(round_) + "/" + name;
}

template <typename Call>
void Worker::Note(Event event, Call&& call) {
  event.round = round_;
  event.worker = number_;
  event.begin = Now();
  event.error = call(event);
  event.end = Now();
  const std::size_t at = notes_.count.load();
  notes_.events[at] = event;
  notes_.count.store(at + 1);
}

bool Worker::Run() {
  while (true) {
    if (number_ == 0) {
      const bool full = notes_.count.load() + 2 * kCallsInARound > Notes::kMost;
      shared_.last = shared_.stop.load() || full;
      if (!shared_.last && !Prepare()) return false;
    }
    ::pthread_barrier_wait(&shared_.barrier);
    if (shared_.last) return true;
    if (!WorkRound()) return false;
    ::pthread_barrier_wait(&shared_.barrier);
    if (number_ == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(Path("."), ignored);
    }
    ++round_;
  }
}

bool Worker::Prepare() {
  std::string made = Path("");
  bool fine = ::mkdir(made.c_str(), 0700) == 0;
  for (const char* const name : {"flocks", "ranges"}) fine = fine && MakeFile(Path(name)) == 0;
  for (std::uint32_t group = 0; group < kGroups && fine; ++group) {
    const std::string number = std::to_string(group);
    fine = MakeFile(Path("content" + number)) == 0 && MakeFile(Path("mode" + number)) == 0 &&
           ::chmod(Path("mode" + number).c_str(), 0600) == 0 &&
           ::mkdir(Path("names" + number).c_str(), 0700) == 0;
  }
  if (!fine) std::perror(("cannot prepare " + made).c_str());
  return fine;
}

bool Worker::WorkRound() {
  flocks_ = ::open(Path("flocks").c_str(), O_RDWR | O_CLOEXEC);
  ranges_ = ::open(Path("ranges").c_str(), O_RDWR | O_CLOEXEC);
  if (flocks_ < 0 || ranges_ < 0) {
    std::perror("cannot open what is to be locked");
    return false;
  }
  for (std::uint32_t i = 0; i < kCallsInARound; ++i) {
    switch (Pick(6)) {
      case 0:
      case 1:
        Content();
        break;
      case 2:
        Mode();
        break;
      case 3:
        Names();
        break;
      case 4:
        Flock();
        break;
      default:
        Range();
    }
  }
  GiveBack();
  for (int* const fd : {&flocks_, &ranges_, &kept_}) ::close(std::exchange(*fd, -1));
  return true;
}

// Read by who opens it; written by one who opens it, too, or has it open.
void Worker::Content() {
  const std::string path = Path("content" + std::to_string(group_));
  if (Pick(2) == 0) {
    return Note({.group = group_, .what = What::kReadContent}, [&](Event& event) {
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) return errno;
      const bool whole = ::pread(fd, &event.value, sizeof(event.value), 0) == sizeof(event.value);
      const int error = whole ? 0 : EIO;
      ::close(fd);
      return error;
    });
  }
  if (kept_ >= 0 && Pick(4) == 0) ::close(std::exchange(kept_, -1));
  const bool keep = Pick(2) == 0;
  if (keep && kept_ < 0) kept_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (keep && kept_ >= 0) return WriteContent(kept_);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  WriteContent(fd);
  ::close(fd);
}

void Worker::WriteContent(int fd) {
  const std::uint64_t value = (std::uint64_t{number_} + 1) << 32U | ++written_;
  Note({.group = group_, .what = What::kWriteContent, .value = value}, [&](Event&) {
    const ssize_t count = ::pwrite(fd, &value, sizeof(value), 0);
    return count < 0 ? errno : count == sizeof(value) ? 0 : EIO;
  });
}

void Worker::Mode() {
  const std::string path = Path("mode" + std::to_string(group_));
  if (Pick(2) == 0) {
    const std::uint64_t value = Pick(0100);
    return Note({.group = group_, .what = What::kChmod, .value = value}, [&](Event&) {
      return ErrnoOf(::chmod(path.c_str(), static_cast<mode_t>(0600 | value)));
    });
  }
  Note({.group = group_, .what = What::kStatMode}, [&](Event& event) {
    struct stat now {};
    const int error = ErrnoOf(::stat(path.c_str(), &now));
    event.value = now.st_mode & 077U;
    return error;
  });
}

void Worker::Names() {
  const std::uint32_t name = Pick(kNames), other = (name + 1 + Pick(kNames - 1)) % kNames;
  const auto path_of = [&](std::uint32_t which) {
    return Path("names" + std::to_string(group_) + "/" + std::to_string(which));
  };
  const std::string path = path_of(name), to = path_of(other);
  Event event{.group = group_, .name = name, .other = other};
  switch (Pick(8)) {
    case 0:
    case 1:
      event.what = What::kCreate;
      return Note(event, [&](Event& noted) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        struct stat made {};
        const int error = ErrnoOf(::fstat(fd, &made));
        noted.value = made.st_ino;
        ::close(fd);
        return error;
      });
    case 2:
    case 3:
      event.what = What::kRename;
      return Note(event, [&](Event&) { return ErrnoOf(::rename(path.c_str(), to.c_str())); });
    case 4:
      event.what = What::kUnlink;
      return Note(event, [&](Event&) { return ErrnoOf(::unlink(path.c_str())); });
    default:
      event.what = What::kStatName;
      return Note(event, [&](Event& noted) {
        struct stat found {};
        const int error = ErrnoOf(::stat(path.c_str(), &found));
        noted.value = error == 0 ? found.st_ino : 0;
        return error == ENOENT ? 0 : error;
      });
  }
}

// Who waits has nothing that others may wait for.
void Worker::Flock() {
  if (has_flock_ && Pick(2) == 0) {
    Note({.what = What::kUnflock}, [&](Event&) { return ErrnoOf(::flock(flocks_, LOCK_UN)); });
    has_flock_ = false;
    return;
  }
  const bool exclusive = Pick(2) == 0;
  const bool wait = !has_flock_ && has_ranges_ == 0 && Pick(3) == 0;
  Note({.what = What::kFlock, .exclusive = exclusive ? 1U : 0U}, [&](Event&) {
    const int error =
        ErrnoOf(::flock(flocks_, (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB)));
    has_flock_ = error == 0;
    return error;
  });
}

void Worker::Range() {
  const std::uint32_t start = Pick(kBytes), end = start + Pick(kBytes - start);
  const std::uint32_t bytes = (1U << (end + 1)) - (1U << start);
  Event event{.name = start, .other = end};
  if (has_ranges_ != 0 && Pick(2) == 0) {
    event.what = What::kUnlockRange;
    Note(event, [&](Event&) { return LockRange(ranges_, F_UNLCK, start, end, false); });
    has_ranges_ &= ~bytes;
    return;
  }
  event.what = What::kLockRange;
  event.exclusive = Pick(2);
  const bool wait = !has_flock_ && has_ranges_ == 0 && Pick(3) == 0;
  Note(event, [&](Event& noted) {
    const short type = noted.exclusive != 0 ? F_WRLCK : F_RDLCK;
    const int error = LockRange(ranges_, type, start, end, wait);
    if (error == 0) has_ranges_ |= bytes;
    return error;
  });
}

void Worker::GiveBack() {
  if (std::exchange(has_flock_, false)) {
    Note({.what = What::kUnflock}, [&](Event&) { return ErrnoOf(::flock(flocks_, LOCK_UN)); });
  }
  if (std::exchange(has_ranges_, 0) != 0) {
    Note({.what = What::kUnlockRange, .name = 0, .other = kBytes - 1},
         [&](Event&) { return LockRange(ranges_, F_UNLCK, 0, kBytes - 1, false); });
  }
}

}  // namespace rdfs::linearizable
