#include "fs/fuse/names/open_ahead.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

using Nodes = std::vector<NodeId>;

class OpenAheadTest : public testing::Test {
 protected:
  // A listing of the directories first, first + 1, ... .
  void List(NodeId first, std::size_t count, std::uint64_t changes = 0) {
    auto listing = std::make_shared<OpenAhead::Listing>();
    listing->changes = changes;
    for (NodeId node = first; node < first + count; ++node) ahead_.Listed(listing, node);
  }
  OpenAhead ahead_;
};

TEST_F(OpenAheadTest, TheSecondOneOfAListingBeginsAWalk) {
  List(100, 40);
  EXPECT_EQ(ahead_.Opened(100, 0), Nodes{});
  EXPECT_EQ(ahead_.Opened(101, 0), Nodes{102});
  EXPECT_EQ(ahead_.Opened(102, 0), (Nodes{103, 104}));
  EXPECT_EQ(ahead_.Opened(103, 0), (Nodes{105, 106, 107}));
  EXPECT_EQ(ahead_.Opened(104, 0), (Nodes{108, 109, 110, 111, 112}));
  for (NodeId node = 105; node < 131; ++node) EXPECT_EQ(ahead_.Opened(node, 0), Nodes{node + 8});
}

TEST_F(OpenAheadTest, EndsWithTheListing) {
  List(1, 3);
  EXPECT_EQ(ahead_.Opened(1, 0), Nodes{});
  EXPECT_EQ(ahead_.Opened(2, 0), Nodes{3});
  EXPECT_EQ(ahead_.Opened(3, 0), Nodes{});
  EXPECT_EQ(ahead_.Opened(4, 0), Nodes{}) << "of no listing";
}

TEST_F(OpenAheadTest, GoesDownAndUpAgain) {
  List(1, 4);
  EXPECT_EQ(ahead_.Opened(1, 0), Nodes{});
  List(10, 2);  // in 1
  EXPECT_EQ(ahead_.Opened(10, 0), Nodes{});
  EXPECT_EQ(ahead_.Opened(11, 0), Nodes{});
  EXPECT_EQ(ahead_.Opened(2, 0), Nodes{3});
}

TEST_F(OpenAheadTest, WhatIsSkippedIsNotAskedFor) {
  List(1, 20);
  EXPECT_EQ(ahead_.Opened(1, 0), Nodes{});
  EXPECT_EQ(ahead_.Opened(9, 0), Nodes{10});
  EXPECT_EQ(ahead_.Opened(3, 0), Nodes{}) << "a walk does not go back";
}

TEST_F(OpenAheadTest, AWalkThatChangesSomethingIsNotFollowed) {
  List(1, 20, 7);
  EXPECT_EQ(ahead_.Opened(1, 7), Nodes{});
  EXPECT_EQ(ahead_.Opened(2, 7), Nodes{3});
  EXPECT_EQ(ahead_.Opened(3, 8), Nodes{});
}

TEST_F(OpenAheadTest, WhatIsRememberedIsBounded) {
  for (NodeId first = 1; first < 10 * OpenAhead::kMostKnown; first += 1000) List(first, 1000);
  EXPECT_LE(ahead_.known(), OpenAhead::kMostKnown);
}

TEST_F(OpenAheadTest, NothingIsAskedForTwiceAtOnce) {
  EXPECT_TRUE(ahead_.Ask(5, 0, 0));
  EXPECT_FALSE(ahead_.Ask(5, 1, 1));
  EXPECT_FALSE(ahead_.Came(5).has_value());
  EXPECT_TRUE(ahead_.Ask(5, 0, 0));
}

}  // namespace
}  // namespace rdfs::fs::fuse
