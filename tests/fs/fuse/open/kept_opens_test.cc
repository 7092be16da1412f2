#include "fs/fuse/open/kept_opens.h"

#include <gtest/gtest.h>

#include <array>

namespace rdfs::fs::fuse {
namespace {

using std::chrono_literals::operator""ms;

constexpr TimePoint kNow{std::chrono::hours(1)};
const client::CallContext kMe{.uid = 1, .gid = 2, .pid = 3};

std::shared_ptr<Open> Opened(NodeId node, std::uint32_t flags = kOpenRead) {
  const std::array<std::byte, 1> bytes{static_cast<std::byte>(node)};
  auto open = std::make_shared<Open>();
  open->node = node;
  open->file = std::make_shared<client::OpenFile>(
      std::make_shared<client::InodeState>(*Handle::FromBytes(bytes)), flags, false);
  open->file->SetOpener(kMe.uid, kMe.gid);
  return open;
}

TEST(KeptOpens, AreForTheNextOpenOfTheSameByTheSame) {
  KeptOpens kept;
  const auto open = Opened(5);
  kept.Keep({}, open, kNow);
  EXPECT_EQ(kept.Take(6, kMe, kOpenRead, kNow), nullptr);
  EXPECT_EQ(kept.Take(5, kMe, kOpenRead | kOpenWrite, kNow), nullptr);
  EXPECT_EQ(kept.Take(5, {.uid = 9, .gid = 2}, kOpenRead, kNow), nullptr);
  EXPECT_EQ(kept.Take(5, {.uid = 1, .gid = 9}, kOpenRead, kNow), nullptr);
  EXPECT_EQ(kept.Take(5, {.uid = 1, .gid = 2, .pid = 7}, kOpenRead, kNow), open);
  EXPECT_EQ(kept.Take(5, kMe, kOpenRead, kNow), nullptr) << "one open file for two opens";
  EXPECT_EQ(kept.next(), TimePoint::max());
  EXPECT_TRUE(kept.TakeDropped(kNow + 10 * KeptOpens::kKeep).empty());
}

TEST(KeptOpens, AreGivenUpWhenTheirTimeIsOver) {
  KeptOpens kept;
  const auto early = Opened(5);
  const auto late = Opened(6);
  kept.Keep(kMe, early, kNow);
  kept.Keep(kMe, late, kNow + 10ms);
  EXPECT_EQ(kept.next(), kNow + KeptOpens::kKeep);
  EXPECT_TRUE(kept.TakeDropped(kNow + 5ms).empty());
  EXPECT_EQ(kept.Take(5, kMe, kOpenRead, kNow + KeptOpens::kKeep), nullptr);
  const auto dropped = kept.TakeDropped(kNow + KeptOpens::kKeep);
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_EQ(dropped[0].open, early);
  EXPECT_EQ(dropped[0].closer.uid, 1U);
  EXPECT_EQ(kept.next(), kNow + 10ms + KeptOpens::kKeep);
}

TEST(KeptOpens, AreGivenUpAtOnceWhenAskedTo) {
  KeptOpens kept;
  kept.Drop(5);
  for (const NodeId node : {5U, 6U, 5U}) kept.Keep(kMe, Opened(node), kNow);
  kept.Drop(5);
  EXPECT_EQ(kept.next(), TimePoint{});
  EXPECT_EQ(kept.Take(5, kMe, kOpenRead, kNow), nullptr);
  EXPECT_EQ(kept.TakeDropped(kNow).size(), 2U);
  EXPECT_NE(kept.Take(6, kMe, kOpenRead, kNow), nullptr);
  for (const NodeId node : {5U, 6U}) kept.Keep(kMe, Opened(node), kNow);
  kept.DropAll();
  EXPECT_EQ(kept.next(), TimePoint{});
  EXPECT_FALSE(kept.Has(5));
  EXPECT_EQ(kept.TakeDropped(kNow).size(), 2U);
  EXPECT_EQ(kept.next(), TimePoint::max());
}

TEST(KeptOpens, TheOldestMakesRoom) {
  KeptOpens kept;
  for (NodeId node = 1; node <= KeptOpens::kMost + 2; ++node) kept.Keep(kMe, Opened(node), kNow);
  const auto dropped = kept.TakeDropped(kNow);
  ASSERT_EQ(dropped.size(), 2U);
  EXPECT_EQ(dropped[0].open->node, 1U);
  EXPECT_EQ(kept.Take(2, kMe, kOpenRead, kNow), nullptr);
  EXPECT_NE(kept.Take(3, kMe, kOpenRead, kNow), nullptr);
}

}  // namespace
}  // namespace rdfs::fs::fuse
