#include "fs/client/callback.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace rdfs::fs::client {
namespace {

TEST(Callback, TakesResultsAsItsLambdaLikesThem) {
  int sum = 0;
  Callback<int> by_value = [&sum](Result<int> got) { sum += *got; };
  Callback<int> by_reference = [&sum](const Result<int>& got) { sum += *got; };
  Callback<int> by_move = [&sum](Result<int>&& got) { sum += *got; };
  by_value(Result<int>(1));
  by_reference(Result<int>(2));
  by_move(Result<int>(4));
  EXPECT_EQ(sum, 7);
}

TEST(Callback, MovesAndDestroysWhatItCaptured) {
  const auto token = std::make_shared<int>(5);
  {
    DoneCallback first = [token](Status) {};
    EXPECT_EQ(token.use_count(), 2);
    DoneCallback second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what a moved-from callback is
    EXPECT_TRUE(second);
    EXPECT_EQ(token.use_count(), 2);
    first = std::move(second);
    second = [](Status) {};
    EXPECT_EQ(token.use_count(), 2);
    first.Reset();
    EXPECT_EQ(token.use_count(), 1);
    second = DoneCallback([token](Status) {});
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace rdfs::fs::client
