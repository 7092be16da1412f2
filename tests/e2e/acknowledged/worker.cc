#include "tests/e2e/acknowledged/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace rdfs::acknowledged {
namespace {

using Clock = std::chrono::steady_clock;

// All bytes, or the errno: one write(2) is several requests, and is short when a later one fails.
int WriteAll(int fd, std::string_view bytes, std::optional<std::uint64_t> offset) {
  while (!bytes.empty()) {
    const ssize_t put = offset
                            ? ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(*offset))
                            : ::write(fd, bytes.data(), bytes.size());
    if (put <= 0) return put < 0 ? errno : EIO;
    bytes.remove_prefix(static_cast<std::size_t>(put));
    if (offset) *offset += static_cast<std::uint64_t>(put);
  }
  return 0;
}

int ErrnoOf(int result) { return result == 0 ? 0 : errno; }

// All bytes, or the errno.
int ReadAll(int fd, std::uint64_t offset, std::size_t most, std::string& out) {
  out.resize(most);
  std::size_t got = 0;
  while (got < most) {
    const ssize_t n = ::pread(fd, out.data() + got, most - got, static_cast<off_t>(offset + got));
    if (n < 0) return errno;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  out.resize(got);
  return 0;
}

std::string Shown(int error) { return error == 0 ? "success" : std::strerror(error); }

}  // namespace

