#include "tools/copy/export/file.h"

#include <fmt/core.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>

#include "transport/base/clock.h"
#include "transport/base/random.h"

namespace rdfs::copy {
namespace {

using fs::AttrWire;
using fs::client::NamedFile;
using fs::client::SetAttributes;
using Seat = ExportSession::Seat;

// As the kernel has it.
constexpr int kMostSymlinks = 40;
// Names that are known: some pages of them, so that whoever copies what was listed still finds it.
constexpr std::size_t kMostKnown = 2048;
// A lock is all of a file's, as flock(2) has it.
constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::int64_t>::max();
// Who was killed has his locks until his lease is over, and is found out a little later. A server
// may say any.
constexpr std::chrono::milliseconds kLongestLease{60'000};
constexpr std::chrono::milliseconds kBeyondLease{3'000};
constexpr std::chrono::milliseconds kShortestNap{5}, kLongestNap{250};
// So long a server's disk may take for what it has of one file.
constexpr std::chrono::hours kLongestSync{1};
constexpr std::chrono::seconds kLookEvery{1};

bool Is(const AttrWire& attr, mode_t type) { return (attr.mode & S_IFMT) == type; }

int Fail(const Status& status) {
  errno = status.errno_value();
  return -1;
}
int Answer(const Status& status) { return status.ok() ? 0 : Fail(status); }
FilePtr NoFile(int error) {
  errno = error;
  return nullptr;
}
Status Errno(int error) { return {Code::kErrno, error, {}}; }

timespec ToTime(const fs::TimeWire& time) {
  return {.tv_sec = time.seconds, .tv_nsec = std::uint32_t{time.nanoseconds}};
}
fs::TimeWire FromTime(const timespec& time) {
  fs::TimeWire out{};
  out.seconds = time.tv_sec;
  out.nanoseconds = static_cast<std::uint32_t>(time.tv_nsec);
  return out;
}

// What a call with a size of its own answers: as much as there is, or ERANGE.
ssize_t Give(ByteSpan value, char* out, std::size_t size) {
  if (size != 0 && value.size() > size) {
    errno = ERANGE;
    return -1;
  }
  if (size != 0 && !value.empty()) std::memcpy(out, value.data(), value.size());
  return static_cast<ssize_t>(value.size());
}

}  // namespace

FilePtr ExportFile::Root(ExportSession& session, const NamedFile& root) {
  auto way = std::make_shared<const Way>(Way{root, "", nullptr});
  auto file = std::make_shared<ExportFile>(session, std::move(way), nullptr, root.attr);
  file->is_current_ = false;
  return file;
}

ExportFile::~ExportFile() {
  if (open_ != nullptr) session_.Release(open_);
  if (names_ != nullptr) session_.Release(names_);
}

struct stat ExportFile::ToStat(const AttrWire& attr) const {
  struct stat out {};
  out.st_dev = session_.device();
  out.st_ino = attr.ino;
  out.st_mode = attr.mode;
  out.st_nlink = std::uint32_t{attr.nlink};
  out.st_uid = attr.uid;
  out.st_gid = attr.gid;
  out.st_rdev = makedev(std::uint32_t{attr.rdev_major}, std::uint32_t{attr.rdev_minor});
  out.st_size = static_cast<off_t>(std::uint64_t{attr.size});
  out.st_blocks = static_cast<blkcnt_t>(std::uint64_t{attr.blocks});
  out.st_atim = ToTime(attr.atime);
  out.st_mtim = ToTime(attr.mtime);
  out.st_ctim = ToTime(attr.ctime);
  return out;
}

// ---- ways ---------------------------------------------------------------------------------------

Result<NamedFile> ExportFile::Find(const WayPtr& directory, const std::string& name) {
  if (directory == way_) {
    const std::lock_guard lock(mutex_);
    for (const auto* known : {&known_, &known_before_}) {
      const auto at = known->find(name);
      if (at != known->end() && at->second.is_current) return at->second.file;
    }
  }
  return session_.Do([&](Seat& seat) { return seat.client.Lookup(directory->file.handle, name); });
}

Result<ExportFile::WayPtr> ExportFile::Resolve(std::string_view path, Links links) {
  WayPtr at = way_;
  std::deque<std::string> rest;
  const auto prepend = [&](std::string_view names) {
    if (names.starts_with('/')) {
      while (at->above != nullptr) at = at->above;
    }
    std::deque<std::string> front;
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find('/'));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      if (!name.empty()) front.emplace_back(name);
    }
    rest.insert(rest.begin(), front.begin(), front.end());
  };
  prepend(path);
  if (path.ends_with('/')) rest.emplace_back(".");  // what it leads to is meant
  for (int symlinks = 0; !rest.empty();) {
    const std::string name = std::move(rest.front());
    rest.pop_front();
    if (!Is(at->file.attr, S_IFDIR)) return Errno(ENOTDIR);
    if (name == ".") continue;
    if (name == "..") {
      if (at->above != nullptr) at = at->above;
      continue;
    }
    if (links.anew && at == way_) Forget(name);
    RDFS_ASSIGN_OR_RETURN(const NamedFile found, Find(at, name));
    if (!Is(found.attr, S_IFLNK) || (rest.empty() && !links.follow_last)) {
      at = std::make_shared<const Way>(Way{found, name, at});
      continue;
    }
    if (links.none || ++symlinks > kMostSymlinks) return Errno(ELOOP);
    RDFS_ASSIGN_OR_RETURN(const std::string target, session_.Do([&](Seat& seat) {
      return seat.client.Readlink(found.handle);
    }));
    if (target.empty()) return Errno(ENOENT);
    prepend(target);
  }
  return at;
}

// What `call(links)` answers. A name that was listed may have been given to another file since:
// then once more, as it is now.
template <typename Call>
auto ExportFile::AsItIs(Links links, Call call) -> decltype(call(links)) {
  auto answer = call(links);
  if (answer.ok() || answer.status().errno_value() != ESTALE) return answer;
  links.anew = true;
  return call(links);
}

// The same of a file in this directory, or of itself.
template <typename Call>
auto ExportFile::OfNamed(const std::string& name, Call call) -> decltype(call(Handle())) {
  return AsItIs({}, [&](Links links) -> decltype(call(Handle())) {
    if (links.anew) Forget(name);
    RDFS_ASSIGN_OR_RETURN(const Handle file, HandleOf(name));
    return call(file);
  });
}

FilePtr ExportFile::Open(const std::string& path, int flags, mode_t mode) {
  if ((flags & O_CREAT) != 0) return Create(path, flags, mode);
  return OpenAt(path, {.follow_last = (flags & O_NOFOLLOW) == 0}, flags);
}

FilePtr ExportFile::OpenBeneath(const std::string& path, int flags) {
  return OpenAt(path, {.none = true}, flags | O_NOFOLLOW);
}

FilePtr ExportFile::OpenAt(const std::string& path, Links links, int flags) {
  auto opened = AsItIs(links, [&](Links now) -> Result<FilePtr> {
    RDFS_ASSIGN_OR_RETURN(const WayPtr way, Resolve(path, now));
    return OpenWay(way, flags);
  });
  return opened.ok() ? *std::move(opened) : NoFile(opened.status().errno_value());
}

Result<FilePtr> ExportFile::OpenWay(const WayPtr& way, int flags) {
  const AttrWire& attr = way->file.attr;
  if ((flags & O_DIRECTORY) != 0 && !Is(attr, S_IFDIR)) return Errno(ENOTDIR);
  if (Is(attr, S_IFLNK) && (flags & O_PATH) == 0) return Errno(ELOOP);
  if (!Is(attr, S_IFREG) || (flags & O_PATH) != 0) {
    return FilePtr(std::make_shared<ExportFile>(session_, way, nullptr, attr));
  }
  const std::uint32_t wire = fs::OpenFlagsToWire(flags & O_ACCMODE);
  RDFS_ASSIGN_OR_RETURN(auto opened, session_.Do([&](Seat& seat) {
    return seat.client.Open(way->file.handle, wire);
  }));
  // Where a server that was started anew finds it.
  if (way->above != nullptr) opened.open->SetHint(way->above->file.handle, way->name);
  return FilePtr(std::make_shared<ExportFile>(session_, way, opened.open, opened.attributes.attr));
}

FilePtr ExportFile::Create(const std::string& name, int flags, mode_t mode) {
  is_current_ = false;
  const std::uint32_t wire = fs::OpenFlagsToWire(flags & (O_ACCMODE | O_CREAT | O_EXCL));
  auto made =
      session_.Do([&](Seat& seat) { return seat.client.Create(handle(), name, wire, mode); });
  if (!made.ok()) return NoFile(made.status().errno_value());
  made->open->SetHint(handle(), name);
  if ((flags & O_EXCL) != 0) session_.maker() = std::uint32_t{made->file.attr.uid};
  auto way = std::make_shared<const Way>(Way{made->file, name, way_});
  return std::make_shared<ExportFile>(session_, std::move(way), made->open, made->file.attr);
}

// ---- names --------------------------------------------------------------------------------------

void ExportFile::Remember(const std::string& name, const NamedFile& file) {
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMostKnown) {
    known_before_ = std::move(known_);
    known_.clear();
  }
  known_.insert_or_assign(name, Known{file});
}

