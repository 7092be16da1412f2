// Open files: open, create, tmpfile, reclaim, release.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "server/inode/open_keep.h"
#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

// What the descriptor itself never has: see open_file.h.
int DescriptorFlags(std::uint32_t wire) {
  return fs::OpenFlagsFromWire(wire) & ~(O_APPEND | O_DIRECT | O_SYNC | O_DSYNC | O_CREAT | O_EXCL);
}

// What an open does once, and never again for the same open file.
constexpr std::uint32_t kMaking = fs::kOpenTruncate | fs::kOpenExclusive | fs::kOpenCreate;

// Why this type of file is never opened; 0 for a regular file. A FIFO's open would wait, a device's
// would reach the server's hardware: both are the client's own kernel's business.
int RefuseType(std::uint32_t type) {
  if (S_ISREG(type)) return 0;
  if (S_ISDIR(type)) return EISDIR;
  return S_ISLNK(type) ? ELOOP : ENXIO;
}

Outcome AnswerOpened(Call& call, const OpenFile& open, const struct statx& stat,
                     const fs::Entry* entry) {
  fs::OpenReply reply;
  reply.open = open.number;
  reply.attr = call.Attr(*open.inode, stat);
  reply.write_lease_ms = open.directory ? 0U : WriteLeaseOf(call.core(), open, call.since);
  call.out.Write(reply);
  if (entry != nullptr) fs::WriteEntry(call.out, *entry);
  return Outcome::Ok();
}

// `old_number`: what the client calls the file so far, when it reclaims it.
Outcome AnswerOpen(Call& call, OpenPlace place, const InodePtr& inode, Fd fd, std::uint32_t flags,
                   const struct statx& stat, const fs::Entry* entry, std::uint64_t old_number = 0) {
  call.core().stores.NoteVersion(FileIdOf(*inode), FileVersion::From(stat));
  const std::optional<Ids> caller = call.Caller();
  const uid_t opener = caller ? caller->uid : ::geteuid();
  const OpenPtr open = call.session.AddOpen(std::move(place), inode, std::move(fd), flags, opener);
  if (!open) return call.RefuseOpen();
  call.core().file_opened();
  if (old_number != 0) {
    call.session.NoteReclaimed(*open, old_number);
    call.core().locks.Reclaimed(*open, old_number);
    KeepReclaimed(call.core().keeper, *open, old_number);
  } else if (stat.stx_uid == opener && CannotBeReopened(*open, stat)) {
    KeepOpen(call.core().keeper, *open);
  }
  return AnswerOpened(call, *open, stat, entry);
}

// A file that the server's file system lets nobody write to but at its end (chattr +a) is opened
// with O_APPEND or not at all. It makes no difference to another one's errors.
OpenResult OpenForCaller(const ProcFd& proc, const InodeRef& ref, std::uint32_t flags) {
  OpenResult opened = proc.ReopenWithoutWaiting(ref.fd(), DescriptorFlags(flags));
  if (opened.error != EPERM || (flags & fs::kOpenAppend) == 0) return opened;
  return proc.ReopenWithoutWaiting(ref.fd(), DescriptorFlags(flags) | O_APPEND);
}

// Who makes a file may write to it whatever mode it gets (git's objects: 0444). Where the
// descriptor of the making is lost, the caller, who owns the file, allows itself to open it, and
// takes that back.
OpenResult OpenAsItsMaker(const Call& call, const InodeRef& ref, std::uint32_t flags) {
  const ProcFd& proc = call.core().proc;
  OpenResult opened = proc.ReopenWithoutWaiting(ref.fd(), DescriptorFlags(flags));
  struct statx stat {};
  if (opened.error != EACCES || StatFd(ref.fd(), stat) != 0) return opened;
  const std::string path = ProcFd::Path(ref.fd());
  if (::chmod(path.c_str(), (stat.stx_mode & 07777U) | S_IRUSR | S_IWUSR) != 0) return opened;
  opened = proc.ReopenWithoutWaiting(ref.fd(), DescriptorFlags(flags));
  (void)::chmod(path.c_str(), stat.stx_mode & 07777U);
  return opened;
}

enum class Opens : std::uint8_t { kWhatIsThere, kWhatItMade };

