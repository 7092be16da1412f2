// What this process itself forgets when everything is recalled, which files' pages wait for which,
// and what the kernel is told behind a sleep; what the kernel does is for e2e.
#include "fs/fuse/kernel_cache.h"

#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/fs/client/scripted_fixture.h"
#include "transport/base/fd.h"

namespace rdfs::fs::fuse {
namespace {

class KernelCacheTest : public client::ScriptedTest {};

// The server that follows a killed one does not know who believes what: once it has been told that
// nothing is believed, it lets others change everything.
TEST_F(KernelCacheTest, NothingIsBelievedBehindTheAcknowledgementOfEverything) {
  constexpr std::chrono::milliseconds kLease{60'000};
  const TimePoint now = BootClock::now();
  InodeTable inodes(root_);
  DirectoryAttributes directories;
  NewDirectories new_directories(kLease);
  KeptOpens kept;
  const WritesBehind behind;
  std::atomic<std::uint64_t> changes{0};
  KernelCache cache(inodes, directories, new_directories, kept, behind, changes);

  const NodeId node = inodes.Remember(file_, kRootNode, "file");
  inodes.Opened(node, 7, now);
  inodes.SetLease(node, now + kLease, 7, kLease);
  inodes.SetWriteLease(node, now + kLease, now);
  inodes.SetWithoutXattr(node, 1, now);
  inodes.SetWithoutCapability(node, now, now + kLease);
  auto open = std::make_shared<fuse::Open>();
  open->node = node;
  open->file = Open();
  kept.Keep({}, open, now);
  ASSERT_TRUE(inodes.PagesAreCurrent(node, now));
  ASSERT_TRUE(inodes.KnownWithoutXattr(node, 1, now));

  cache.OnRecall(client_->lane(), {.number = kRecallEarlier, .handle = {}});
  EXPECT_FALSE(inodes.PagesAreCurrent(node, now));
  EXPECT_FALSE(inodes.KnownWithoutXattr(node, 1, now));
  EXPECT_FALSE(inodes.KnownWithoutCapability(node, now));
  EXPECT_EQ(inodes.lease_until(node), TimePoint{});
  EXPECT_EQ(inodes.write_lease_until(node), TimePoint{});
  EXPECT_FALSE(kept.Has(node));
  EXPECT_EQ(kept.TakeDropped(now).size(), 1U) << "the server still has it open";
  ASSERT_TRUE(client_->Lookup(root_, "file").ok());  // goes behind what was said
  EXPECT_EQ(server_.Count(Opcode::kRecallAck), 1U);
}

// The kernel's end is a socket that keeps the borders of writes, as /dev/fuse does.
class ToldKernelTest : public testing::Test {
 protected:
  ToldKernelTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
              0);
    kernels_.Reset(ends[1]);
    std::string name = "fuse_test";
    std::array<char*, 2> words{name.data(), nullptr};
    fuse_args arguments = FUSE_ARGS_INIT(1, words.data());
    const fuse_lowlevel_ops none{};
    session_.reset(fuse_session_new(&arguments, &none, sizeof none, nullptr));
    fuse_opt_free_args(&arguments);
    // The session closes it.
    EXPECT_EQ(fuse_session_mount(session_.get(), ("/dev/fd/" + std::to_string(ends[0])).c_str()),
              0);
    Begin();
    cache_.Start(session_.get(), /*several_workers=*/false, [] {});
  }
  ~ToldKernelTest() override { cache_.Stop(); }

  struct Told {
    fuse_out_header header{};
    fuse_notify_inval_inode_out inode{};
  };
  std::vector<Told> TakeTold() {
    std::vector<Told> all;
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t got = recv(kernels_.get(), bytes.data(), bytes.size(), 0);
      if (got < static_cast<ssize_t>(sizeof(fuse_out_header))) return all;
      Told& told = all.emplace_back();
      std::memcpy(&told.header, bytes.data(), sizeof told.header);
      if (got < static_cast<ssize_t>(sizeof told.header + sizeof told.inode)) continue;
      std::memcpy(&told.inode, bytes.data() + sizeof told.header, sizeof told.inode);
    }
  }

