// What cannot be in a directory that this mount has made.
#include "fs/fuse/names/new_directories.h"

#include <gtest/gtest.h>

#include <string>

namespace rdfs::fs::fuse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr NodeId kDirectory = 7;

class NewDirectoriesTest : public testing::Test {
 protected:
  bool Absent(std::string_view name) { return known_.AbsentUntil(kDirectory, name, now_) > now_; }
  void Make(TimePoint until) { known_.Made(kDirectory, until, now_); }

  TimePoint now_{std::chrono::hours(1)};
  NewDirectories known_{milliseconds(1000)};
};

TEST_F(NewDirectoriesTest, WhatThisMountHasNotMadeIsAbsent) {
  EXPECT_FALSE(Absent("a"));
  Make(now_ + seconds(5));
  EXPECT_TRUE(Absent("a"));
  known_.Adds(kDirectory, "a");
  EXPECT_FALSE(Absent("a"));
  EXPECT_TRUE(Absent("b"));
  EXPECT_EQ(known_.AbsentUntil(kDirectory, "b", now_), now_ + seconds(5));
  EXPECT_EQ(known_.AbsentUntil(kDirectory + 1, "b", now_), now_);
}

TEST_F(NewDirectoriesTest, ALeaseThatWasNotGrantedSaysNothing) {
  Make(now_);
  EXPECT_FALSE(Absent("a"));
}

TEST_F(NewDirectoriesTest, AfterARecallNothingIsKnown) {
  Make(now_ + seconds(5));
  known_.Forget(kDirectory);
  EXPECT_FALSE(Absent("a"));
  known_.Renew(kDirectory, now_ + seconds(5), now_);
  EXPECT_FALSE(Absent("a"));
  Make(now_ + seconds(5));
  known_.ForgetAll();
  EXPECT_FALSE(Absent("a"));
}

TEST_F(NewDirectoriesTest, HoldsWhileTheLeaseIsRenewedInTime) {
  Make(now_ + seconds(5));
  now_ += seconds(4);
  known_.Renew(kDirectory, now_ + seconds(5), now_);
  now_ += seconds(4);
  EXPECT_TRUE(Absent("a"));
  now_ += seconds(1);
  EXPECT_FALSE(Absent("a"));
  known_.Renew(kDirectory, now_ + seconds(5), now_);
  EXPECT_FALSE(Absent("a")) << "somebody may have made one in between";
}

TEST_F(NewDirectoriesTest, AShortLeaseIsNotRenewed) {
  Make(now_ + seconds(1));
  now_ += milliseconds(500);
  known_.Renew(kDirectory, now_ + seconds(1), now_);
  EXPECT_TRUE(Absent("a"));
  now_ += milliseconds(500);
  EXPECT_FALSE(Absent("a"));
}

TEST_F(NewDirectoriesTest, NamesThatMayBeFoldedAreAskedFor) {
  Make(now_ + seconds(5));
  known_.Adds(kDirectory, "Makefile");
  EXPECT_FALSE(Absent("makefile"));
  for (const char* name : {"a.", "a ", "ABCDEF~1", "\xe2\x84\xaa", ""}) EXPECT_FALSE(Absent(name));
  EXPECT_TRUE(Absent("a b.c"));
  known_.Adds(kDirectory, "caf\xc3\xa9");
  EXPECT_FALSE(Absent("a b.c"));
}

TEST_F(NewDirectoriesTest, NamesThatAreTooLongAreAskedFor) {
  Make(now_ + seconds(5));
  EXPECT_TRUE(Absent(std::string(255, 'a')));
  EXPECT_FALSE(Absent(std::string(256, 'a')));
}

TEST_F(NewDirectoriesTest, IsBounded) {
  Make(now_ + seconds(5));
  for (std::size_t i = 0; i <= NewDirectories::kMostNames; ++i) {
    known_.Adds(kDirectory, std::to_string(i));
  }
  EXPECT_FALSE(Absent("a"));
  Make(now_ + seconds(5));
  EXPECT_TRUE(Absent("a"));
  for (NodeId i = 0; i < NewDirectories::kMostDirectories; ++i) {
    known_.Made(100 + i, now_ + seconds(5), now_);
  }
  EXPECT_FALSE(Absent("a"));
}

}  // namespace
}  // namespace rdfs::fs::fuse