// Opens an inode that exists; `parent` asks for the longer reply of Create.
Outcome OpenInode(Call& call, OpenPlace place, const InodeRef& ref, std::uint32_t flags,
                  const Inode* parent, std::uint64_t old_number = 0,
                  Opens opens = Opens::kWhatIsThere) {
  if (const int error = RefuseType(ref.inode->type); error != 0) return Outcome::Errno(error);
  if (!place) return call.RefuseOpen();
  OpenResult opened = opens == Opens::kWhatItMade ? OpenAsItsMaker(call, ref, flags)
                                                  : OpenForCaller(call.core().proc, ref, flags);
  // Nothing is done yet, and the client asks again under another number. A file that it made itself
  // would be somebody else's to it then.
  if (opened.error == EWOULDBLOCK && opens == Opens::kWhatIsThere) {
    return Outcome::Error(fs::WireError::kGrace);
  }
  if (!opened.fd.valid()) return Outcome::Errno(opened.error);
  if ((flags & fs::kOpenTruncate) != 0) {
    ref.inode->Changed();
    call.core().stores.Changed(FileIdOf(*ref.inode), 0, ExtentStore::kToEnd);
  }
  struct statx stat {};
  if (const int error = StatFd(opened.fd.get(), stat); error != 0) return Outcome::Errno(error);
  if (parent == nullptr) {
    return AnswerOpen(call, std::move(place), ref.inode, std::move(opened.fd), flags, stat, nullptr,
                      old_number);
  }
  const fs::Entry made = call.EntryOf(*parent, ref, stat);
  return AnswerOpen(call, std::move(place), ref.inode, std::move(opened.fd), flags, stat, &made,
                    old_number);
}

// A descriptor of a file that was just made becomes an inode and an open file. The descriptor is
// kept as it is: a file of mode 000 could not be opened again.
Outcome AnswerMade(Call& call, OpenPlace place, const InodeRef& parent, const std::string& name,
                   Fd fd, std::uint32_t flags) {
  struct statx stat {};
  if (const int error = StatFd(fd.get(), stat); error != 0) return Outcome::Errno(error);
  OpenResult path = call.core().proc.Reopen(fd.get(), O_PATH);
  if (!path.fd.valid()) return Outcome::Errno(path.error);
  const InodeRef made = call.session.inodes().Adopt(parent.inode, name, std::move(path.fd), stat);
  if (parent.inode) call.TellDirectories({&parent});
  // Without a name it has no parent.
  const fs::Entry entry = parent.inode ? call.EntryOf(*parent.inode, made, stat)
                                       : fs::Entry{.handle = made.inode->handle,
                                                   .attr = call.Attr(*made.inode, stat),
                                                   .entry_lease_ms = 0};
  return AnswerOpen(call, std::move(place), made.inode, std::move(fd), flags, stat, &entry);
}

// Whether a kept descriptor is of the file that its client means, and open for what it wants.
bool IsMeant(const Call& call, int kept, std::uint32_t flags, const fs::Handle& handle,
             const struct statx& stat) {
  const int have = ::fcntl(kept, F_GETFL) & O_ACCMODE;
  const int wanted = DescriptorFlags(flags) & O_ACCMODE;
  if (have != O_RDWR && have != wanted) return false;
  // What has no name any more may be found no more.
  const InodeRef named = call.Find(handle);
  return !named.ok() || named.inode->key == InodeKey{DeviceOf(stat), stat.stx_ino};
}

// The supervisor need not keep it any more.
void DropOrphan(Call& call, std::uint64_t number) {
  OpenFile orphan;
  orphan.session = call.session.id();
  orphan.number = number;
  DropKeptOpen(call.core().keeper, orphan);
}

// Whether it is what its client asks for again.
bool IsAskedFor(const OpenFile& open, const fs::Handle& handle, std::uint32_t flags) {
  if (open.inode->handle != handle) return false;
  return open.directory != nullptr || (open.flags & ~kMaking) == flags;
}

Outcome AnswerAgain(Call& call, const OpenFile& open) {
  struct statx stat {};
  if (const int error = StatFd(open.fd->get(), stat); error != 0) return Outcome::Errno(error);
  return AnswerOpened(call, open, stat, nullptr);
}

bool WantsToWrite(std::uint32_t flags) {
  return (flags & (fs::kOpenWrite | fs::kOpenTruncate)) != 0;
}

}  // namespace

Outcome OpOpen(Call& call) {
  const auto request = call.body.Read<fs::OpenRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  if (call.session.params().read_only && WantsToWrite(request.flags)) return Outcome::Errno(EROFS);
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  return OpenInode(call, call.session.TakePlace(), ref, request.flags, nullptr);
}