 private:
  struct End {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
  };
  // libfuse tells a kernel nothing whose version it does not know.
  void Begin() {
    struct {
      fuse_in_header header{};
      fuse_init_in init{};
    } message;
    message.header.len = sizeof message;
    message.header.opcode = FUSE_INIT;
    message.header.unique = 1;
    message.init.major = FUSE_KERNEL_VERSION;
    message.init.minor = 31;
    fuse_buf raw{};
    raw.size = sizeof message;
    raw.mem = &message;
    fuse_session_process_buf(session_.get(), &raw);
    EXPECT_EQ(TakeTold().size(), 1U);
  }

  Fd kernels_;
  std::unique_ptr<fuse_session, End> session_;

 protected:
  InodeTable inodes_{*Handle::FromBytes(AsBytes("root"))};

 private:
  DirectoryAttributes directories_;
  NewDirectories new_directories_{std::chrono::seconds(1)};
  KeptOpens kept_;
  const WritesBehind behind_;
  std::atomic<std::uint64_t> changes_{0};

 protected:
  KernelCache cache_{inodes_, directories_, new_directories_, kept_, behind_, changes_};
};

// Its times to live stand still while the machine sleeps, and it asks nobody before they are over.
TEST_F(ToldKernelTest, BehindASleepItGoesByNothingThatItWasToldBefore) {
  constexpr std::int32_t kEpoch = 8;
  std::set<NodeId> known{kRootNode};
  for (const std::string_view name : {"one", "two", "three"}) {
    known.insert(inodes_.Remember(*Handle::FromBytes(AsBytes(name)), kRootNode, name));
  }
  EXPECT_TRUE(TakeTold().empty());

  const std::uint32_t before = cache_.stamp();
  cache_.MachineSlept();
  EXPECT_NE(cache_.stamp(), before) << "nor by what was asked for before";
  bool names = false;
  std::set<NodeId> attributes;
  for (const Told& told : TakeTold()) {
    EXPECT_EQ(told.header.unique, 0U);
    if (told.header.error == kEpoch) names = true;
    if (told.header.error != FUSE_NOTIFY_INVAL_INODE) continue;
    EXPECT_LT(told.inode.off, 0) << "pages go by the lease";
    attributes.insert(told.inode.ino);
  }
  EXPECT_EQ(names, KernelHasEpochs());
  EXPECT_EQ(attributes, known);
}

// Where letting go of a file's pages can wait, as the kernel has it for reads of them that do not
// end.
class PageDropsTest : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{60};

  PageDropsTest() {
    cache_.set_let_go_of_pages([this](NodeId node) { LetGo(node); });
    cache_.Start(nullptr, /*several_workers=*/false, [] {});
  }
  ~PageDropsTest() override {
    if (!over_) Answer();
    cache_.Stop();
  }
  // Reads of these do not end until Answer.
  void Hang(NodeId node) {
    const std::lock_guard lock(mutex_);
    hang_[node] = true;
  }
  void Answer() {
    over_ = true;
    answered_.set_value();
  }
  std::future<void> Drop(NodeId node) {
    auto gone = std::make_shared<std::promise<void>>();
    std::future<void> future = gone->get_future();
    cache_.DropPages(node, 1, [gone] { gone->set_value(); });
    return future;
  }
  int times(NodeId node) {
    const std::lock_guard lock(mutex_);
    return times_[node];
  }
  static bool Came(const std::future<void>& gone) {
    return gone.wait_for(kPatience) == std::future_status::ready;
  }
  static bool Waits(const std::future<void>& gone) {
    return gone.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }

 private:
  void LetGo(NodeId node) {
    bool hangs = false;
    {
      const std::lock_guard lock(mutex_);
      ++times_[node];
      hangs = hang_[node];
    }
    if (hangs) over_future_.wait();
  }

  std::mutex mutex_;
  std::map<NodeId, bool> hang_;
  std::map<NodeId, int> times_;
  bool over_ = false;
  std::promise<void> answered_;
  const std::shared_future<void> over_future_ = answered_.get_future().share();
  InodeTable inodes_{*Handle::FromBytes(AsBytes("root"))};
  DirectoryAttributes directories_;
  NewDirectories new_directories_{std::chrono::seconds(1)};
  KeptOpens kept_;
  const WritesBehind behind_;
  std::atomic<std::uint64_t> changes_{0};
  KernelCache cache_{inodes_, directories_, new_directories_, kept_, behind_, changes_};
};

