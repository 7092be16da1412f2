#include "fs/fuse/kernel_cache.h"

#include <linux/fuse.h>
#include <sys/prctl.h>
#include <unistd.h>

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
  for (std::size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
}

void KernelCache::Silence() {
  const std::lock_guard lock(mutex_);
  wake_ = {};
}

void KernelCache::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// What this process itself remembers about it.
void KernelCache::ForgetOurs(NodeId node) {
  directories_.Forget(node);
  new_directories_.Forget(node);
  inodes_.SetWithoutCapabilityUntil(node, {});
  inodes_.EndLease(node);
  kept_.Drop(node);
}

void KernelCache::DropAttributes(NodeId node) {
  fuse_lowlevel_notify_inval_inode(session_, node, -1, 0);
}

void KernelCache::OnRecall(client::Lane& lane, const client::RecallNotice& notice) {
  {
    std::unique_lock<std::shared_mutex> alone(replies_, std::defer_lock);
    if (several_) alone.lock();
    stamp_.fetch_add(1);
    changes_.fetch_add(1);
  }
  if (notice.everything()) return DropEverything(lane);
  const std::optional<NodeId> node = inodes_.FindNode(notice.handle);
  // The kernel knows nothing of it?
  if (!node || session_ == nullptr) return lane.AcknowledgeRecall(notice.number);
  ForgetOurs(*node);
  if ((notice.parts & kRecallAttributes) != 0) DropAttributes(*node);
  const bool names = (notice.parts & kRecallName) != 0;
  Recalls::Actions actions;
  {
    const std::lock_guard lock(mutex_);
    actions = recalls_.Arrived(
        {.number = notice.number, .node = *node, .parts = notice.parts, .name = notice.name});
    if (!names && (notice.parts & kRecallContent) == 0) {
      actions = recalls_.Invalidated(notice.number);
    } else if (!actions.empty()) {
      // More names than who could let go of them: each may wait for long. What pages wait for is
      // short.
      const bool crowded = names && (busy_ + jobs_.size() >= kThreads || notice.name.empty());
      jobs_.push_back(
          {.number = notice.number, .node = *node, .parts = notice.parts, .name = notice.name});
      if (crowded) {
        for (const Recalls::Action& more : recalls_.GiveWay(notice.number)) actions.push_back(more);
      }
    }
  }
  came_.notify_one();
  Act(lane, actions);
}

// Without epochs names stay until their leases run out, and so it is not acknowledged.
void KernelCache::DropEverything(client::Lane& lane) {
  changes_.fetch_add(1);
  directories_.ForgetAll();
  new_directories_.ForgetAll();
  const std::vector<NodeId> nodes = inodes_.ForgetCapabilities();
  if (session_ == nullptr) return lane.AcknowledgeRecall(kRecallEarlier);
  for (const NodeId node : nodes) DropAttributes(node);
  if (!KernelHasEpochs()) return;
  NewEpoch();
  lane.AcknowledgeRecall(kRecallEarlier);
}

void KernelCache::Act(client::Lane& lane, const Recalls::Actions& actions) {
  for (const Recalls::Action& action : actions) {
    if (action.act == Recalls::Act::kNewEpoch) NewEpoch();
    if (action.act == Recalls::Act::kAcknowledge) lane.AcknowledgeRecall(action.number);
  }
}

void KernelCache::NewEpoch() {
  fuse_out_header header{};
  header.len = sizeof header;
  header.error = kNotifyNewEpoch;
  (void)!write(fuse_session_fd(session_), &header, sizeof header);
  new_epochs_.fetch_add(1);
}

void KernelCache::ChangeBegins(client::Lane& lane, NodeId node) {
  Recalls::Actions actions;
  {
    const std::lock_guard lock(mutex_);
    actions = recalls_.ChangeBegins(node);
  }
  Act(lane, actions);
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

void KernelCache::Do(const Job& job) {
  if ((job.parts & kRecallName) != 0) {
    fuse_lowlevel_notify_inval_entry(session_, job.node, job.name.data(), job.name.size());
  }
  if ((job.parts & kRecallContent) != 0) {
    fuse_lowlevel_notify_inval_inode(session_, job.node, 0, 0);
  }
  const std::lock_guard lock(mutex_);
  for (const Recalls::Action& action : recalls_.Invalidated(job.number)) {
    acknowledgements_.push_back(action.number);
    some_.store(true, std::memory_order_release);
    if (wake_) wake_();
  }
}

}  // namespace rdfs::fs::fuse
