#include "fs/fuse/kernel_cache.h"

#include <linux/fuse.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "fs/protocol.h"

namespace rdfs::fs::fuse {
namespace {

using client::Recalls;

// FUSE_NOTIFY_INC_EPOCH of Linux 6.16; older headers lack it, and so does libfuse 3.14.
constexpr std::int32_t kNotifyNewEpoch = 8;

}  // namespace

void KernelCache::Start(fuse_session* session, bool several_workers, std::function<void()> wake) {
  session_ = session;
  several_ = several_workers;
  wake_ = std::move(wake);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
  for (; drop_threads_ < kDropThreads; ++drop_threads_) {
    threads_.emplace_back([this] { RunDrops(); });
  }
}

void KernelCache::Silence() {
  const std::lock_guard lock(mutex_);
  wake_ = {};
}

void KernelCache::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads = std::exchange(threads_, {});
  }
  came_.notify_all();
  drop_came_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// What this process itself remembers about it.
void KernelCache::ForgetOurs(NodeId node) {
  directories_.Forget(node);
  new_directories_.Forget(node);
  inodes_.ForgetCapability(node);
  inodes_.EndLease(node);
  kept_.Drop(node);
}

bool KernelCache::DropAttributes(NodeId node) {
  return fuse_lowlevel_notify_inval_inode(session_, node, -1, 0) != -ENOENT;
}

// Either an answer is on its way to a program, or the kernel's FORGET to us.
void KernelCache::DropAttributesWhenTheyCome(const Handle& handle, NodeId node) {
  std::chrono::microseconds pause{50};
  for (const Deadline end = DeadlineAfter(InodeTable::kAnswerTravel); !DropAttributes(node);
       pause *= 2) {
    if (inodes_.FindNode(handle) != node) return;
    if (BootClock::now() >= end) {
      if (KernelHasEpochs()) NewEpoch();
      return;
    }
    std::this_thread::sleep_for(pause);
  }
}

void KernelCache::OnRecall(client::Lane& lane, const client::RecallNotice& notice) {
  {
    std::unique_lock<std::shared_mutex> alone(replies_, std::defer_lock);
    if (several_) alone.lock();
    stamp_.fetch_add(1);
    changes_.fetch_add(1);
  }
  if (notice.everything()) return DropEverything(lane);
  // What cannot be kept is not acknowledged: the server waits until our leases have run out.
  if (bool begins = false; IsFlooded(begins)) {
    if (begins) DropEverything(lane);
    return;
  }
  const std::optional<NodeId> node = inodes_.FindNode(notice.handle);
  if (session_ == nullptr) return lane.AcknowledgeRecall(notice.number);
  // The kernel knows nothing of it; what it was told is written may be on its way all the same.
  if (!node) {
    return Act(lane, {{Recalls::Act::kAcknowledge, notice.number}}, WritesBehind::kAnyNode);
  }
  ForgetOurs(*node);
  const bool unknown = (notice.parts & kRecallAttributes) != 0 && !DropAttributes(*node);
  const bool names = (notice.parts & kRecallName) != 0;
  Job job{.number = notice.number,
          .node = *node,
          .parts = notice.parts & ~(unknown ? 0U : kRecallAttributes),
          .name = notice.name,
          .handle = notice.handle};
  Recalls::Actions actions;
  {
    const std::lock_guard lock(mutex_);
    actions = recalls_.Arrived(
        {.number = notice.number, .node = *node, .parts = job.parts, .name = notice.name});
    if (job.parts == 0) {
      actions = recalls_.Invalidated(notice.number);
    } else if (!actions.empty() && actions.front().act == Recalls::Act::kInvalidate) {
      // More names than who could let go of them: each may wait for long. What pages wait for is
      // short.
      const bool full = busy_ + jobs_.size() >= kThreads;
      const bool crowded = names ? full || notice.name.empty() : unknown && full;
      jobs_.push_back(std::move(job));
      if (crowded) {
        for (const Recalls::Action& more : recalls_.GiveWay(notice.number)) actions.push_back(more);
      }
    }
  }
  came_.notify_all();
  Act(lane, actions, *node);
}

