#include "server/lease/outside_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/inode/inode_table.h"
#include "transport/base/bytes.h"

// Linux 5.17; older headers lack them.
#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x00001000
#endif

namespace rdfs::server {
namespace {

constexpr unsigned kGroupFlags = FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_FID |
                                 FAN_REPORT_DIR_FID | FAN_REPORT_NAME | FAN_REPORT_TARGET_FID;
constexpr std::uint64_t kEntry = FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO;
// Not FAN_CLOSE_WRITE, though it would tell of stores through mappings: our supervisor closes
// files, too.
constexpr std::uint64_t kContent = FAN_MODIFY;
constexpr std::uint64_t kEvents = kEntry | kContent | FAN_ATTRIB | FAN_ONDIR | FAN_EVENT_ON_CHILD;

// Of one generation, then the other has its turn: where changes come without end, too.
constexpr int kReadsATurn = 8;

Fd NewGroup() { return Fd(::fanotify_init(kGroupFlags, O_RDONLY | O_CLOEXEC)); }

Status WhyNone(int error) {
  if (error == EINVAL || error == ENOSYS) {
    return {Code::kUnsupported, error, "the kernel is older than Linux 5.17, or has no fanotify"};
  }
  if (error == EPERM) {
    return {Code::kErrno, error,
            "fanotify_init is refused; a container, or SystemCallFilter= of a unit, has to allow "
            "it and fanotify_mark"};
  }
  if (error == EMFILE) {
    return {Code::kErrno, error,
            "too many watchers; raise fs.fanotify.max_user_groups, or the limit of open files"};
  }
  return Status::FromErrno(error, "fanotify_init");
}

std::string MakeKey(std::uint64_t file_system, ByteSpan handle) {
  std::string key(sizeof file_system + handle.size(), '\0');
  std::memcpy(key.data(), &file_system, sizeof file_system);
  std::memcpy(key.data() + sizeof file_system, handle.data(), handle.size());
  return key;
}

// One handle of an event, and the name behind it if there is one.
struct Named {
  std::uint64_t file_system = 0;
  NativeHandle handle;  // but for the device
  std::string name;
};

// The kernel wrote it: its lengths are believed.
std::optional<Named> Decode(const std::byte* record, std::size_t size, bool has_name) {
  constexpr std::size_t kHead = sizeof(fanotify_event_info_header) + sizeof(__kernel_fsid_t);
  constexpr std::size_t kHandleHead = 2 * sizeof(std::uint32_t);  // handle_bytes, handle_type
  Named out;
  std::uint32_t bytes = 0;
  std::uint32_t type = 0;
  std::memcpy(&out.file_system, record + sizeof(fanotify_event_info_header),
              sizeof out.file_system);
  std::memcpy(&bytes, record + kHead, sizeof bytes);
  std::memcpy(&type, record + kHead + sizeof bytes, sizeof type);
  const std::byte* handle = record + kHead + kHandleHead;
  ByteWriter writer(out.handle.bytes);
  writer.Write(Le32(type));
  if (writer.room() < bytes) return std::nullopt;
  writer.WriteBytes({handle, bytes});
  out.handle.kind = NativeHandle::Kind::kFileHandle;
  out.handle.size = writer.size();
  if (has_name) {
    const auto* name = reinterpret_cast<const char*>(handle + bytes);
    out.name.assign(name, ::strnlen(name, size - kHead - kHandleHead - bytes));
  }
  return out;
}

struct Event {
  std::uint64_t mask = 0;
  std::optional<Named> place;  // directory and name
  std::optional<Named> inode;
};

Event DecodeEvent(const fanotify_event_metadata& head, const std::byte* at) {
  Event event{.mask = head.mask, .place = std::nullopt, .inode = std::nullopt};
  const std::byte* const end = at + head.event_len;
  for (at += head.metadata_len; at < end;) {
    fanotify_event_info_header info;
    std::memcpy(&info, at, sizeof info);
    if (info.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) event.place = Decode(at, info.len, true);
    if (info.info_type == FAN_EVENT_INFO_TYPE_FID) event.inode = Decode(at, info.len, false);
    at += info.len;
  }
  return event;
}

}  // namespace

Result<std::unique_ptr<OutsideWatch>> OutsideWatch::Start(const ProcFd& proc,
                                                          const Options& options,
                                                          Listener listener) {
  std::unique_ptr<OutsideWatch> watch(new OutsideWatch(proc, options, std::move(listener)));
  watch->current_.group = NewGroup();
  if (!watch->current_.group.valid()) return WhyNone(errno);
  RDFS_ASSIGN_OR_RETURN(watch->wake_, EventFd::Create());
  watch->thread_ = std::thread([self = watch.get()] { self->Run(); });
  return watch;
}

OutsideWatch::~OutsideWatch() {
  stopping_.store(true);
  wake_.Ring();
  if (thread_.joinable()) thread_.join();
}

bool OutsideWatch::Watches(const Inode& directory) const {
  return directory.watched.load(std::memory_order_acquire) ==
         number_.load(std::memory_order_acquire);
}

bool OutsideWatch::Watch(const std::shared_ptr<Inode>& directory, int fd) {
  if (Watches(*directory)) return true;
  // By whichever mount it was reached: what is marked, and told of, is the inode.
  if (directory->native.kind != NativeHandle::Kind::kFileHandle &&
      directory->native.kind != NativeHandle::Kind::kOtherMount) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (current_.directories.size() >= options_.directories) return false;
  const std::optional<Key> key = KeyOf(*directory, fd);
  // By its path: an O_PATH descriptor is not taken.
  if (!key || ::fanotify_mark(current_.group.get(), FAN_MARK_ADD, kEvents, proc_.dir(),
                              std::to_string(fd).c_str()) != 0) {
    return false;
  }
  if (current_.directories.empty()) {
    current_.ends = BootClock::now() + options_.period;
    wake_.Ring();
  }
  current_.directories[*key] = directory;
  directory->watched.store(number_.load(), std::memory_order_release);
  return true;
}

std::optional<OutsideWatch::Key> OutsideWatch::KeyOf(const Inode& directory, int fd) {
  const auto known = file_systems_.find(directory.native.device);
  std::uint64_t file_system = 0;
  if (known != file_systems_.end()) {
    file_system = known->second;
  } else {
    struct statfs info {};
    if (::fstatfs(fd, &info) != 0) return std::nullopt;
    static_assert(sizeof info.f_fsid == sizeof file_system);
    std::memcpy(&file_system, &info.f_fsid, sizeof file_system);
    file_systems_.emplace(directory.native.device, file_system);
  }
  return MakeKey(file_system, ByteSpan(directory.native.bytes).first(directory.native.size));
}

void OutsideWatch::Run() {
  prctl(PR_SET_NAME, "rdfsd-outside");
  while (!stopping_.load()) {
    std::array<pollfd, 3> wait{pollfd{wake_.fd(), POLLIN, 0},
                               pollfd{current_.group.get(), POLLIN, 0},
                               pollfd{before_.group.get(), POLLIN, 0}};
    (void)::poll(wait.data(), wait.size(), PatienceMs());
    if (wait[0].revents != 0) wake_.Drain();
    bool more = Read(current_);
    if (before_.group.valid()) more |= Read(before_);
    Turn();
    if (more) continue;
    // What comes now is taken together: our own changes are told here, too, and each would wake us.
    (void)::poll(wait.data(), 1, static_cast<int>(kBatch.count()));
  }
}

int OutsideWatch::PatienceMs() {
  const std::lock_guard lock(mutex_);
  const bool waits = !current_.directories.empty() || before_.group.valid();
  return waits ? PollTimeoutMs(current_.ends, BootClock::now()) : -1;
}

// The thread alone opens and closes groups.
void OutsideWatch::Turn() {
  const TimePoint now = BootClock::now();
  const std::lock_guard lock(mutex_);
  const bool waits = !current_.directories.empty() || before_.group.valid();
  if (!waits || now < current_.ends) return;
  before_ = {};
  current_.ends = now + options_.period;
  if (current_.directories.empty()) return;
  Fd group = NewGroup();
  if (!group.valid()) return;  // this one goes on
  before_ = std::exchange(current_, {});
  current_.group = std::move(group);
  current_.ends = before_.ends;
  number_.fetch_add(1);
}

bool OutsideWatch::Read(Generation& generation) {
  alignas(fanotify_event_metadata) std::array<std::byte, 65536> events;
  for (int i = 0; i < kReadsATurn && !stopping_.load(); ++i) {
    const ssize_t size = ::read(generation.group.get(), events.data(), events.size());
    if (size <= 0) return false;
    Tell(generation, events.data(), static_cast<std::size_t>(size));
    // fanotify(7): as many as fit, and one is no longer than a name and a file handle.
    if (static_cast<std::size_t>(size) < events.size() / 2) return false;
  }
  return true;
}

void OutsideWatch::Tell(Generation& generation, const std::byte* events, std::size_t size) {
  const pid_t self = ::getpid();
  std::vector<Change> changes;
  bool lost = false;
  fanotify_event_metadata head;
  for (const std::byte* at = events; at < events + size; at += head.event_len) {
    std::memcpy(&head, at, sizeof head);
    if ((head.mask & FAN_Q_OVERFLOW) != 0) lost = true;
    if (head.pid == self || (head.mask & FAN_Q_OVERFLOW) != 0) continue;
    Event event = DecodeEvent(head, at);
    if (!event.place) continue;
    const NativeHandle& place = event.place->handle;
    Change change{.directory = Find(generation, MakeKey(event.place->file_system,
                                                        ByteSpan(place.bytes).first(place.size))),
                  .name = std::move(event.place->name)};
    if (!change.directory) continue;
    if (change.name == ".") change.name.clear();
    change.entry = (head.mask & kEntry) != 0;
    change.content = (head.mask & kContent) != 0;
    change.moved = (head.mask & (FAN_MOVED_FROM | FAN_DELETE)) != 0;
    if (event.inode && event.inode->file_system == event.place->file_system) {
      change.inode = event.inode->handle;
      change.inode->device = change.directory->native.device;
    }
    changes.push_back(std::move(change));
  }
  if (!changes.empty()) listener_.changed(changes);
  if (lost) listener_.lost();
}

std::shared_ptr<Inode> OutsideWatch::Find(const Generation& generation, const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = generation.directories.find(key);
  return found == generation.directories.end() ? nullptr : found->second;
}

}  // namespace rdfs::server