void ExportFile::NoteChange(const std::string& name) {
  if (name.empty()) {
    is_current_ = false;
    return;
  }
  const std::lock_guard lock(mutex_);
  for (auto* known : {&known_, &known_before_}) {
    const auto at = known->find(name);
    if (at != known->end()) at->second.is_current = false;
  }
}

void ExportFile::Forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  known_.erase(name);
  known_before_.erase(name);
}

Result<ExportFile::Handle> ExportFile::HandleOf(const std::string& name) {
  if (name.empty()) return handle();
  {
    const std::lock_guard lock(mutex_);
    for (const auto* known : {&known_, &known_before_}) {
      const auto at = known->find(name);
      if (at != known->end()) return at->second.file.handle;
    }
  }
  RDFS_ASSIGN_OR_RETURN(const NamedFile found, Find(way_, name));
  Remember(name, found);
  return found.handle;
}

int ExportFile::Stat(const std::string& path, bool follow, struct stat& out) {
  if (path.empty() && is_current_.exchange(false)) {
    out = ToStat(attributes_);
    return 0;
  }
  if (path.empty() || path == ".") {
    auto now = session_.Do([&](Seat& seat) { return seat.client.GetAttr(handle(), open_); });
    if (!now.ok()) return Fail(now.status());
    out = ToStat(now->attr);
    return 0;
  }
  const auto way =
      AsItIs({.follow_last = follow}, [&](Links links) { return Resolve(path, links); });
  if (!way.ok()) return Fail(way.status());
  out = ToStat((*way)->file.attr);
  return 0;
}

