// OpenFile: an open file or directory of a session.
//
// Shared by the session's table and the requests in progress on it: closing the number does not
// close the descriptor under a read that is under way. The descriptor never has O_DIRECT, O_SYNC or
// O_DSYNC, and O_APPEND only where its file can be opened no other way (chattr +a): an append is
// said by each write, and the sync flags go with each write, so that one descriptor serves all of
// them. Any thread; directories have a lock for their position.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "server/inode/inode_table.h"
#include "server/pool/extent_version.h"
#include "transport/base/fd.h"

namespace rdfs::server {

// Where a directory's reader is: what getdents64(2) returned and the client has not taken yet.
struct DirectoryCursor {
  std::mutex mutex;
  std::vector<std::byte> buffer;
  std::size_t next = 0;      // in buffer
  std::size_t end = 0;       // of what getdents64 returned
  std::uint64_t cookie = 0;  // of the entry at `next`
  bool positioned = false;   // buffer and cookie mean something
};

struct OpenFile {
  std::uint64_t session = 0;
  std::uint64_t number = 0;
  InodePtr inode;
  std::shared_ptr<const Fd> fd;
  std::uint32_t flags = 0;           // kOpen... bits as asked for
  bool appends_only = false;         // the descriptor has O_APPEND
  std::uint64_t asked_by = 0;        // of directories: the number of the request
  std::uint64_t reclaimed_from = 0;  // its number before a restart, or 0; the session's
  FileId file;
  uid_t opener = 0;                            // as whom it was opened here
  std::unique_ptr<DirectoryCursor> directory;  // of directories only
  mutable std::atomic<bool> kept{false};       // by the supervisor
  mutable std::atomic<bool> closed{false};     // before the look at `kept`, and at its locks
  // The number under which it is kept as well, or 0.
  mutable std::atomic<std::uint64_t> kept_before{0};
  std::size_t place = 0;  // among the inode's; the InodeTable's

  [[nodiscard]] bool writable() const { return (flags & fs::kOpenWrite) != 0; }
  // As the kernel takes it: neither bit is reading.
  [[nodiscard]] bool readable() const { return !writable() || (flags & fs::kOpenRead) != 0; }
};
using OpenPtr = std::shared_ptr<OpenFile>;

// The file as the block pool knows it: the handle's bytes stand for the generation.
FileId FileIdOf(const Inode& inode);

}  // namespace rdfs::server
