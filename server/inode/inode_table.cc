#include "server/inode/inode_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "server/inode/open_file.h"
#include "server/inode/stat_beneath.h"
#include "server/ops/attr.h"

namespace rdfs::server {
namespace {

// A path of one-letter names cannot be deeper; a loop of parents cannot be, but costs nothing.
constexpr std::size_t kMaxDepth = fs::kMaxPathBytes / 2;

InodeRef Stale() { return {.inode = nullptr, .descriptor = nullptr, .error = ESTALE}; }

// What is stale its clients have lost for good: only what is gone, and not what cannot be had now.
InodeRef NotOpened(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EREMOTE:     // another mount lies over its name
    case EINVAL:      // the file system does not know the handle
    case EOPNOTSUPP:  // or has no handles any more
      return Stale();
    default:
      return {.inode = nullptr, .descriptor = nullptr, .error = error};
  }
}

// Whether its mount is; nothing where that cannot be told.
std::optional<bool> IsReadOnly(int fd) {
  struct statvfs info {};
  if (::fstatvfs(fd, &info) != 0) return std::nullopt;
  return (info.f_flag & ST_RDONLY) != 0;
}

NativeHandle RootOf(const Export& exported) {
  struct statx stat {};  // where this fails, AddRoot does as well
  (void)StatFd(exported.root(), stat);
  return NativeHandle::Of(exported.root(), stat);
}

}  // namespace

InodeTable::InodeTable(std::shared_ptr<const Export> exported, const HandleSecret& secret,
                       const ProcFd& proc, InodeLimits limits)
    : export_(std::move(exported)),
      native_root_(RootOf(*export_)),
      root_is_read_only_(IsReadOnly(export_->root()).value_or(false)),
      codec_(secret, export_->name(), native_root_),
      proc_(proc),
      limits_(limits) {}

Result<std::unique_ptr<InodeTable>> InodeTable::Create(std::shared_ptr<const Export> exported,
                                                       const HandleSecret& secret,
                                                       const ProcFd& proc, InodeLimits limits) {
  std::unique_ptr<InodeTable> table(new InodeTable(std::move(exported), secret, proc, limits));
  RDFS_RETURN_IF_ERROR(table->AddRoot());
  return table;
}

Status InodeTable::AddRoot() {
  OpenResult root = proc_.Reopen(export_->root(), O_PATH);
  if (!root.fd.valid()) return Status::FromErrno(root.error, "cannot reopen " + export_->name());
  struct statx stat {};
  if (const int error = StatFd(root.fd.get(), stat); error != 0) {
    return Status::FromErrno(error, "statx of " + export_->name());
  }
  root_ = Adopt(nullptr, "", std::move(root.fd), stat);
  const std::lock_guard lock(mutex_);
  root_.inode->pinned_ = true;
  // Whether handles can be opened shows by trying: rights, user namespaces and file systems differ.
  const Fd probe(OpenNativeHandle(export_->root(), root_.inode->native, O_PATH | O_CLOEXEC));
  by_handle_ = limits_.by_handle && probe.valid();
  return {};
}

InodeRef InodeTable::Find(const fs::Handle& handle, ThreadIdentity& identity) {
  InodePtr inode;
  {
    const std::lock_guard lock(mutex_);
    const auto it = by_handle_bytes_.find(handle);
    if (it != by_handle_bytes_.end()) {
      inode = it->second;
      if (inode->fd_) return TouchLocked(inode);
    }
  }
  if (inode) return Reopen(inode, identity);
  if (!by_handle_) return Stale();
  const auto native = codec_.Decode(handle);
  return native ? OpenByHandle(handle, *native, identity) : Stale();
}

InodeRef InodeTable::Reopen(const InodePtr& inode, ThreadIdentity& identity) {
  InodeRef by_handle = Stale();
  if (by_handle_ && inode->native.kind == NativeHandle::Kind::kFileHandle) {
    by_handle = OpenByHandle(inode->handle, inode->native, identity);
    if (by_handle.ok()) return by_handle;
  }
  InodeRef by_name = OpenByName(inode);
  // That it has this name no more does not say that it is gone.
  return by_name.ok() || by_handle.error == ESTALE ? by_name : by_handle;
}

