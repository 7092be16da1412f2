// What the supervisor keeps of open files, and how an open file comes back from it.
//
// A file that is unlinked while open has no name to be found by, and one whose mode was made 000,
// or whose directory was moved or closed to us, cannot be opened again: a duplicate of its
// descriptor is kept by the supervisor under the session's id and the file's number, so that it
// outlives a crash of the worker. The client asks for it by ReclaimOpen. What goes through this
// server is seen at once; for what is done behind its back, every file that stays open for a second
// or two is kept (FsSession::OpensToKeep), while there is room. Any thread; Keep writes to a
// socket.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "server/inode/open_file.h"
#include "server/supervisor/supervisor_keeper.h"

namespace rdfs::server {

// Whether `open` could not be opened again now, with `stat` being its file's: created with mode
// 000, as git and tar do it in small.
bool CannotBeReopened(const OpenFile& open, const struct statx& stat);
// Of no effect when it is kept already. False: the supervisor could not be told, as the log says.
bool KeepOpen(DescriptorKeeper& keeper, const OpenFile& open);
// The file's mode, owner or ACL has changed: keeps what could not be opened again.
void KeepWhatWouldBeLost(DescriptorKeeper& keeper, InodeTable& table, const InodePtr& inode,
                         const struct statx& stat);
void DropKeptOpen(DescriptorKeeper& keeper, const OpenFile& open);
// A reclaimed file has another number now; nothing happens unless it was kept. Where the server is
// killed again, its client may have heard of either number: so it stays kept under both, while
// there is plenty of room.
void KeepReclaimed(DescriptorKeeper& keeper, const OpenFile& open, std::uint64_t old_number);

// Descriptors of open files that an earlier worker left, until their clients reclaim them or their
// lease runs out. Any thread.
class OrphanedOpens {
 public:
  // Takes what is an open file's; returns whether it was.
  bool Adopt(DescriptorKeeper::Kept& kept);
  // The descriptor kept under (session, number), which is here no more; invalid when there is none.
  Fd Take(std::uint64_t session, std::uint64_t number);
  // Back, where it could not be had open now.
  void Return(std::uint64_t session, std::uint64_t number, Fd fd);
  // Nobody has come back: closes them all, here and in the supervisor.
  void DropAll(DescriptorKeeper& keeper);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Fd> fds_;
};

}  // namespace rdfs::server
