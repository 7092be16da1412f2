// Names: lookup, readlink, symlink, mknod, mkdir, unlink, rmdir, rename, link.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "server/inode/open_keep.h"
#include "server/inode/stat_beneath.h"
#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

// A name of an open file is about to change, or has changed. Whoever had the file open by it could
// not lead a restarted server there: before, because the server may be killed at any moment; and
// behind for who has opened it meanwhile.
void KeepRenamed(Call& call, const struct statx& file) {
  DescriptorKeeper& keeper = call.core().keeper;
  if (file.stx_ino == 0 || !S_ISREG(file.stx_mode) || !keeper.supervised()) return;
  for (const OpenPtr& open : call.session.inodes().UsersOf(file)) {
    KeepOpen(keeper, *open);
  }
}

// What a name refers to before it goes. Nothing there: an inode number 0.
struct statx StatName(const Call& call, const InodeRef& parent, const std::string& name) {
  struct statx stat {};
  const Export& exported = call.session.inodes().exported();
  if (StatBeneath(exported, parent.fd(), name, stat) != 0) return {};
  return stat;
}

bool AreOfOneInode(const struct statx& one, const struct statx& other) {
  return one.stx_ino == other.stx_ino && DeviceOf(one) == DeviceOf(other);
}

struct ParentAndName {
  InodeRef parent;
  std::string name;
};

// The last two fields of most requests here; check call.Decoded() afterwards and then the parent.
ParentAndName ReadParentAndName(Call& call) {
  const fs::Handle handle = fs::ReadHandle(call.body);
  ParentAndName out;
  out.name = NameFrom(fs::ReadName(call.body));
  if (call.body.ok()) out.parent = call.Find(handle);
  return out;
}

// What a directory that is gone, behind the parent's own news, is like for who has it open: as
// rmdir(2) has left it, at the time that it has given the parent.
void TellRemoved(Call& call, const struct statx& before) {
  if (call.directories.empty() || !S_ISDIR(before.stx_mode)) return;
  fs::AttrWire gone = ToAttr(before, 0, call.attr_context());
  gone.nlink = 0U;
  gone.ctime = call.directories.front().ctime;
  call.directories.push_back(gone);
}

Outcome Remove(Call& call, int flags) {
  const ParentAndName where = ReadParentAndName(call);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!where.parent.ok()) return Outcome::Errno(where.parent.error);
  const struct statx before = StatName(call, where.parent, where.name);
  KeepRenamed(call, before);
  if (::unlinkat(where.parent.fd(), where.name.c_str(), flags) != 0) return Outcome::Errno(errno);
  NameGone(call, before);
  KeepRenamed(call, before);
  call.TellDirectories({&where.parent});
  TellRemoved(call, before);
  return Outcome::Ok();
}

// The kernel's flags, or -1 for bits that are not ours.
int RenameFlags(std::uint32_t wire) {
  if ((wire & ~(fs::kRenameNoReplace | fs::kRenameExchange | fs::kRenameWhiteout)) != 0) return -1;
  int flags = 0;
  if ((wire & fs::kRenameNoReplace) != 0) flags |= RENAME_NOREPLACE;
  if ((wire & fs::kRenameExchange) != 0) flags |= RENAME_EXCHANGE;
  if ((wire & fs::kRenameWhiteout) != 0) flags |= RENAME_WHITEOUT;
  return flags;
}

Outcome MakeNode(Call& call, const fs::MknodRequest& request, const ParentAndName& where) {
  call.worker.identity.SetUmask(request.umask);
  const mode_t mode = request.mode;
  int result = 0;
  if (S_ISDIR(mode)) {
    result = ::mkdirat(where.parent.fd(), where.name.c_str(), mode & 07777U);
  } else {
    result = ::mknodat(where.parent.fd(), where.name.c_str(), mode & (S_IFMT | 07777U),
                       makedev(request.rdev_major, request.rdev_minor));
  }
  if (result != 0) return Outcome::Errno(errno);
  call.TellDirectories({&where.parent});
  return call.AnswerLookup(where.parent, where.name);
}

Outcome DecodeAndMakeNode(Call& call, bool directory) {
  auto request = call.body.Read<fs::MknodRequest>();
  const ParentAndName where = ReadParentAndName(call);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!where.parent.ok()) return Outcome::Errno(where.parent.error);
  if (directory) {
    request.mode = (request.mode & 07777U) | S_IFDIR;
  } else if (S_ISDIR(request.mode)) {
    return Outcome::Errno(EPERM);  // mknod(2)
  }
  return MakeNode(call, request, where);
}

}  // namespace

