// Filesystem: what the FUSE operations of one mount share. Owned by the command, outlives the
// workers.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fs/client/client.h"
#include "fs/fuse/content/failed_reads.h"
#include "fs/fuse/content/page_writes.h"
#include "fs/fuse/content/writes_behind.h"
#include "fs/fuse/kernel_cache.h"
#include "fs/fuse/names/directory_attributes.h"
#include "fs/fuse/names/inode_table.h"
#include "fs/fuse/names/new_directories.h"
#include "fs/fuse/open/kept_opens.h"
#include "fs/fuse/open/open_table.h"
#include "fs/fuse/open/unlocks.h"

namespace rdfs::fs::fuse {

struct FilesystemOptions {
  bool writeback = false;  // the kernel's writeback cache: for mounts with a single writer
  bool strict = false;     // nothing in the kernel's pages: each read asks us
  bool acls = true;        // offer POSIX ACLs
  // What is opened for writing only goes past the page cache: see KernelDropsPagesAfterWrites.
  bool direct_writes = false;
  bool early_writes = true;  // writes_behind.h
  // How far ahead of the kernel is read (read_ahead.h); none: as far as the wire needs.
  std::optional<std::uint32_t> prefetch_kib;
  // The kernel lets somebody open a directory whom the server may refuse: who opens one is to be
  // told so then, and not when he lists it.
  bool asks_at_opendir = false;
  std::chrono::milliseconds deadline{30'000};  // how long a call waits for its answer
};

// Whether this kernel drops cached pages behind a write that went past the cache. Before Linux 6.19
// (and 6.18.10, which has the fix too) a page that somebody read meanwhile could stay as it was.
// What is written through a descriptor that cannot read then need not be copied into the cache,
// where the next open would drop it.
bool KernelDropsPagesAfterWrites();
bool KernelDropsPagesAfterWrites(std::string_view release);  // as uname(2) says it

// How often the kernel asked for something that was at hand, and how often the server was asked.
// Any thread.
struct AtHand {
  std::atomic<std::uint64_t> hits{0}, misses{0};
  void Note(bool hit) { (hit ? hits : misses).fetch_add(1, std::memory_order_relaxed); }
};

// What was read ahead of the kernel. Any thread.
struct ReadAheadCounters {
  std::atomic<std::uint64_t> served{0};  // reads
  std::atomic<std::uint64_t> bytes{0}, unused{0};
};

struct Filesystem {
  Filesystem(client::Mount& of, FilesystemOptions with)
      : mount(of), options(with), lease(of.info().attr_lease), inodes(of.info().root.handle) {
    mount.SetPathFinder([this](const Handle& handle) { return inodes.WaysTo(handle); });
    mount.SetRecallHandler([this](client::Lane& lane, const client::RecallNotice& notice) {
      kernel.OnRecall(lane, notice);
    });
  }

  // What the server has said, to a question that was asked when `recalls` had come (its stamp),
  // stays true of the node until then: unless a recall has come meanwhile, which whoever answers
  // sees by itself. False: another worker has changed the node since, and so it is not news.
  bool Believe(NodeId node, TimePoint until, const AttrWire& attr, std::uint32_t recalls) {
    const auto hold = kernel.HoldReplies();
    if (kernel.stamp() != recalls) return true;
    return inodes.SetLease(node, until, attr.change, client::LeaseLength(attr.lease_ms),
                           BootClock::now()) ||
           !kernel.several_workers();
  }

  client::Mount& mount;
  const FilesystemOptions options;
  const std::chrono::milliseconds lease;  // how long an answer is believed, at most
  InodeTable inodes;
  DirectoryAttributes directories;
  NewDirectories new_directories{lease};
  OpenTable opens;
  KeptOpens kept;
  AtHand opens_at_hand;       // of files: kept
  AtHand listings_at_hand;    // at their begin: kept
  AtHand attributes_at_hand;  // directories
  ReadAheadCounters read_ahead;
  std::atomic<std::uint64_t> reads_together{0};  // whose answers went to the kernel with others
  // Requests answered so far that changed names, attributes or content. What the server said before
  // one of them may lack it, and must not reach the kernel behind it.
  std::atomic<std::uint64_t> changes{0};
  WritesBehind behind;
  PageWrites page_writes;
  FailedReads failed_reads;
  Unlocks unlocks;
  KernelCache kernel{inodes, directories, new_directories, kept, behind, changes};
  // The largest read and write request that the kernel may send. Several of them must fit a lane's
  // buffers side by side; set before the session is mounted.
  std::uint32_t transfer_bytes = 128 << 10;
  // Whether OPENDIR is answered. If not, the kernel asks once and never again: who lists a
  // directory says which by its node. Set by INIT.
  std::atomic<bool> answers_opendir{true};
  // What is to be added to libfuse's reply to FUSE_INIT, which is the next one: init_reply.h.
  std::atomic<std::uint32_t> init_flags{0};
};

// What `transfer_bytes` should be: a power of two, at most what the server takes, and an eighth of
// a lane's buffers so that one request does not keep the others waiting.
std::uint32_t TransferBytes(std::uint32_t server_takes, std::size_t lane_buffer_bytes);

// The table for fuse_session_new; its user data is a Filesystem.
const fuse_lowlevel_ops& Operations();

}  // namespace rdfs::fs::fuse
