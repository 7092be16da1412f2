#include "server/inode/open_keep.h"

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

struct OpenKey {
  Le32 kind;
  Le64 session, number;
};
constexpr std::uint32_t kOpenKind = 0x4e45504f;  // "OPEN"

OpenKey KeyOf(std::uint64_t session, std::uint64_t number) {
  OpenKey key;
  key.kind = kOpenKind;
  key.session = session;
  key.number = number;
  return key;
}

ByteSpan Bytes(const OpenKey& key) { return std::as_bytes(std::span<const OpenKey, 1>(&key, 1)); }

void DropKept(DescriptorKeeper& keeper, std::uint64_t session, std::uint64_t number) {
  const OpenKey key = KeyOf(session, number);
  keeper.Drop(Bytes(key));
}

}  // namespace

bool CannotBeReopened(const OpenFile& open, const struct statx& stat) {
  if (open.opener == 0) return false;
  mode_t needed = 0;
  if (open.readable()) needed |= S_IRUSR;
  if (open.writable()) needed |= S_IWUSR;
  // Others have it by their group or an ACL, perhaps: what nobody can be sure of counts as lost.
  if (stat.stx_uid != open.opener) needed |= needed >> 3U | needed >> 6U;
  return (stat.stx_mode & needed) != needed;
}

bool KeepOpen(DescriptorKeeper& keeper, const OpenFile& open) {
  if (open.directory || open.kept.exchange(true)) return true;
  const OpenKey key = KeyOf(open.session, open.number);
  const Status kept = keeper.Keep(Bytes(key), open.fd->get());
  if (!kept.ok()) {
    open.kept.store(false);
    LogWarn("an open file that cannot be opened again would not survive a crash of the server: {}",
            kept.message());
  }
  // Meanwhile: whoever did that may not have seen that it was kept.
  if (open.closed.load()) DropKeptOpen(keeper, open);
  return kept.ok();
}

void KeepWhatWouldBeLost(DescriptorKeeper& keeper, InodeTable& table, const InodePtr& inode,
                         const struct statx& stat) {
  if (!keeper.supervised() || !S_ISREG(stat.stx_mode)) return;
  for (const OpenPtr& open : table.UsersOf(inode)) {
    if (CannotBeReopened(*open, stat)) KeepOpen(keeper, *open);
  }
}

void DropKeptOpen(DescriptorKeeper& keeper, const OpenFile& open) {
  DropKept(keeper, open.session, open.number);
  const std::uint64_t before = open.kept_before.exchange(0);
  if (before != 0) DropKept(keeper, open.session, before);
}

void KeepReclaimed(DescriptorKeeper& keeper, const OpenFile& open, std::uint64_t old_number) {
  const OpenKey old_key = KeyOf(open.session, old_number);
  if (keeper.SetState(Bytes(old_key), {}).code() == Code::kNotFound) return;
  KeepOpen(keeper, open);
  // Where there is little room, for the number that will be asked for most likely.
  if (open.kept.load() && !keeper.HasPlenty()) return DropKept(keeper, open.session, old_number);
  open.kept_before = old_number;
}

bool OrphanedOpens::Adopt(DescriptorKeeper::Kept& kept) {
  ByteReader reader(kept.key);
  const auto key = reader.Read<OpenKey>();
  if (!reader.ok() || reader.remaining() != 0 || key.kind != kOpenKind) return false;
  const std::lock_guard lock(mutex_);
  fds_[{key.session, key.number}] = std::move(kept.fd);
  return true;
}

Fd OrphanedOpens::Take(std::uint64_t session, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto it = fds_.find({session, number});
  if (it == fds_.end()) return Fd();
  Fd fd = std::move(it->second);
  fds_.erase(it);
  return fd;
}

void OrphanedOpens::Return(std::uint64_t session, std::uint64_t number, Fd fd) {
  const std::lock_guard lock(mutex_);
  fds_[{session, number}] = std::move(fd);
}

void OrphanedOpens::DropAll(DescriptorKeeper& keeper) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, fd] : fds_) {
    DropKept(keeper, name.first, name.second);
  }
  fds_.clear();
}

}  // namespace rdfs::server
