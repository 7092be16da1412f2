#include "tools/copy/destination/decide.h"

#include <gtest/gtest.h>

#include <limits>

namespace rdfs::copy {
namespace {

struct stat Existing(std::int64_t size, timespec mtime, mode_t mode = S_IFREG) {
  struct stat info {};
  info.st_mode = mode;
  info.st_size = size;
  info.st_mtim = mtime;
  return info;
}

TEST(Decide, IsBySizeTimeAndKind) {
  Entry entry;
  entry.size = 5;
  entry.mtime = {100, 50};
  constexpr Policy kPlain;
  constexpr Policy kUpdate{.update = true};
  constexpr Policy kSync{.sync = true};
  constexpr Policy kChecksum{.sync = true, .checksum = true};
  const auto same = Existing(5, {100, 50});
  for (const Policy& policy : {kPlain, kUpdate, kSync, kChecksum}) {
    EXPECT_EQ(Decide(entry, std::nullopt, policy), Verdict::kCopy);
  }
  EXPECT_EQ(Decide(entry, same, kPlain), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, same, kUpdate), Verdict::kLeave);
  EXPECT_EQ(Decide(entry, Existing(9, {100, 51}), kUpdate), Verdict::kLeave);
  EXPECT_EQ(Decide(entry, Existing(5, {100, 49}), kUpdate), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(5, {-1, 49}), kUpdate), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, same, kSync), Verdict::kSame);
  EXPECT_EQ(Decide(entry, Existing(5, {100, 0}), kSync), Verdict::kSame);  // coarse times
  EXPECT_EQ(Decide(entry, Existing(5, {100, 51}), kSync), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(6, {100, 50}), kSync), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(5, {100, 50}, S_IFLNK), kSync), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(5, {7, 7}), kChecksum), Verdict::kCompare);
  EXPECT_EQ(Decide(entry, Existing(6, {7, 7}), kChecksum), Verdict::kCopy);
  entry.kind = Kind::kSymlink;
  EXPECT_EQ(Decide(entry, Existing(5, {7, 7}, S_IFLNK), kSync), Verdict::kCompare);
  EXPECT_EQ(Decide(entry, Existing(5, {7, 7}), kSync), Verdict::kCopy);
}

// What this source's time is to a DST that has that one.
Verdict VerdictOf(timespec source, timespec there, const Policy& policy) {
  Entry entry;
  entry.size = 5;
  entry.mtime = source;
  return Decide(entry, Existing(5, there), policy);
}

TEST(Decide, WhatTheDestinationCutsOffIsNoOtherTime) {
  constexpr Policy kUpdate{.update = true};
  constexpr Policy kSync{.sync = true};
  constexpr timespec kSource{101, 987'654'321};
  for (const timespec there :
       {timespec{101, 987'654'321}, timespec{101, 987'654'300}, timespec{101, 987'654'000},
        timespec{101, 980'000'000}, timespec{101, 0}, timespec{100, 0}}) {
    EXPECT_EQ(VerdictOf(kSource, there, kSync), Verdict::kSame) << there.tv_nsec;
    EXPECT_EQ(VerdictOf(kSource, there, kUpdate), Verdict::kLeave) << there.tv_nsec;
  }
  // On no grain, or more than one away.
  for (const timespec there : {timespec{101, 987'654'320}, timespec{101, 987'654'200},
                               timespec{101, 987'653'000}, timespec{101, 970'000'000},
                               timespec{100, 987'654'321}, timespec{98, 0}, timespec{-101, 0}}) {
    EXPECT_EQ(VerdictOf(kSource, there, kSync), Verdict::kCopy) << there.tv_nsec;
    EXPECT_EQ(VerdictOf(kSource, there, kUpdate), Verdict::kCopy) << there.tv_nsec;
  }
  // A file system that counts nanoseconds, as its own times show, has cut nothing.
  Entry entry;
  entry.size = 5;
  entry.mtime = kSource;
  struct stat fine = Existing(5, {101, 0});
  fine.st_ctim = {200, 1};
  EXPECT_EQ(Decide(entry, fine, kSync), Verdict::kCopy);
  // What is later there is no cut.
  EXPECT_EQ(VerdictOf(kSource, {102, 0}, kSync), Verdict::kCopy);
  EXPECT_EQ(VerdictOf(kSource, {102, 0}, kUpdate), Verdict::kLeave);
  EXPECT_EQ(VerdictOf({-3, 5}, {-4, 0}, kSync), Verdict::kSame);
  constexpr time_t kLast = std::numeric_limits<time_t>::max();
  EXPECT_EQ(VerdictOf({kLast, 0}, {-kLast - 1, 0}, kUpdate), Verdict::kCopy);
}

}  // namespace
}  // namespace rdfs::copy