Worker::Worker(const Plan& plan, int thread)
    : plan_(plan),
      thread_(thread),
      random_(plan.seed * 1000 + static_cast<std::uint64_t>(thread)),
      model_(thread),
      journal_(JournalPath(plan.journal, thread)) {
  for (const std::string& mount : plan.mounts) {
    logs_.emplace_back(::open((mount + "/" + kLogName).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    if (!logs_.back().valid()) wrong_ = fmt::format("{}: {}", kLogName, Shown(errno));
  }
}

std::string Worker::Path(const Op& op, int file) const {
  return fmt::format("{}/{}/{}", plan_.mounts[static_cast<std::size_t>(op.mount)],
                     ThreadDirectory(thread_), FileName(file));
}
std::string Worker::Shared(const Op& op, const std::string& name) const {
  return plan_.mounts[static_cast<std::size_t>(op.mount)] + "/" + name;
}

void Worker::Wrong(const Op& op, const std::string& what) {
  if (!wrong_.empty()) return;
  wrong_ = fmt::format("thread {}, call {} on {}: {}", thread_, op.ToText(),
                       plan_.mounts[static_cast<std::size_t>(op.mount)], what);
}

Op Worker::Choose() {
  // The middle of a file and its open files more often than what makes and ends them.
  static constexpr std::array<Kind, 32> kMix = {
      Kind::kWrite,    Kind::kWrite,  Kind::kWrite,  Kind::kWrite, Kind::kWrite,  Kind::kRead,
      Kind::kRead,     Kind::kSync,   Kind::kShrink, Kind::kClose, Kind::kClose,  Kind::kCreate,
      Kind::kCreate,   Kind::kCreate, Kind::kOpen,   Kind::kOpen,  Kind::kUnlink, Kind::kUnlink,
      Kind::kRename,   Kind::kRename, Kind::kLink,   Kind::kMkdir, Kind::kRmdir,  Kind::kChmod,
      Kind::kTruncate, Kind::kLook,   Kind::kLook,   Kind::kLog,   Kind::kLog,    Kind::kClaim,
      Kind::kTake,     Kind::kGrab};
  Op op;
  op.number = number_ + 1;
  op.kind = kMix[static_cast<std::size_t>(Pick(kMix.size()))];
  op.mount = Pick(static_cast<int>(plan_.mounts.size()));
  op.slot = Pick(kSlots);
  op.file = Pick(kNames);
  op.other = Pick(kNames);
  op.offset = random_() % (Pick(4) == 0 ? 200'000 : 10'000);
  // Small ones travel inside messages, large ones through staging.
  op.length = static_cast<std::uint32_t>(1 + random_() % (Pick(6) == 0 ? 150'000 : 6'000));
  if (op.kind == Kind::kChmod) op.length = 0600U | (static_cast<std::uint32_t>(random_()) & 077U);
  if (op.kind == Kind::kOpen && Pick(3) == 0) op.flags = kAppend;
  if (op.kind == Kind::kRename) op.flags = static_cast<std::uint32_t>(Pick(3));
  const Model::Slot& slot = model_.slot(op.slot);
  const bool has_slot = op.kind == Kind::kWrite || op.kind == Kind::kRead ||
                        op.kind == Kind::kShrink || op.kind == Kind::kSync ||
                        op.kind == Kind::kClose;
  if (has_slot && slot.file != nullptr) op.mount = slot.mount;
  if (op.kind == Kind::kClaim || op.kind == Kind::kTake || op.kind == Kind::kGrab) {
    op.file = next_shared_;
  }
  return op;
}

void Worker::Run(const std::atomic<bool>& stop) {
  while (!stop && wrong_.empty()) {
    const Op op = Choose();
    if (!model_.Sensible(op)) continue;
    if (op.file == next_shared_ && op.kind >= Kind::kClaim) {
      if (++next_shared_ > plan_.shared) continue;
    }
    Do(op);
  }
  for (int slot = 0; slot < kSlots && wrong_.empty(); ++slot) {
    const Model::Slot& open = model_.slot(slot);
    if (open.file == nullptr) continue;
    Do({.number = number_ + 1, .kind = Kind::kClose, .mount = open.mount, .slot = slot});
  }
}

void Worker::Do(const Op& op) {
  number_ = op.number;
  journal_.Begin(op);
  const auto begun = Clock::now();
  const int error = Execute(op);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
  journal_.End(op, error);
  if (took > longest_) {
    longest_ = took;
    longest_call_ = op.ToText();
  }
  if (plan_.longest.count() > 0 && took > plan_.longest) {
    Wrong(op, fmt::format("took {} ms ({})", took.count(), Shown(error)));
  }
  switch (Judge(model_, op, error, plan_.unsure)) {
    case Verdict::kDone:
      model_.Done(op);
      if (lost_) AskForLoss(op, *std::exchange(lost_, std::nullopt));
      return;
    case Verdict::kUnsure:
      ++unsure_;
      return model_.Unsure(op, error);
    case Verdict::kWrong:
      Wrong(op, fmt::format("{}, where {} was due", Shown(error),
                            Shown(model_.Expected(op).value_or(0))));
  }
}

void Worker::AskForLoss(const Op& op, int slot) {
  const Model::FilePtr file = model_.slot(slot).file;
  Do({.number = number_ + 1, .kind = Kind::kSync, .mount = model_.slot(slot).mount, .slot = slot});
  if (!file->bytes_unsure) Wrong(op, "what was written is lost, and its fsync does not say so");
}

int Worker::Execute(const Op& op) {
  const std::string path = Path(op, op.file);
  const std::string directory = path.substr(0, path.rfind('/'));
  switch (op.kind) {
    case Kind::kCreate:
      return OpenInto(op, O_CREAT | O_EXCL);
    case Kind::kOpen:
      return OpenInto(op, (op.flags & kAppend) != 0 ? O_APPEND : 0);
    case Kind::kUnlink:
      return ErrnoOf(::unlink(path.c_str()));
    case Kind::kRename:
      return ErrnoOf(
          ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, Path(op, op.other).c_str(), op.flags));
    case Kind::kLink:
      return ErrnoOf(::link(path.c_str(), Path(op, op.other).c_str()));
    case Kind::kMkdir:
      return ErrnoOf(::mkdir(directory.c_str(), 0755));
    case Kind::kRmdir:
      return ErrnoOf(::rmdir(directory.c_str()));
    case Kind::kChmod:
      return ErrnoOf(::chmod(path.c_str(), op.length));
    case Kind::kTruncate:
      return ErrnoOf(::truncate(path.c_str(), static_cast<off_t>(op.offset)));
    case Kind::kLook:
      return Look(op);
    case Kind::kLog:
    case Kind::kClaim:
    case Kind::kTake:
    case Kind::kGrab:
      return ExecuteShared(op);
    default:
      return ExecuteOnSlot(op);
  }
}

int Worker::OpenInto(const Op& op, int flags) {
  Fd fd(::open(Path(op, op.file).c_str(), O_RDWR | O_CLOEXEC | flags, 0644));
  if (!fd.valid()) return errno;
  slots_[static_cast<std::size_t>(op.slot)] = std::move(fd);
  return 0;
}

int Worker::ExecuteOnSlot(const Op& op) {
  Fd& slot = slots_[static_cast<std::size_t>(op.slot)];
  const int fd = slot.get();
  switch (op.kind) {
    case Kind::kSync:
      return ErrnoOf((op.number % 2 == 0) ? ::fsync(fd) : ::fdatasync(fd));
    case Kind::kClose:
      return ErrnoOf(::close(slot.Release()));
    case Kind::kShrink:
      return ErrnoOf(::ftruncate(fd, static_cast<off_t>(op.offset)));
    case Kind::kWrite: {
      const Model::Slot& open = model_.slot(op.slot);
      const std::uint64_t at = open.append ? open.file->bytes.size() : op.offset;
      const std::string bytes = Stamp(thread_, op.number, at, op.length);
      return WriteAll(fd, bytes, open.append ? std::nullopt : std::optional(at));
    }
    default: {
      std::string got;
      const int error = ReadAll(fd, op.offset, op.length, got);
      const std::string& bytes = model_.slot(op.slot).file->bytes;
      const std::string due = op.offset < bytes.size() ? bytes.substr(op.offset, op.length) : "";
      if (error == 0 && got != due) {
        Wrong(op,
              fmt::format("read {} bytes, not the {} that were written", got.size(), due.size()));
      }
      return error;
    }
  }
}

int Worker::Look(const Op& op) {
  const std::string path = Path(op, op.file);
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno;
  const Model::FilePtr file = model_.Find(op.file);
  if (file == nullptr) return 0;  // which is wrong, as Expected says
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) return errno;
  std::string got;
  const int error = ReadAll(fd.get(), 0, file->bytes.size() + 4096, got);
  if (error != 0) return error;
  if (got != file->bytes || found.st_size != static_cast<off_t>(file->bytes.size())) {
    lost_ = model_.UnsyncedSlotOf(file);
    if (!lost_)
      Wrong(op, fmt::format("{} bytes of {}, not the {} that were written", got.size(),
                            found.st_size, file->bytes.size()));
  }
  if ((found.st_mode & 0777) != file->mode || found.st_nlink != static_cast<nlink_t>(file->links)) {
    Wrong(op, fmt::format("mode {:o} and {} names, not {:o} and {}", found.st_mode & 0777,
                          found.st_nlink, file->mode, file->links));
  }
  return 0;
}

int Worker::Log(const Op& op) {
  const std::string record = Record(thread_, op.number);
  const ssize_t put =
      ::write(logs_[static_cast<std::size_t>(op.mount)].get(), record.data(), record.size());
  if (put < 0) return errno;
  if (put != static_cast<ssize_t>(record.size())) Wrong(op, "a record was written in part");
  return 0;
}

int Worker::Claim(const Op& op) {
  const Fd fd(::open(Shared(op, ClaimName(op.file)).c_str(),
                     O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  return fd.valid() ? 0 : errno;
}

int Worker::ExecuteShared(const Op& op) {
  switch (op.kind) {
    case Kind::kLog:
      return Log(op);
    case Kind::kClaim:
      return Claim(op);
    case Kind::kTake:
      return ErrnoOf(::rename(Shared(op, FreeName(op.file)).c_str(),
                              Shared(op, TakenName(op.file, thread_)).c_str()));
    default:
      return ErrnoOf(::unlink(Shared(op, GiftName(op.file)).c_str()));
  }
}

}  // namespace rdfs::acknowledged