int ExportFile::ReadLink(const std::string& path, std::string& target) {
  auto read = AsItIs({}, [&](Links links) -> Result<std::string> {
    RDFS_ASSIGN_OR_RETURN(const WayPtr way, Resolve(path, links));
    return session_.Do([&](Seat& seat) { return seat.client.Readlink(way->file.handle); });
  });
  if (!read.ok()) return Fail(read.status());
  target = *std::move(read);
  return 0;
}

int ExportFile::MakeDirectory(const std::string& name, mode_t mode) {
  is_current_ = false;
  return Answer(
      session_.Do([&](Seat& seat) { return seat.client.Mkdir(handle(), name, mode); }).status());
}

int ExportFile::MakeSymlink(const std::string& target, const std::string& name) {
  is_current_ = false;
  const auto made =
      session_.Do([&](Seat& seat) { return seat.client.Symlink(handle(), name, target); });
  if (made.ok()) Remember(name, *made);
  return Answer(made.status());
}

int ExportFile::MakeNode(const std::string& name, mode_t mode, dev_t device) {
  is_current_ = false;
  const auto made = session_.Do([&](Seat& seat) {
    return seat.client.Mknod(handle(), name, mode, {major(device), minor(device)});
  });
  if (made.ok()) Remember(name, *made);
  return Answer(made.status());
}

int ExportFile::Link(const std::string& name, File& to, const std::string& new_name) {
  if (to.system() != system()) return Fail(Errno(EXDEV));
  auto& other = static_cast<ExportFile&>(to);  // its class is known by its system
  const auto file = HandleOf(name);
  if (!file.ok()) return Fail(file.status());
  NoteChange(name);
  other.is_current_ = false;
  return Answer(
      session_.Do([&](Seat& seat) { return seat.client.Link(*file, other.handle(), new_name); })
          .status());
}

int ExportFile::Rename(const std::string& name, const std::string& new_name) {
  is_current_ = false;
  Forget(name);
  Forget(new_name);
  return Answer(session_.Do(
      [&](Seat& seat) { return seat.client.Rename(handle(), name, handle(), new_name); }));
}

int ExportFile::Remove(const std::string& name, bool is_directory) {
  is_current_ = false;
  Forget(name);
  return Answer(session_.Do([&](Seat& seat) {
    return is_directory ? seat.client.Rmdir(handle(), name) : seat.client.Unlink(handle(), name);
  }));
}

