// KernelCache: makes the kernel let go of what the server recalls, and acknowledges.
//
// Attributes are dropped by the worker that got the recall, since that never waits. But an answer
// that tells of an inode for the first time counts only when the program that asked runs again:
// until then the kernel has no such inode to drop anything of, and the threads try once more. A
// name waits in the kernel for look-ups and changes in its directory, pages for reads of them: a
// few threads of its own do that, and where all of them wait, the epoch of all names goes up
// instead (fs/client/recalls.h decides). Pages that have turned out old have threads of their own,
// more of them where more files' are to go at once: reads of one may keep its thread waiting.
//
// An answer that was asked for before a recall came reaches the kernel with no time to live
// (Request). With several workers HoldReplies keeps a recall from passing between that look and the
// answer.
//
// Any thread. Its lock is never held over a system call that may wait.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "fs/client/client.h"
#include "fs/client/recalls.h"
#include "fs/fuse/content/page_drops.h"
#include "fs/fuse/content/writes_behind.h"
#include "fs/fuse/names/directory_attributes.h"
#include "fs/fuse/names/inode_table.h"
#include "fs/fuse/names/new_directories.h"
#include "fs/fuse/open/kept_opens.h"

namespace rdfs::fs::fuse {

// Whether this kernel can make all names stale at once (Linux 6.16).
bool KernelHasEpochs();

class KernelCache {
 public:
  // `changes`: Filesystem's.
  KernelCache(InodeTable& inodes, DirectoryAttributes& directories, NewDirectories& new_directories,
              KeptOpens& kept, const WritesBehind& behind, std::atomic<std::uint64_t>& changes)
      : inodes_(inodes),
        directories_(directories),
        new_directories_(new_directories),
        kept_(kept),
        behind_(behind),
        changes_(changes),
        recalls_(KernelHasEpochs()) {}
  ~KernelCache() { Stop(); }

  // Instead of the kernel's own, for tests; may wait. Before Start.
  void set_let_go_of_pages(std::function<void(NodeId)> let_go) {
    let_go_of_pages_ = std::move(let_go);
  }
  // Before the workers run. `wake` makes one of them look at has_acknowledgements.
  void Start(fuse_session* session, bool several_workers, std::function<void()> wake);
  // By the only worker that there was, before there is another one.
  void ServeSeveralWorkers() { several_ = true; }
  [[nodiscard]] bool several_workers() const { return several_; }
  // Wakes nobody any more; before the workers go.
  void Silence();
  // After the last worker, before the session ends.
  void Stop();

  // The lane's thread, in its Poll.
  void OnRecall(client::Lane& lane, const client::RecallNotice& notice);
  [[nodiscard]] bool has_acknowledgements() const { return some_.load(std::memory_order_acquire); }
  void SendAcknowledgements(client::Lane& lane);

  // A change of this mount's to the names in a directory or the bytes of a file: before it is sent,
  // until it is answered.
  void ChangeBegins(client::Lane& lane, NodeId node);
  void ChangeEnds(NodeId node);

  // One of the writes behind has arrived: who recalled the file's lease may be waiting for it. A
  // worker, which then looks at has_acknowledgements.
  void WroteBehind();

  // A write that the kernel was told is done has failed: what it has of the file is not the
  // server's. Any thread; the pages go a little later.
  void WriteFailed(NodeId node);

  // Makes the kernel drop the file's pages, a little later, and then calls `done`: on another
  // thread, and not behind Silence. `change`: the cookie of the content that is known (0: none).
  // `end`: where the kernel is to know that the file is no shorter (at 0: it need not).
  void DropPages(NodeId node, std::uint64_t change, std::function<void()> done = {},
                 const InodeTable::End& end = {});

  // This machine has slept (command/machine_sleep.h), and the kernel's times to live have not run
  // meanwhile, as leases have: makes it drop whatever it goes by for a time. Our own does not
  // count here: it goes by the leases. Without epochs names stay for the rest of their time, a
  // second. Any thread, and before the session ends.
  void MachineSlept();

  // What the kernel believes of names, it has to ask for again. Before Linux 6.16 nothing. Any
  // thread.
  void ForgetNames() {
    if (session_ != nullptr && KernelHasEpochs()) NewEpoch();
  }

  // Counts recalls, and sleeps of the machine: what was asked for at another count must not be
  // believed.
  [[nodiscard]] std::uint32_t stamp() const {
    return static_cast<std::uint32_t>(stamp_.load(std::memory_order_acquire));
  }
  [[nodiscard]] std::shared_lock<std::shared_mutex> HoldReplies() {
    return several_ ? std::shared_lock(replies_) : std::shared_lock<std::shared_mutex>();
  }
  [[nodiscard]] std::uint64_t recalls() const { return stamp_.load(); }

 private:
  static constexpr std::size_t kThreads = 3;
  // For drops_: at first, and where those wait.
  static constexpr std::size_t kDropThreads = 2;
  static constexpr std::size_t kMostDropThreads = 16;
  static constexpr std::size_t kMostPending = 16384;  // recalls
  struct Job {
    std::uint64_t number = 0;  // of the recall
    NodeId node = 0;
    std::uint32_t parts = 0;  // with kRecallAttributes: the kernel had no such inode
    std::string name{};
    Handle handle{};
  };
  void Run();
  void Do(const Job& job);
  void RunDrops();
  void LetGoOfPages(NodeId node, std::uint64_t change);
  void MoveEnd(NodeId node, const InodeTable::End& end);
  void NewEpoch();
  void Act(client::Lane& lane, const client::Recalls::Actions& actions, NodeId node);
  // By whoever sends acknowledgements next; behind the writes to the node that are on their way.
  void AcknowledgeLocked(std::uint64_t number, NodeId node);
  // False: the kernel has no such inode, or not yet.
  bool DropAttributes(NodeId node);
  void DropAttributesWhenTheyCome(const Handle& handle, NodeId node);
  void DropEverything(client::Lane& lane);
  // `begins`: and was not at the last look.
  [[nodiscard]] bool IsFlooded(bool& begins);
  void ForgetOurs(NodeId node);

  InodeTable& inodes_;
  DirectoryAttributes& directories_;
  NewDirectories& new_directories_;
  KeptOpens& kept_;
  const WritesBehind& behind_;
  std::atomic<std::uint64_t>& changes_;
  fuse_session* session_ = nullptr;
  std::function<void(NodeId)> let_go_of_pages_;
  bool several_ = false;
  std::atomic<std::uint64_t> stamp_{0};
  std::atomic<bool> some_{false};
  std::atomic<bool> some_held_{false};
  std::shared_mutex replies_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable came_;
  client::Recalls recalls_;
  bool flooded_ = false;
  std::deque<Job> jobs_;
  std::condition_variable drop_came_;
  PageDrops drops_;  // with threads of their own, which wait for no directory
  std::size_t drop_threads_ = 0;
  std::vector<std::uint64_t> acknowledgements_;
  struct Held {
    WritesBehind::Wait wait;
    std::uint64_t number = 0;
  };
  std::vector<Held> held_;  // until those writes have arrived
  std::function<void()> wake_;
  std::size_t busy_ = 0;  // threads
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rdfs::fs::fuse