TEST_F(PageDropsTest, ReadsOfSomeFilesThatDoNotEndKeepNoOtherFileWaiting) {
  constexpr NodeId kSlow = 10;
  std::vector<std::future<void>> slow;
  for (NodeId node = 2; node < kSlow; ++node) {
    Hang(node);
    slow.push_back(Drop(node));
    slow.push_back(Drop(node));  // takes no thread
    EXPECT_TRUE(Came(Drop(100 + node))) << node;
  }
  for (const std::future<void>& gone : slow) EXPECT_TRUE(Waits(gone));
  Answer();
  for (const std::future<void>& gone : slow) EXPECT_TRUE(Came(gone));
}

TEST_F(PageDropsTest, WhatComesOfAFileMeanwhileIsDoneOnceBehindIt) {
  constexpr NodeId kNode = 2;
  Hang(kNode);
  const std::future<void> first = Drop(kNode);
  const Deadline patience = DeadlineAfter(kPatience);
  while (times(kNode) == 0 && BootClock::now() < patience) std::this_thread::yield();
  const std::future<void> second = Drop(kNode);
  const std::future<void> third = Drop(kNode);
  EXPECT_TRUE(Came(Drop(kNode + 1)));
  EXPECT_EQ(times(kNode), 1);
  Answer();
  EXPECT_TRUE(Came(first) && Came(second) && Came(third));
  EXPECT_EQ(times(kNode), 2);
}

// More than there are threads: they come in turn.
TEST_F(PageDropsTest, HoweverManyThereAreAllCome) {
  std::vector<std::future<void>> all;
  for (NodeId node = 2; node < 100; ++node) {
    Hang(node);
    all.push_back(Drop(node));
  }
  Answer();
  for (const std::future<void>& gone : all) EXPECT_TRUE(Came(gone));
}

TEST(PageDrops, OneAFileUnderWayAndTheLastCookieCounts) {
  PageDrops drops;
  int done = 0;
  const auto note = [&done] { ++done; };
  const TimePoint asked{std::chrono::seconds(5)};
  drops.Add(1, 5, note, {4096, asked});
  drops.Add(2, 6, {});
  drops.Add(1, 7, note);
  EXPECT_EQ(drops.ready(), 2U);
  auto first = drops.Begin();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->node, 1U);
  EXPECT_EQ(first->change, 7U);
  EXPECT_EQ(first->end.at, 4096U) << "who asked for it goes by it";
  EXPECT_EQ(first->end.asked, asked);
  for (const auto& call : first->done) call();
  EXPECT_EQ(done, 2);

  drops.Add(1, 8, {}, {1000, asked + std::chrono::seconds(1)});
  drops.Add(1, 8, {}, {6000, asked});
  EXPECT_EQ(drops.ready(), 1U);
  const auto second = drops.Begin();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->node, 2U);
  EXPECT_FALSE(drops.Begin());
  EXPECT_EQ(drops.under_way(), 2U);
  drops.End(1);
  const auto third = drops.Begin();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->change, 8U);
  EXPECT_EQ(third->end.at, 1000U) << "what was asked for last";
}

}  // namespace
}  // namespace rdfs::fs::fuse