InodeRef InodeTable::OpenByHandle(const fs::Handle& handle, const NativeHandle& native,
                                  ThreadIdentity& identity) {
  std::shared_ptr<const Fd> mount;
  {
    const std::lock_guard lock(mutex_);
    const auto it = mounts_.find(native.device);
    if (it != mounts_.end()) {
      mount = it->second.fd;
      it->second.used = age_;
    }
  }
  if (!mount && native.device != export_->root_device()) return Stale();
  const std::optional<ThreadIdentity::Caller> caller = identity.current();
  if (const Status status = identity.Become(std::nullopt); !status.ok()) return NotOpened(EIO);
  Fd fd(OpenNativeHandle(mount ? mount->get() : export_->root(), native, O_PATH | O_CLOEXEC));
  int error = fd.valid() ? 0 : errno;
  if (const Status status = identity.Become(caller); !status.ok()) return NotOpened(EIO);
  struct statx stat {};
  if (error == 0) error = StatFd(fd.get(), stat);
  if (error != 0) return NotOpened(error);
  // A file system that uses a generation again, or has none, shows here.
  if (codec_.Encode(NativeHandle::Of(fd.get(), stat)) != handle) return Stale();
  return Insert(nullptr, "", std::move(fd), stat, native);
}

InodeRef InodeTable::OpenByName(const InodePtr& inode) {
  // Up to the first ancestor with a descriptor, then down again by name.
  std::vector<InodePtr> missing;
  std::vector<std::string> names;
  std::shared_ptr<const Fd> at;
  {
    const std::lock_guard lock(mutex_);
    for (InodePtr step = inode; step && missing.size() < kMaxDepth; step = step->parent_) {
      if (step->fd_) {
        at = step->fd_;
        break;
      }
      missing.push_back(step);
      names.push_back(step->name_);
    }
  }
  if (!at) return Stale();
  InodeRef ref;
  for (std::size_t i = missing.size(); i-- > 0;) {
    OpenResult opened = OpenBeneath(at->get(), names[i], O_PATH);
    struct statx stat {};
    int error = opened.error;
    if (error == 0) error = StatBeneath(*export_, opened.fd.get(), "", stat);
    if (error != 0) return NotOpened(error);
    const NativeHandle native = NativeOf(opened.fd.get(), stat);
    if (!IsSameInode(native, missing[i]->native)) return Stale();
    ref = Insert(missing[i]->parent_, names[i], std::move(opened.fd), stat, native);
    at = ref.descriptor;
  }
  return ref;
}

InodeRef InodeTable::Lookup(const InodeRef& directory, const std::string& name,
                            struct statx& stat) {
  int error = StatBeneath(*export_, directory.fd(), name, stat);
  if (error != 0) return {.inode = nullptr, .descriptor = nullptr, .error = error};
  if (InodeRef held = FindHeld(directory.inode, name, stat); held.ok()) return held;
  OpenResult opened = OpenBeneath(directory.fd(), name, O_PATH);
  error = opened.error;
  if (error == 0) error = StatBeneath(*export_, opened.fd.get(), "", stat);
  if (error != 0) return {.inode = nullptr, .descriptor = nullptr, .error = error};
  return Adopt(directory.inode, name, std::move(opened.fd), stat);
}

InodeRef InodeTable::FindHeld(const InodePtr& parent, const std::string& name,
                              const struct statx& stat) {
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find({DeviceOf(stat), stat.stx_ino});
  if (it == by_key_.end() || !it->second->fd_) return Stale();
  const InodePtr& inode = it->second;
  if (inode != root_.inode && inode->type != (stat.stx_mode & S_IFMT)) return Stale();
  if (parent && inode != root_.inode) {
    inode->parent_ = parent;
    inode->name_ = name;
    inode->strayed_ = false;
  }
  return TouchLocked(inode);
}

