#include "server/ops/call.h"

#include <sys/stat.h>

#include "server/lease/outside_watch.h"

namespace rdfs::server {

Outcome Call::Refuse(Refusals::What what, int error) const {
  core().refusals.Note(what, session.params().client);
  return Outcome::Errno(error);
}

Outcome Call::RefuseOpen() const {
  if (session.ended()) return Outcome::Error(fs::WireError::kUnknownSession);
  return Refuse(Refusals::What::kOpenFiles, EMFILE);
}

void Call::Watch(const InodeRef& ref) const {
  InodeTable& inodes = session.inodes();
  OutsideWatch* watch = inodes.watch();
  if (watch == nullptr) return;
  bool done = false;
  if (S_ISDIR(ref.inode->type)) {
    done = watch->Watch(ref.inode, ref.fd());
  } else if (const InodePtr parent = inodes.ParentOf(*ref.inode); parent) {
    done = watch->Watches(*parent);
    if (!done) {
      const InodeRef directory = inodes.Find(parent->handle, worker.identity);
      done = directory.ok() && watch->Watch(directory.inode, directory.fd());
    }
  }
  (done ? watched : unwatched) = true;
}

void Call::TellDirectories(std::initializer_list<const InodeRef*> changed) {
  if ((header.flags & fs::kRequestTellDirectories) == 0) return;
  for (const InodeRef* directory : changed) {
    struct statx stat {};
    if (StatFd(directory->fd(), stat) != 0) return directories.clear();  // it asks
    directories.push_back(Attr(*directory->inode, stat));
  }
}

// A client that cannot let go of all names at once may keep a change of names waiting for as long
// as its lease on the directory lasts: it gets short ones.
bool Call::IsWatched(const Inode& directory) const {
  const OutsideWatch* watch = session.inodes().watch();
  return watch != nullptr && watched && !unwatched && session.params().drops_names &&
         watch->Watches(directory);
}

fs::AttrWire Call::Attr(const Inode& inode, const struct statx& stat) const {
  bool noticed = false;
  if (S_ISDIR(inode.type)) {
    noticed = IsWatched(inode);
  } else if (stat.stx_nlink == 1) {  // with more, it may be changed by a name elsewhere
    const InodePtr parent = session.inodes().ParentOf(inode);
    noticed = parent && IsWatched(*parent);
  }
  AttrContext context = attr_context();
  context.lease_ms = core().leases.Grant(inode.key, session.id(), since, noticed);
  return ToAttr(stat, inode.version.load(std::memory_order_relaxed), context);
}

fs::AttrWire Call::DirectoryAttr(const InodeRef& ref, const struct statx& seen) const {
  OutsideWatch* watch = session.inodes().watch();
  if (watch == nullptr || watch->Watches(*ref.inode)) return Attr(*ref.inode, seen);
  Watch(ref);
  struct statx again = seen;
  if (StatFd(ref.fd(), again) != 0) again = seen;  // gone
  return Attr(*ref.inode, again);
}

}  // namespace rdfs::server
