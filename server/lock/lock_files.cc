#include "server/lock/lock_files.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "server/identity/as_server.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// As the supervisor keeps them.
struct KeptKey {
  Le32 kind, flock;
  Le64 session, owner, device, inode;
};
constexpr std::uint32_t kLockKind = 0x4b434f4c;  // "LOCK"
struct KeptLock {
  Le32 type, pid;
  Le64 start, end, open;
};
struct KeptAccess {
  Le32 readable, writable;
};

struct flock ToKernel(const Lock& lock) {
  struct flock out {};
  out.l_type = lock.type == fs::LockType::kUnlock  ? F_UNLCK
               : lock.type == fs::LockType::kWrite ? F_WRLCK
                                                   : F_RDLCK;
  out.l_whence = SEEK_SET;
  out.l_start = static_cast<off_t>(lock.start);
  out.l_len = lock.end >= LockTable::kEnd ? 0 : static_cast<off_t>(lock.end - lock.start + 1);
  return out;
}

int OfdSet(int fd, const Lock& lock) {
  struct flock kernel = ToKernel(lock);
  if (::fcntl(fd, F_OFD_SETLK, &kernel) == 0) return 0;
  return errno == EACCES ? EAGAIN : errno;
}

KeptKey KeyOf(const LockOwner& owner, const InodeKey& inode) {
  KeptKey key;
  key.kind = kLockKind;
  key.flock = owner.flock ? 1U : 0U;
  key.session = owner.session;
  key.owner = owner.owner;
  key.device = inode.device;
  key.inode = inode.inode;
  return key;
}

ByteSpan Bytes(const KeptKey& key) { return std::as_bytes(std::span<const KeptKey, 1>(&key, 1)); }

}  // namespace

int LockFiles::SetFlock(const OpenFile& open, const Lock& wanted) {
  const Name name{wanted.owner, open.inode->key};
  const auto it = files_.find(name);
  const File file = it != files_.end() ? it->second : File{open.fd, true, true};
  const int operation = wanted.type == fs::LockType::kWrite ? LOCK_EX : LOCK_SH;
  // Changing the kind gives the old lock up first, here as in the kernel (flock(2)).
  if (::flock(file.fd->get(), operation | LOCK_NB) != 0) return errno;
  if (it == files_.end()) Lend(name, file);
  return 0;
}

int LockFiles::NewFile(const OpenFile& open, const LockOwner& owner, bool both, File& out) {
  out.readable = both || open.readable();
  out.writable = both || open.writable();
  const bool allows = out.readable == open.readable() && out.writable == open.writable();
  const auto user = lent_.find(open.fd.get());
  if (allows && (user == lent_.end() || user->second == owner)) {
    out.fd = open.fd;
    return 0;
  }
  if (reopened_ >= max_reopened_) return ENOLCK;
  const int access = out.readable ? (out.writable ? O_RDWR : O_RDONLY) : O_WRONLY;
  const int flags = access | (open.appends_only ? O_APPEND : 0);
  OpenResult opened = proc_.Reopen(open.fd->get(), flags);
  if (!opened.fd.valid()) {
    // Its owner has these rights from when he opened the file: the mode may be another one by now,
    // and who is served right now another user.
    const AsServer rights;
    opened = proc_.Reopen(open.fd->get(), flags);
  }
  if (!opened.fd.valid()) return ENOLCK;
  out.fd = std::make_shared<const Fd>(std::move(opened.fd));
  out.reopened = true;
  return 0;
}

int LockFiles::Prepare(const OpenFile& open, const Lock& wanted, const std::vector<Lock>& held,
                       File*& out) {
  const Name name{wanted.owner, open.inode->key};
  const bool write = wanted.type == fs::LockType::kWrite;
  if (write ? !open.writable() : !open.readable()) return EBADF;
  auto it = files_.find(name);
  if (it != files_.end() && (write ? it->second.writable : it->second.readable)) {
    out = &it->second;
    return 0;
  }
  File file;
  const bool both = it != files_.end();
  if (const int error = NewFile(open, wanted.owner, both, file); error != 0) return error;
  if (both) {
    Move(name, std::move(file), held);
  } else {
    Lend(name, std::move(file));
  }
  out = &files_.find(name)->second;
  return 0;
}

void LockFiles::Move(const Name& name, File file, const std::vector<Lock>& held) {
  const File old = files_.at(name);
  const Lock all{.owner = name.owner, .type = fs::LockType::kUnlock, .end = LockTable::kEnd};
  // Read locks may be held by both meanwhile. Write locks may not: a local process may come
  // between.
  if (old.writable) (void)OfdSet(old.fd->get(), all);
  for (const Lock& lock : held) {
    if (OfdSet(file.fd->get(), lock) != 0) LogWarn("a lock was lost to a local process");
  }
  (void)OfdSet(old.fd->get(), all);
  keeper_.Drop(Bytes(KeyOf(name.owner, name.inode)));
  Forget(name);
  Lend(name, std::move(file));
  Update(name.inode, name.owner, held);
}