Outcome OpCreate(Call& call) {
  const auto request = call.body.Read<fs::CreateRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  const std::string name = NameFrom(fs::ReadName(call.body));
  if (!call.Decoded()) return Outcome::Malformed();
  const InodeRef parent = call.Find(handle);
  if (!parent.ok()) return Outcome::Errno(parent.error);
  OpenPlace place = call.session.TakePlace();
  if (!place) return call.RefuseOpen();
  call.worker.identity.SetUmask(request.umask);
  // Always exclusive at first: what exists already is looked at before it is opened, because it may
  // be a FIFO by now.
  const int flags = (DescriptorFlags(request.flags) & ~O_TRUNC) | O_CREAT | O_EXCL;
  OpenResult made = OpenBeneath(parent.fd(), name, flags, request.mode & 07777U);
  if (made.fd.valid()) {
    return AnswerMade(call, std::move(place), parent, name, std::move(made.fd), request.flags);
  }
  if (made.error != EEXIST || (request.flags & fs::kOpenExclusive) != 0) {
    return Outcome::Errno(made.error);
  }
  struct statx stat {};
  const InodeRef found = call.session.inodes().Lookup(parent, name, stat);
  if (!found.ok()) return Outcome::Errno(found.error == ENOENT ? ESTALE : found.error);
  // A symlink that has just appeared is for the client to follow: ESTALE makes its kernel look
  // again.
  if (S_ISLNK(found.inode->type)) return Outcome::Errno(ESTALE);
  // Another loop has made it since this change began: others may believe what it has.
  const LeaseChange& change = call.responder.change();
  if ((request.flags & fs::kOpenTruncate) != 0 && !change.CoversAnything() &&
      !change.Covers(found.inode->key)) {
    return Outcome::Again();
  }
  return OpenInode(call, std::move(place), found, request.flags, parent.inode.get());
}

Outcome OpOpenMade(Call& call, const fs::Handle& made) {
  if (call.opcode == fs::Opcode::kOpen) {
    const auto request = call.body.Read<fs::OpenRequest>();
    const fs::Handle handle = fs::ReadHandle(call.body);
    if (!call.Decoded()) return Outcome::Malformed();
    const InodeRef ref = call.Find(handle);
    if (!ref.ok()) return Outcome::Errno(ref.error);
    return OpenInode(call, call.session.TakePlace(), ref, request.flags & ~kMaking, nullptr);
  }
  const auto request = call.body.Read<fs::CreateRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  const std::string name = NameFrom(fs::ReadName(call.body));
  if (!call.Decoded()) return Outcome::Malformed();
  const InodeRef parent = call.Find(handle);
  if (!parent.ok()) return Outcome::Errno(parent.error);
  struct statx stat {};
  const InodeRef found = call.session.inodes().Lookup(parent, name, stat);
  if (!found.ok()) return Outcome::Errno(found.error);
  // Another client has put its own file there since.
  if (!made.empty() && found.inode->handle != made) return Outcome::Errno(ESTALE);
  return OpenInode(call, call.session.TakePlace(), found, request.flags & ~kMaking,
                   parent.inode.get(), 0, Opens::kWhatItMade);
}

Outcome OpTmpfile(Call& call) {
  const auto request = call.body.Read<fs::TmpfileRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  const InodeRef parent = call.Find(handle);
  if (!parent.ok()) return Outcome::Errno(parent.error);
  OpenPlace place = call.session.TakePlace();
  if (!place) return call.RefuseOpen();
  call.worker.identity.SetUmask(request.umask);
  int flags = (DescriptorFlags(request.flags) & ~O_TRUNC) | O_TMPFILE;
  if ((request.flags & fs::kOpenExclusive) != 0) flags |= O_EXCL;  // may never be linked
  OpenResult made = OpenBeneath(parent.fd(), ".", flags, request.mode & 07777U);
  if (!made.fd.valid()) return Outcome::Errno(made.error);
  struct statx stat {};
  if (const int error = StatFd(made.fd.get(), stat); error != 0) return Outcome::Errno(error);
  const Outcome outcome =
      AnswerMade(call, std::move(place), {}, "", std::move(made.fd), request.flags);
  stat.stx_nlink = 1;  // as NameGone counts: it has no name, and goes with its open file
  NameGone(call, stat);
  return outcome;
}