InodeRef InodeTable::Adopt(const InodePtr& parent, const std::string& name, Fd fd,
                           const struct statx& stat) {
  if (InodeRef held = FindHeld(parent, name, stat); held.ok()) return held;
  const NativeHandle native = NativeOf(fd.get(), stat);
  return Insert(parent, name, std::move(fd), stat, native);
}

InodeRef InodeTable::Insert(const InodePtr& parent, const std::string& name, Fd fd,
                            const struct statx& stat, const NativeHandle& native) {
  const InodeKey key{DeviceOf(stat), stat.stx_ino};
  const fs::Handle handle = codec_.Encode(native);
  Descriptors let_go;
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find(key);
  InodePtr inode = it != by_key_.end() ? it->second : nullptr;
  const bool same = inode && inode->type == (stat.stx_mode & S_IFMT);
  if (inode && (!same || !IsSameInode(inode->native, native))) {
    // The number was given to a new inode; what had it before is gone for good.
    let_go.push_back(EraseLocked(inode));
    inode = nullptr;
  }
  if (!inode) {
    inode = std::make_shared<Inode>(handle, native, key, stat.stx_mode & S_IFMT);
    by_key_[key] = inode;
    by_handle_bytes_[handle] = inode;
  }
  if (parent && inode != parent) {
    inode->parent_ = parent;
    inode->name_ = name;
    inode->strayed_ = false;
  }
  if (!inode->fd_) InstallLocked(inode, std::make_shared<const Fd>(std::move(fd)));
  InodeRef ref = TouchLocked(inode);
  EvictLocked(let_go);
  return ref;
}

NativeHandle InodeTable::NativeOf(int fd, const struct statx& stat) {
  NativeHandle native = NativeHandle::Of(fd, stat);
  if (IsOtherMount(native, fd)) {
    if (native.kind == NativeHandle::Kind::kFileHandle) {
      native.kind = NativeHandle::Kind::kOtherMount;
    }
  } else {
    RememberMount(native, fd, stat);
  }
  return native;
}

// Whether it was reached by a mount below the export's own, and that is read-only where the one in
// which its handle would be opened may not be, or the other way round.
bool InodeTable::IsOtherMount(const NativeHandle& native, int fd) {
  if (native.mount < 0 || native.mount == native_root_.mount) return false;
  // The other way round: what is writable below it would be read-only by the export's own.
  if (root_is_read_only_ && native.device == export_->root_device()) return true;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = read_only_.find(native.mount); it != read_only_.end()) return it->second;
  }
  const std::optional<bool> is = IsReadOnly(fd);
  if (!is) return true;  // who knows
  const std::lock_guard lock(mutex_);
  read_only_[native.mount] = *is;
  return *is;
}

void InodeTable::RememberMount(const NativeHandle& native, int fd, const struct statx& stat) {
  const std::uint64_t device = native.device;
  if (device == export_->root_device() || native.mount < 0 || !S_ISDIR(stat.stx_mode)) return;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = mounts_.find(device); it != mounts_.end()) {
      it->second.used = age_;
      return;
    }
  }
  OpenResult opened = proc_.Reopen(fd, O_RDONLY | O_DIRECTORY);
  if (!opened.fd.valid()) return;  // then its inodes are found by name
  const std::lock_guard lock(mutex_);
  mounts_.try_emplace(device,
                      Mount{.fd = std::make_shared<const Fd>(std::move(opened.fd)), .used = age_});
}

UnlinkedInode InodeTable::Unlinked(const struct statx& before) {
  UnlinkedInode gone;
  // A directory goes with its only name.
  if (before.stx_nlink > 1 && !S_ISDIR(before.stx_mode)) return gone;
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find({DeviceOf(before), before.stx_ino});
  if (it == by_key_.end()) return gone;
  gone.inode = it->second;
  gone.inode->unlinked_ = true;
  gone.users = UsersOfLocked(*gone.inode);
  if (gone.inode->opens_.empty()) gone.descriptor = EraseLocked(gone.inode);
  return gone;
}