int ExportFile::ReadNames(std::deque<std::string>& out) {
  if (names_ == nullptr) {
    auto opened = session_.Do([&](Seat& seat) { return seat.client.OpenDir(handle()); });
    if (!opened.ok()) return Fail(opened.status());
    names_ = *std::move(opened);
  }
  const auto page =
      session_.Do([&](Seat& seat) { return seat.client.ReadDir(names_, cookie_, true); });
  if (!page.ok()) return Fail(page.status());
  for (const auto& entry : *page) {
    cookie_ = entry.cookie;
    if (entry.name == "." || entry.name == "..") continue;
    if (entry.file) Remember(entry.name, *entry.file);
    out.push_back(entry.name);
  }
  return page->empty() ? 0 : 1;
}

// ---- attributes ---------------------------------------------------------------------------------

int ExportFile::Set(const std::string& name, const SetAttributes& set) {
  const auto file = HandleOf(name);
  if (!file.ok()) return Fail(file.status());
  NoteChange(name);
  return Answer(session_
                    .Do([&](Seat& seat) {
                      return seat.client.SetAttr(*file, set, name.empty() ? open_ : nullptr);
                    })
                    .status());
}

int ExportFile::SetMode(const std::string& name, mode_t mode) {
  return Set(name, {.valid = fs::kSetMode, .mode = mode});
}

int ExportFile::SetOwner(const std::string& name, uid_t uid, gid_t gid) {
  SetAttributes set{.uid = uid, .gid = gid};
  if (uid != static_cast<uid_t>(-1)) set.valid |= fs::kSetUid;
  if (gid != static_cast<gid_t>(-1)) set.valid |= fs::kSetGid;
  const int done = Set(name, set);
  if (done != 0 && errno == EPERM) session_.NoteKeptOwner();
  return done;
}

int ExportFile::SetTimes(const std::string& name, const std::array<timespec, 2>& times) {
  return Set(name, {.valid = fs::kSetAtime | fs::kSetMtime,
                    .atime = FromTime(times[0]),
                    .mtime = FromTime(times[1])});
}

ssize_t ExportFile::ListXattrs(const std::string& name, char* out, std::size_t size) {
  const auto list = OfNamed(name, [&](const Handle& file) {
    return session_.Do([&](Seat& seat) { return seat.client.ListXattr(file); });
  });
  return list.ok() ? Give(*list, out, size) : Fail(list.status());
}

ssize_t ExportFile::GetXattr(const std::string& name, const char* attribute, char* out,
                             std::size_t size) {
  const auto value = OfNamed(name, [&](const Handle& file) {
    return session_.Do([&](Seat& seat) { return seat.client.GetXattr(file, attribute); });
  });
  return value.ok() ? Give(*value, out, size) : Fail(value.status());
}

int ExportFile::SetXattr(const std::string& name, const char* attribute, const std::string& value) {
  const auto file = HandleOf(name);
  if (!file.ok()) return Fail(file.status());
  NoteChange(name);
  return Answer(session_.Do(
      [&](Seat& seat) { return seat.client.SetXattr(*file, attribute, AsBytes(value)); }));
}

int ExportFile::RemoveXattr(const std::string& name, const char* attribute) {
  const auto file = HandleOf(name);
  if (!file.ok()) return Fail(file.status());
  NoteChange(name);
  return Answer(session_.Do([&](Seat& seat) { return seat.client.RemoveXattr(*file, attribute); }));
}

std::optional<uid_t> ExportFile::Maker() {
  if (session_.maker() == ExportSession::kUnknown) {
    const std::string name = fmt::format(".rdcp-{:016x}", RandomU64());
    if (Create(name, O_RDWR | O_CREAT | O_EXCL, 0600) == nullptr) return std::nullopt;
    (void)Remove(name, false);
  }
  return static_cast<uid_t>(session_.maker());
}

int ExportFile::Lock() {
  if (open_ == nullptr) return Fail(Errno(EBADF));
  is_current_ = false;  // whoever had it may have changed it
  const fs::client::Lock lock{.owner = owner_,
                              .start = 0,
                              .end = kToTheEnd,
                              .type = fs::LockType::kWrite,
                              .pid = static_cast<std::uint32_t>(getpid())};
  const Deadline deadline = DeadlineAfter(std::min(session_.lease(), kLongestLease) + kBeyondLease);
  for (std::chrono::milliseconds nap = kShortestNap;; nap = std::min(2 * nap, kLongestNap)) {
    // Do would take it for a server without room.
    const auto had = session_.Do([&](Seat& seat) -> Result<bool> {
      const Status status = seat.client.SetLock(open_, lock, true);
      if (status.ok()) return true;
      if (status.errno_value() == EAGAIN) return false;
      return status;
    });
    if (!had.ok()) return Fail(had.status());
    if (*had) return 0;
    if (session_.stop() || BootClock::now() > deadline) return Fail(Errno(EAGAIN));
    std::this_thread::sleep_for(nap);
  }
}