// Where there is no room for it now its client asks again, and nothing else may have the file.
static Outcome ReclaimKept(Call& call, Fd kept, std::uint32_t flags, const struct statx& stat,
                           std::uint64_t number) {
  const auto later = [&](Fd fd, int error) {
    call.core().orphans.Return(call.session.id(), number, std::move(fd));
    return Outcome::Errno(error);
  };
  OpenPlace place = call.session.TakePlace();
  if (!place) {
    call.core().orphans.Return(call.session.id(), number, std::move(kept));
    return call.RefuseOpen();
  }
  OpenResult path = call.core().proc.Reopen(kept.get(), O_PATH);
  if (!path.fd.valid()) return later(std::move(kept), path.error);
  Fd same(fcntl(kept.get(), F_DUPFD_CLOEXEC, 0));
  if (!same.valid()) return later(std::move(kept), errno);
  const InodeRef ref = call.session.inodes().Adopt(nullptr, "", std::move(path.fd), stat);
  const Outcome outcome =
      AnswerOpen(call, std::move(place), ref.inode, std::move(kept), flags, stat, nullptr, number);
  const bool open = call.session.FindReclaimed(number) != nullptr;
  if (!open) call.core().orphans.Return(call.session.id(), number, std::move(same));
  return outcome;
}

Outcome OpReclaimOpen(Call& call) {
  const auto request = call.body.Read<fs::ReclaimOpenRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  const ByteSpan parent_bytes = call.body.ReadSized16(fs::kMaxHandleBytes);
  const std::string name = NameFrom(call.body.ReadSized16(fs::kMaxNameBytes));
  if (!call.Decoded() || name.find('/') != name.npos || name.find('\0') != name.npos ||
      name == ".." || name == ".") {
    return Outcome::Malformed();
  }
  if (call.session.params().read_only && WantsToWrite(request.flags)) return Outcome::Errno(EROFS);
  // Nothing is truncated or made when an open file comes back.
  const std::uint32_t flags = request.flags & ~kMaking;
  // It is open under this number: under another one nobody would ever close that.
  // (Another file may have it by chance, from before a restart.)
  if (const OpenPtr open = call.session.FindOpen(request.open);
      open && IsAskedFor(*open, handle, flags)) {
    return AnswerAgain(call, *open);
  }
  // The answer to the first time was lost.
  if (const OpenPtr again = call.session.FindReclaimed(request.open);
      again && IsAskedFor(*again, handle, flags)) {
    return AnswerAgain(call, *again);
  }
  if (Fd kept = call.core().orphans.Take(call.session.id(), request.open); kept.valid()) {
    struct statx stat {};
    if (const int error = StatFd(kept.get(), stat); error != 0) return Outcome::Errno(error);
    if (IsMeant(call, kept.get(), flags, handle, stat)) {
      return ReclaimKept(call, std::move(kept), flags, stat, request.open);
    }
    DropOrphan(call, request.open);
  }
  InodeRef ref = call.Find(handle);
  // What cannot be had at the moment is not sought by a name that it may have no more.
  if (const auto parent_handle = fs::Handle::FromBytes(parent_bytes);
      ref.error == ESTALE && parent_handle && !name.empty()) {
    const InodeRef parent = call.Find(*parent_handle);
    if (!parent.ok()) return Outcome::Errno(parent.error);
    struct statx stat {};
    ref = call.session.inodes().Lookup(parent, name, stat);
    // Another file has the name by now.
    if (ref.ok() && ref.inode->handle != handle) return Outcome::Errno(ESTALE);
  }
  if (!ref.ok()) return Outcome::Errno(ref.error);
  return S_ISDIR(ref.inode->type)
             ? OpenDirectory(call, ref, flags)
             : OpenInode(call, call.session.TakePlace(), ref, flags, nullptr, request.open);
}

Outcome OpRelease(Call& call) {
  const auto request = call.body.Read<fs::ReleaseRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  const OpenPtr open = call.session.RemoveOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  CloseOpen(call.core(), *open);
  // All that was written by it early is here. Soon its inode's number may be another file's.
  const bool goes_on = call.session.inodes().HasUser(open->inode->key, [&](const OpenFile& other) {
    return &other != open.get() && other.session == open->session;
  });
  if (!goes_on) call.core().leases.EndWrites(open->inode->key, open->session, call.since);
  return Outcome::Ok();
}

void CloseOpen(Core& core, const OpenFile& open) {
  open.closed.store(true);
  core.locks.Released(open);
  if (open.kept.load() || open.kept_before.load() != 0) DropKeptOpen(core.keeper, open);
}

}  // namespace rdfs::server
