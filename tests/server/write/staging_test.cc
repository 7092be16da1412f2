#include "server/write/staging.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/server/pool/store_fixture.h"

namespace rdfs::server {
namespace {

class StagingTest : public testing::Test {
 protected:
  StagingTest() { pair_.Connect(); }
  std::unique_ptr<Staging> Make(std::size_t wished) {
    return Staging::Create(pair_.server_domain, *pair_.server, wished, budget_);
  }
  transport::shm::Pair pair_;
  std::shared_ptr<StagingBudget> budget_ = std::make_shared<StagingBudget>(5 << 20);
};

TEST_F(StagingTest, LanesShareABudget) {
  const auto first = Make(4 << 20);
  EXPECT_EQ(first->reply().slots, 4U);
  EXPECT_EQ(first->reply().slot_bytes, fs::kMaxTransferBytes);
  const auto second = Make(4 << 20);
  EXPECT_EQ(second->reply().slots, 1U);
  auto third = Make(4 << 20);
  EXPECT_EQ(third->reply().slots, 0U) << "none is no error";
  EXPECT_EQ(third->reply().staging.length, 0U);
  EXPECT_FALSE(third->Range(0, 1));
  third = nullptr;
  EXPECT_EQ(budget_->free_bytes(), 0U);
}

TEST_F(StagingTest, ScarceMemoryMakesSmallSlots) {
  budget_ = std::make_shared<StagingBudget>(300 << 10);
  const auto staging = Make(4 << 20);
  EXPECT_EQ(staging->reply().slot_bytes, 256U << 10);
  EXPECT_EQ(staging->reply().slots, 1U);
}

TEST_F(StagingTest, GivesItsBytesBack) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Make(4 << 20)->reply().slots, 4U);
  EXPECT_EQ(budget_->free_bytes(), std::size_t{5} << 20);
}

TEST_F(StagingTest, ARangeLiesWithinOneSlot) {
  const auto staging = Make(2 << 20);
  constexpr std::uint64_t kSlot = fs::kMaxTransferBytes;
  EXPECT_TRUE(staging->Range(0, kSlot));
  EXPECT_TRUE(staging->Range(kSlot, kSlot));
  EXPECT_TRUE(staging->Range(2 * kSlot - 1, 1));
  EXPECT_FALSE(staging->Range(0, 0));
  EXPECT_FALSE(staging->Range(0, kSlot + 1));
  EXPECT_FALSE(staging->Range(1, kSlot));
  EXPECT_FALSE(staging->Range(2 * kSlot, 1));
  EXPECT_FALSE(staging->Range(~std::uint64_t{0}, 1));
  EXPECT_FALSE(staging->Range(1, ~std::uint64_t{0}));
}

TEST_F(StagingTest, WhatTheClientWritesIsWhatIsCommitted) {
  const auto staging = Make(1 << 20);
  const auto memory =
      transport::shm::MakeRegion(pair_.client_domain, 1 << 20, transport::Access::kLocal);
  const Bytes content = SomeBytes(5000, 1);
  std::ranges::copy(content, memory->bytes().begin());
  // The region's descriptor arrives with a message.
  ASSERT_TRUE(pair_.server->Send(AsBytes("staging")).ok());
  ASSERT_TRUE(pair_.server->Flush().ok());
  ASSERT_TRUE(transport::shm::WaitForMessage(*pair_.client).status.ok());
  const auto status = transport::shm::WaitForCompletion(
      *pair_.client,
      pair_.client->Write({.region = memory.get(), .offset = 0, .length = 5000},
                          {.region = staging->reply().staging.ToRegion(), .offset = 100}));
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto range = staging->Range(100, 5000);
  ASSERT_TRUE(range);
  EXPECT_EQ(Bytes(range->begin(), range->end()), content);
}

}  // namespace
}  // namespace rdfs::server