bool KernelCache::IsFlooded(bool& begins) {
  const std::lock_guard lock(mutex_);
  const bool before = flooded_;
  flooded_ = recalls_.pending() >= kMostPending;
  begins = flooded_ && !before;
  return flooded_;
}

// Without epochs names stay until their leases run out, and so only what was written is spoken of.
void KernelCache::DropEverything(client::Lane& lane) {
  changes_.fetch_add(1);
  {
    // Said to an earlier server, and not sent yet, it is not true for this one. Numbers of recalls
    // tell servers apart.
    const std::lock_guard lock(mutex_);
    const auto of_earlier = [](std::uint64_t number) {
      return number == kRecallEarlier || number == kRecallEarlierWrites;
    };
    std::erase_if(held_, [&](const Held& held) { return of_earlier(held.number); });
    std::erase_if(acknowledgements_, of_earlier);
  }
  directories_.ForgetAll();
  new_directories_.ForgetAll();
  const std::vector<NodeId> nodes = inodes_.EndAllLeases();
  kept_.DropAll();
  if (session_ == nullptr) return lane.AcknowledgeRecall(kRecallEarlier);
  for (const NodeId node : nodes) DropAttributes(node);
  if (KernelHasEpochs()) NewEpoch();
  const std::uint64_t over = KernelHasEpochs() ? kRecallEarlier : kRecallEarlierWrites;
  Act(lane, {{Recalls::Act::kAcknowledge, over}}, WritesBehind::kAnyNode);
}

void KernelCache::Act(client::Lane& lane, const Recalls::Actions& actions, NodeId node) {
  for (const Recalls::Action& action : actions) {
    if (action.act == Recalls::Act::kNewEpoch) NewEpoch();
    if (action.act != Recalls::Act::kAcknowledge) continue;
    const std::lock_guard lock(mutex_);
    AcknowledgeLocked(action.number, node);
  }
  if (has_acknowledgements()) SendAcknowledgements(lane);
}

void KernelCache::AcknowledgeLocked(std::uint64_t number, NodeId node) {
  // Before the look at them: the last one may arrive meanwhile.
  some_held_.store(true);
  if (const WritesBehind::Wait wait = behind_.NowFor(node); wait.last != 0) {
    held_.push_back({wait, number});
    return;
  }
  some_held_.store(!held_.empty());
  acknowledgements_.push_back(number);
  some_.store(true, std::memory_order_release);
}

void KernelCache::WroteBehind() {
  if (!some_held_.load()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(held_, [this](const Held& held) {
    if (!behind_.IsOver(held.wait)) return false;
    acknowledgements_.push_back(held.number);
    some_.store(true, std::memory_order_release);
    return true;
  });
  some_held_.store(!held_.empty());
}

void KernelCache::WriteFailed(NodeId node) {
  ForgetOurs(node);
  DropPages(node, 0);
}

void KernelCache::DropPages(NodeId node, std::uint64_t change, std::function<void()> done,
                            const InodeTable::End& end) {
  {
    const std::lock_guard lock(mutex_);
    drops_.Add(node, change, std::move(done), end);
    const std::size_t free = drop_threads_ - drops_.under_way();
    // Those of the first are there already.
    const bool more = drop_threads_ >= kDropThreads && drop_threads_ < kMostDropThreads;
    if (more && !stopping_ && drops_.ready() > free) {
      try {
        threads_.emplace_back([this] { RunDrops(); });
        ++drop_threads_;
      } catch (const std::system_error&) {  // no thread to be had: when another one is free
      }
    }
  }
  drop_came_.notify_one();  // one more at most is ready
}

// Names first: it is one call, and each of them leads to attributes.
void KernelCache::MachineSlept() {
  {
    // What was asked for before it and is answered behind it is told for no time.
    const std::unique_lock<std::shared_mutex> alone(replies_);
    stamp_.fetch_add(1);
  }
  if (KernelHasEpochs()) NewEpoch();
  for (const NodeId node : inodes_.All()) DropAttributes(node);
}

void KernelCache::NewEpoch() {
  fuse_out_header header{};
  header.len = sizeof header;
  header.error = kNotifyNewEpoch;
  (void)!write(fuse_session_fd(session_), &header, sizeof header);
}

void KernelCache::ChangeBegins(client::Lane& lane, NodeId node) {
  Recalls::Actions actions;
  {
    const std::lock_guard lock(mutex_);
    actions = recalls_.ChangeBegins(node);
  }
  Act(lane, actions, node);
}

void KernelCache::ChangeEnds(NodeId node) {
  const std::lock_guard lock(mutex_);
  recalls_.ChangeEnds(node);
}

void KernelCache::SendAcknowledgements(client::Lane& lane) {
  std::vector<std::uint64_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers = std::exchange(acknowledgements_, {});
    some_.store(false);
  }
  for (const std::uint64_t number : numbers) lane.AcknowledgeRecall(number);
}