void InodeTable::Renamed(const struct statx& stat, const InodePtr& parent,
                         const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find({DeviceOf(stat), stat.stx_ino});
  if (it == by_key_.end() || it->second == parent) return;
  it->second->unlinked_ = false;
  it->second->parent_ = parent;
  it->second->name_ = name;
  it->second->strayed_ = false;
}

InodePtr InodeTable::Known(const InodeKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : it->second;
}

fs::Handle InodeTable::Own(const InodeKey& key, const fs::Handle& handle) const {
  const fs::Handle own = codec_.Own(handle);
  const InodePtr inode = Known(key);
  if (!inode || inode->handle == own) return own;
  // Each of the two may have reached it by another mount.
  const auto native = codec_.Decode(own);
  return native && IsSameInode(*native, inode->native) ? inode->handle : own;
}

InodePtr InodeTable::ParentOf(const Inode& inode) const {
  const std::lock_guard lock(mutex_);
  return inode.strayed_ ? nullptr : inode.parent_;
}

InodePtr InodeTable::ChangedOutside(const NativeHandle& native, bool moved) {
  NativeHandle other = native;
  other.kind = NativeHandle::Kind::kOtherMount;
  const fs::Handle handle = codec_.Encode(native), by_other_mount = codec_.Encode(other);
  const std::lock_guard lock(mutex_);
  auto it = by_handle_bytes_.find(handle);
  if (it == by_handle_bytes_.end()) it = by_handle_bytes_.find(by_other_mount);
  if (it == by_handle_bytes_.end()) return nullptr;
  if (moved) it->second->strayed_ = true;
  return it->second;
}

std::vector<InodePtr> InodeTable::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<InodePtr> all(open_.begin(), open_.end());
  all.insert(all.end(), closed_.begin(), closed_.end());
  return all;
}

void InodeTable::Opened(const InodePtr& inode, const std::shared_ptr<OpenFile>& open) {
  const std::lock_guard lock(mutex_);
  open->place = inode->opens_.size();
  inode->opens_.push_back(open);
}

// The last one takes its place: there may be very many. What is gone without a word goes with it.
void InodeTable::Closed(const InodePtr& inode, const OpenFile* open) {
  std::shared_ptr<const Fd> let_go;
  const std::lock_guard lock(mutex_);
  auto& opens = inode->opens_;
  if (open->place < opens.size() && opens[open->place].lock().get() == open) {
    if (const auto last = opens.back().lock()) last->place = open->place;
    opens[open->place] = opens.back();
    opens.pop_back();
  }
  while (!opens.empty() && opens.back().expired()) opens.pop_back();
  if (opens.empty() && inode->unlinked_) let_go = EraseLocked(inode);
}

std::vector<std::shared_ptr<OpenFile>> InodeTable::UsersOfLocked(const Inode& inode) {
  std::vector<std::shared_ptr<OpenFile>> users;
  for (const auto& open : inode.opens_) {
    if (auto user = open.lock()) users.push_back(std::move(user));
  }
  return users;
}

std::vector<std::shared_ptr<OpenFile>> InodeTable::UsersOf(const InodePtr& inode) const {
  const std::lock_guard lock(mutex_);
  return UsersOfLocked(*inode);
}

std::vector<std::shared_ptr<OpenFile>> InodeTable::UsersOf(const struct statx& stat) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find({DeviceOf(stat), stat.stx_ino});
  if (it == by_key_.end()) return {};
  return UsersOfLocked(*it->second);
}

bool InodeTable::HasUser(const InodeKey& key,
                         const std::function<bool(const OpenFile&)>& such) const {
  std::vector<std::shared_ptr<OpenFile>> seen;  // let go of behind the lock, which closing takes
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return false;
  for (const auto& open : it->second->opens_) {
    if (auto user = open.lock()) {
      seen.push_back(std::move(user));
      if (such(*seen.back())) return true;
    }
  }
  return false;
}

