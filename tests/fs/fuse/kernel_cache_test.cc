// What this process itself forgets when everything is recalled; what the kernel does is for e2e.
#include "fs/fuse/kernel_cache.h"

#include <gtest/gtest.h>

#include "tests/fs/client/scripted_fixture.h"

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

}  // namespace
}  // namespace rdfs::fs::fuse