Outcome OpLookup(Call& call) {
  const ParentAndName where = ReadParentAndName(call);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!where.parent.ok()) return Outcome::Errno(where.parent.error);
  return call.AnswerLookup(where.parent, where.name);
}

Outcome OpReadlink(Call& call) {
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  if (!S_ISLNK(ref.inode->type)) return Outcome::Errno(EINVAL);
  std::array<char, fs::kMaxPathBytes> target;
  const ssize_t size = ::readlinkat(ref.fd(), "", target.data(), target.size());
  if (size < 0) return Outcome::Errno(errno);
  call.out.WriteSized16(AsBytes({target.data(), static_cast<std::size_t>(size)}));
  return Outcome::Ok();
}

Outcome OpSymlink(Call& call) {
  const ParentAndName where = ReadParentAndName(call);
  const std::string target = NameFrom(call.body.ReadSized16(fs::kMaxPathBytes));
  if (!call.Decoded() || target.find('\0') != target.npos) return Outcome::Malformed();
  if (!where.parent.ok()) return Outcome::Errno(where.parent.error);
  if (::symlinkat(target.c_str(), where.parent.fd(), where.name.c_str()) != 0) {
    return Outcome::Errno(errno);
  }
  call.TellDirectories({&where.parent});
  return call.AnswerLookup(where.parent, where.name);
}

Outcome OpMknod(Call& call) { return DecodeAndMakeNode(call, false); }
Outcome OpMkdir(Call& call) { return DecodeAndMakeNode(call, true); }
Outcome OpUnlink(Call& call) { return Remove(call, 0); }
Outcome OpRmdir(Call& call) { return Remove(call, AT_REMOVEDIR); }

Outcome OpRename(Call& call) {
  const auto request = call.body.Read<fs::RenameRequest>();
  const ParentAndName from = ReadParentAndName(call);
  const ParentAndName to = ReadParentAndName(call);
  if (!call.Decoded()) return Outcome::Malformed();
  const int flags = RenameFlags(request.flags);
  if (flags < 0) return Outcome::Errno(EINVAL);
  if (!from.parent.ok()) return Outcome::Errno(from.parent.error);
  if (!to.parent.ok()) return Outcome::Errno(to.parent.error);
  const struct statx moved = StatName(call, from.parent, from.name);
  const struct statx replaced = StatName(call, to.parent, to.name);
  KeepRenamed(call, moved);
  KeepRenamed(call, replaced);
  if (::syscall(SYS_renameat2, from.parent.fd(), from.name.c_str(), to.parent.fd(), to.name.c_str(),
                static_cast<unsigned>(flags)) != 0) {
    return Outcome::Errno(errno);
  }
  InodeTable& table = call.session.inodes();
  table.Renamed(moved, to.parent.inode, to.name);
  if ((flags & RENAME_EXCHANGE) != 0) {
    table.Renamed(replaced, from.parent.inode, from.name);
    KeepRenamed(call, replaced);
  } else if (replaced.stx_ino != 0 && !AreOfOneInode(moved, replaced)) {
    // Of two names of one inode none has gone: there was nothing to do (rename(2)).
    NameGone(call, replaced);
    KeepRenamed(call, replaced);
  }
  KeepRenamed(call, moved);
  call.TellDirectories({&from.parent, &to.parent});
  return Outcome::Ok();
}

Outcome OpLink(Call& call) {
  const fs::Handle handle = fs::ReadHandle(call.body);
  const ParentAndName where = ReadParentAndName(call);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!where.parent.ok()) return Outcome::Errno(where.parent.error);
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  // Through /proc: AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH (open(2), linkat).
  if (::linkat(call.core().proc.dir(), std::to_string(ref.fd()).c_str(), where.parent.fd(),
               where.name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return Outcome::Errno(errno);
  }
  struct statx stat {};
  if (const int error = StatFd(ref.fd(), stat); error != 0) return Outcome::Errno(error);
  call.session.inodes().Renamed(stat, where.parent.inode, where.name);
  call.TellDirectories({&where.parent});
  return call.AnswerEntry(*where.parent.inode, ref, stat);
}

void NameGone(Call& call, const struct statx& before) {
  if (before.stx_ino == 0) return;
  const UnlinkedInode gone = call.session.inodes().Unlinked(before);
  if (!gone.inode) return;
  if (gone.users.empty()) {
    call.core().stores.Changed(FileIdOf(*gone.inode), 0, ExtentStore::kToEnd);
    return;
  }
  for (const OpenPtr& open : gone.users) KeepOpen(call.core().keeper, *open);
}

}  // namespace rdfs::server