std::optional<std::size_t> InodeTable::Age(std::size_t& room) {
  Descriptors let_go;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(aging_, true)) ++age_;
  std::size_t pinned = 0;
  // The least recently used are at the end.
  for (auto it = open_.end(); it != open_.begin() && room > 0;) {
    const InodePtr inode = *--it;
    if (inode->used_ + 2 > age_) break;
    if (inode->pinned_) {
      ++pinned;
      continue;
    }
    ++it;
    if (inode->opens_.empty()) {
      let_go.push_back(DropDescriptorLocked(inode));
    } else {
      TouchLocked(inode);  // its time is not over, and the next part need not look at it again
    }
    --room;
  }
  if (room == 0) return std::nullopt;
  aging_ = false;
  DropUnusedMountsLocked(let_go);
  return open_.size() - pinned + mounts_.size();
}

// Its inodes are found by name until a directory of it has been opened again.
void InodeTable::DropUnusedMountsLocked(Descriptors& let_go) {
  read_only_.clear();  // numbers are used again, and mounts made writable
  if (mounts_.empty()) return;
  for (const InodePtr& inode : open_) {
    const auto it = mounts_.find(inode->key.device);
    if (it != mounts_.end()) it->second.used = age_;
  }
  std::erase_if(mounts_, [&](auto& mount) {
    if (mount.second.used + 2 > age_) return false;
    let_go.push_back(std::move(mount.second.fd));
    return true;
  });
}

std::size_t InodeTable::descriptors() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

std::size_t InodeTable::entries() const {
  const std::lock_guard lock(mutex_);
  return open_.size() + closed_.size();
}

InodeRef InodeTable::TouchLocked(const InodePtr& inode) {
  inode->used_ = age_;
  if (inode->listed_) open_.splice(open_.begin(), open_, inode->place_);
  return {.inode = inode, .descriptor = inode->fd_, .error = 0};
}

void InodeTable::InstallLocked(const InodePtr& inode, std::shared_ptr<const Fd> fd) {
  if (inode->listed_) closed_.erase(inode->place_);
  inode->fd_ = std::move(fd);
  open_.push_front(inode);
  inode->place_ = open_.begin();
  inode->listed_ = true;
}

void InodeTable::EvictLocked(Descriptors& let_go) {
  // What is open goes to the other end, a bounded number of them each time: many that nobody uses
  // at the moment must not keep all others from their turn.
  std::size_t patience = 64;
  while (open_.size() > limits_.descriptors && patience-- > 0) {
    const InodePtr oldest = open_.back();
    if (oldest->pinned_ || !oldest->opens_.empty()) {
      TouchLocked(oldest);
    } else {
      let_go.push_back(DropDescriptorLocked(oldest));
    }
  }
  while (open_.size() + closed_.size() > limits_.entries && !closed_.empty()) {
    (void)EraseLocked(InodePtr(closed_.back()));  // without one
  }
}

std::shared_ptr<const Fd> InodeTable::DropDescriptorLocked(const InodePtr& inode) {
  open_.erase(inode->place_);
  closed_.push_front(inode);
  inode->place_ = closed_.begin();
  return std::exchange(inode->fd_, nullptr);
}

std::shared_ptr<const Fd> InodeTable::EraseLocked(const InodePtr& inode) {
  if (inode->listed_) {
    (inode->fd_ ? open_ : closed_).erase(inode->place_);
    inode->listed_ = false;
  }
  if (const auto it = by_key_.find(inode->key); it != by_key_.end() && it->second == inode) {
    by_key_.erase(it);
  }
  if (const auto it = by_handle_bytes_.find(inode->handle);
      it != by_handle_bytes_.end() && it->second == inode) {
    by_handle_bytes_.erase(it);
  }
  return std::exchange(inode->fd_, nullptr);
}

}  // namespace rdfs::server