int LockFiles::Set(const OpenFile& open, const Lock& wanted, const std::vector<Lock>& held) {
  if (wanted.owner.flock) return SetFlock(open, wanted);
  File* file = nullptr;
  if (const int error = Prepare(open, wanted, held, file); error != 0) return error;
  const int error = OfdSet(file->fd->get(), wanted);
  // A description without a lock would be nobody's to close.
  if (error != 0 && held.empty()) Forget({wanted.owner, open.inode->key});
  return error;
}

void LockFiles::Unlock(const InodeKey& inode, const Lock& range) {
  const auto it = files_.find({range.owner, inode});
  if (it == files_.end()) return;
  if (range.owner.flock) {
    ::flock(it->second.fd->get(), LOCK_UN);
    return;
  }
  Lock unlock = range;
  unlock.type = fs::LockType::kUnlock;
  if (const int error = OfdSet(it->second.fd->get(), unlock); error != 0) {
    LogWarn("cannot give a lock back: {}", Status::FromErrno(error, "fcntl").message());
  }
}

int LockFiles::Test(const OpenFile& open, const Lock& wanted, Lock& found) const {
  found = wanted;
  found.type = fs::LockType::kUnlock;
  found.pid = 0;
  if (wanted.owner.flock) return 0;  // flock(2) has no such question
  const auto it = files_.find({wanted.owner, open.inode->key});
  struct flock kernel = ToKernel(wanted);
  kernel.l_pid = 0;
  if (::fcntl((it != files_.end() ? it->second.fd : open.fd)->get(), F_OFD_GETLK, &kernel) != 0) {
    return errno;
  }
  if (kernel.l_type == F_UNLCK) return 0;
  found.type = kernel.l_type == F_WRLCK ? fs::LockType::kWrite : fs::LockType::kRead;
  found.start = static_cast<std::uint64_t>(kernel.l_start);
  found.end = kernel.l_len == 0 ? LockTable::kEnd
                                : static_cast<std::uint64_t>(kernel.l_start + kernel.l_len - 1);
  found.pid = kernel.l_pid > 0 ? static_cast<std::uint32_t>(kernel.l_pid) : 0;
  return 0;
}

void LockFiles::Update(const InodeKey& inode, const LockOwner& owner,
                       const std::vector<Lock>& held) {
  const Name name{owner, inode};
  const auto it = files_.find(name);
  if (it == files_.end()) return;
  const KeptKey key = KeyOf(owner, inode);
  if (held.empty()) {
    keeper_.Drop(Bytes(key));
    Forget(name);
    return;
  }
  if (!keeper_.supervised()) return;
  std::vector<std::byte> state(sizeof(KeptAccess) + held.size() * sizeof(KeptLock));
  // Nothing is better than what was true before: their client asks for them.
  if (state.size() > DescriptorKeeper::kMaxStateBytes) return keeper_.Drop(Bytes(key));
  ByteWriter writer(state);
  writer.Write(KeptAccess{it->second.readable ? 1U : 0U, it->second.writable ? 1U : 0U});
  for (const Lock& lock : held) {
    writer.Write(
        KeptLock{static_cast<std::uint32_t>(lock.type), lock.pid, lock.start, lock.end, lock.open});
  }
  Status kept = keeper_.SetState(Bytes(key), state);
  if (kept.code() == Code::kNotFound) kept = keeper_.Keep(Bytes(key), it->second.fd->get(), state);
  if (!kept.ok()) LogWarn("a lock would not survive a crash of the server: {}", kept.message());
}

std::vector<LockFiles::Adopted> LockFiles::Adopt(DescriptorKeeper::Kept& kept) {
  ByteReader key_reader(kept.key);
  const auto key = key_reader.Read<KeptKey>();
  if (!key_reader.ok() || key_reader.remaining() != 0 || key.kind != kLockKind) return {};
  const LockOwner owner{key.session, key.owner, key.flock != 0};
  Adopted adopted{.inode = {key.device, key.inode}, .locks = {}};
  ByteReader reader(kept.state);
  const auto access = reader.Read<KeptAccess>();
  while (reader.ok() && reader.remaining() >= sizeof(KeptLock)) {
    const auto lock = reader.Read<KeptLock>();
    adopted.locks.push_back({.owner = owner,
                             .type = static_cast<fs::LockType>(std::uint32_t{lock.type}),
                             .start = lock.start,
                             .end = lock.end,
                             .open = lock.open,
                             .pid = lock.pid});
  }
  Lend({owner, adopted.inode}, {std::make_shared<const Fd>(std::move(kept.fd)),
                                access.readable != 0, access.writable != 0});
  std::vector<Adopted> out;
  out.push_back(std::move(adopted));
  return out;
}

void LockFiles::Lend(const Name& name, File file) {
  // flock(2) and fcntl(2) locks on one description do not meet.
  if (!name.owner.flock) lent_[file.fd.get()] = name.owner;
  if (file.reopened) ++reopened_;
  files_[name] = std::move(file);
}

void LockFiles::Forget(const Name& name) {
  const auto it = files_.find(name);
  if (it == files_.end()) return;
  const auto lent = lent_.find(it->second.fd.get());
  if (lent != lent_.end() && lent->second == name.owner) lent_.erase(lent);
  if (it->second.reopened) --reopened_;
  files_.erase(it);
}

}  // namespace rdfs::server