// ---- content ------------------------------------------------------------------------------------

ssize_t ExportFile::Read(MutableByteSpan out, std::uint64_t offset) {
  if (open_ == nullptr) return Fail(Errno(EBADF));
  const auto got = session_.Do([&](Seat& seat) -> Result<std::size_t> {
    const std::size_t most = std::min(out.size(), seat.buffer.size());
    auto done = seat.client.Await<fs::client::ReadDone>([&](auto callback) {
      seat.client.lane().Read(seat.client.context(), open_, offset, seat.buffer.Slice(0, most), 0,
                              std::move(callback));
    });
    if (!done.ok()) return done.status();
    const std::size_t length = std::min<std::size_t>(done->length, most);
    std::memcpy(out.data(), seat.buffer.bytes().data(), length);
    return length;
  });
  return got.ok() ? static_cast<ssize_t>(*got) : Fail(got.status());
}

ssize_t ExportFile::Write(ByteSpan bytes, std::uint64_t offset) {
  if (open_ == nullptr) return Fail(Errno(EBADF));
  is_current_ = false;
  const auto done = session_.Do([&](Seat& seat) -> Result<std::size_t> {
    const std::size_t most = std::min(bytes.size(), seat.buffer.size());
    std::memcpy(seat.buffer.bytes().data(), bytes.data(), most);
    auto written = seat.client.Await<fs::client::WriteDone>([&](auto callback) {
      seat.client.lane().Write(seat.client.context(), open_, offset, seat.buffer.Slice(0, most), 0,
                               std::move(callback));
    });
    if (!written.ok()) return written.status();
    // Fewer only where there is no space; none would be asked for again for ever.
    if (written->written == 0 && most > 0) return Errno(ENOSPC);
    return std::min<std::size_t>(written->written, most);
  });
  return done.ok() ? static_cast<ssize_t>(*done) : Fail(done.status());
}

int ExportFile::Truncate(std::uint64_t size) {
  return Set("", {.valid = fs::kSetSize, .size = size});
}

int ExportFile::PunchHole(std::uint64_t offset, std::uint64_t length) {
  is_current_ = false;
  return Answer(session_
                    .Do([&](Seat& seat) {
                      return seat.client.Fallocate(
                          open_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length);
                    })
                    .status());
}

off_t ExportFile::Seek(std::uint64_t offset, int whence) {
  if (open_ == nullptr) return Fail(Errno(EBADF));
  const auto found = session_.Do([&](Seat& seat) {
    return seat.client.Seek(open_, offset, static_cast<std::uint32_t>(whence));
  });
  return found.ok() ? static_cast<off_t>(*found) : Fail(found.status());
}

// Waits for the disk of a server that is there: whether it is its heartbeat tells.
int ExportFile::Sync() {
  return Answer(session_.Do([&](Seat& seat) {
    fs::client::Lane& lane = seat.client.lane();
    fs::client::CallContext context = seat.client.context();
    context.timeout = kLongestSync;
    bool over = false;
    Status result;
    const auto ticket = lane.Fsync(context, open_, true, [&](Status&& got) {
      result = std::move(got);
      over = true;
    });
    Deadline patience = DeadlineAfter(ExportSession::kPatience);
    while (!seat.client.RunUntil(over, DeadlineAfter(kLookEvery))) {
      if (lane.connected()) patience = DeadlineAfter(ExportSession::kPatience);
      const bool lost = BootClock::now() >= patience;
      if (!lost && !session_.stop()) continue;
      lane.Abandon(ticket);
      seat.client.RunUntil(over);
      if (lost && !result.ok()) return Status(Code::kDeadlineExceeded, ETIMEDOUT, {});
    }
    return result;
  }));
}

ssize_t ExportFile::CopyRange(File& to, std::uint64_t offset, std::size_t length) {
  if (to.system() != system()) return Fail(Errno(EXDEV));
  auto& other = static_cast<ExportFile&>(to);  // its class is known by its system
  other.is_current_ = false;
  const auto done = session_.Do([&](Seat& seat) {
    return seat.client.CopyFileRange(open_, offset, other.open_, offset, length);
  });
  return done.ok() ? static_cast<ssize_t>(done->written) : Fail(done.status());
}

}  // namespace rdfs::copy