void KernelCache::Run() {
  prctl(PR_SET_NAME, "rdfs-recalls");
  std::unique_lock lock(mutex_);
  while (true) {
    came_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++busy_;
    lock.unlock();
    Do(job);
    lock.lock();
    --busy_;
  }
}

void KernelCache::RunDrops() {
  prctl(PR_SET_NAME, "rdfs-recalls");
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<PageDrops::Drop> drop;
    drop_came_.wait(lock, [&] { return stopping_ || (drop = drops_.Begin()).has_value(); });
    if (stopping_) return;
    lock.unlock();
    LetGoOfPages(drop->node, drop->change);
    MoveEnd(drop->node, drop->end);
    lock.lock();
    drops_.End(drop->node);
    if (!wake_) continue;
    for (const std::function<void()>& done : drop->done) done();
  }
}

void KernelCache::LetGoOfPages(NodeId node, std::uint64_t change) {
  const TimePoint started = BootClock::now();
  if (let_go_of_pages_) {
    let_go_of_pages_(node);
  } else {
    fuse_lowlevel_notify_inval_inode(session_, node, 0, 0);
  }
  inodes_.PagesDropped(node, change, started, BootClock::now());
}

// Where a file ends the kernel asks before read(2) and lseek(2), but not before sendfile(2),
// splice(2), copy_file_range(2) and what a mapping shows. Only a store of bytes moves it without
// being asked, and it does so before it fetches them: the one byte here cannot be fetched (EFAULT),
// so that nothing is put into a page, which may have newer bytes by now. If the file has been cut
// meanwhile, the first read that is short says so. (fuse_notify_store in fs/fuse/dev.c.)
void KernelCache::MoveEnd(NodeId node, const InodeTable::End& end) {
  if (session_ == nullptr || !inodes_.MayEndBefore(node, end)) return;
  struct {
    fuse_out_header header;
    fuse_notify_store_out store;
  } notice{};
  notice.header.len = sizeof notice + 1;
  notice.header.error = FUSE_NOTIFY_STORE;
  notice.store.nodeid = node;
  notice.store.offset = end.at - 1;
  notice.store.size = 1;
  const std::array<iovec, 2> parts{{{&notice, sizeof notice}, {nullptr, 1}}};
  // Sanitizers look at what writev(3) is given.
  const long wrote = syscall(SYS_writev, fuse_session_fd(session_), parts.data(), parts.size());
  if (wrote < 0 && errno == EFAULT) inodes_.Written(node, end.at);
  // It has got an empty page for that, which would be read by itself.
  fuse_lowlevel_notify_inval_inode(session_, node, static_cast<off_t>(end.at - 1), 1);
}

void KernelCache::Do(const Job& job) {
  if ((job.parts & kRecallAttributes) != 0) DropAttributesWhenTheyCome(job.handle, job.node);
  if ((job.parts & kRecallName) != 0) {
    fuse_lowlevel_notify_inval_entry(session_, job.node, job.name.data(), job.name.size());
  }
  if ((job.parts & kRecallContent) != 0) LetGoOfPages(job.node, 0);
  const std::lock_guard lock(mutex_);
  for (const Recalls::Action& action : recalls_.Invalidated(job.number)) {
    AcknowledgeLocked(action.number, job.node);
    if (wake_) wake_();
  }
}

}  // namespace rdfs::fs::fuse
