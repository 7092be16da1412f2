// The check of what real processes saw, by notes made by hand.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/e2e/linearizable/check.h"

namespace rdfs::linearizable {
namespace {

Event Call(What what, std::uint32_t worker, std::uint64_t begin, std::uint64_t end,
           std::uint64_t value = 0) {
  return {.worker = worker, .what = what, .value = value, .begin = begin, .end = end};
}
bool Right(const std::vector<Event>& events) { return Check(events).wrong.empty(); }

TEST(Linearizable, ContentThatWasWrittenIsRead) {
  const auto write = Call(What::kWriteContent, 0, 1, 5, 7);
  EXPECT_TRUE(Right({write, Call(What::kReadContent, 1, 2, 3, 0)}));
  EXPECT_TRUE(Right({write, Call(What::kReadContent, 1, 5, 6, 0)}));  // at the same time
  EXPECT_TRUE(Right({write, Call(What::kReadContent, 1, 6, 7, 7)}));
  EXPECT_FALSE(Right({write, Call(What::kReadContent, 1, 6, 7, 0)}));
  EXPECT_FALSE(
      Right({write, Call(What::kReadContent, 1, 2, 3, 7), Call(What::kReadContent, 2, 4, 5, 0)}));
}

TEST(Linearizable, AModeMayComeBack) {
  const auto first = Call(What::kChmod, 0, 1, 2, 7), second = Call(What::kChmod, 0, 3, 4, 0);
  EXPECT_TRUE(Right({first, second, Call(What::kStatMode, 1, 5, 6, 0)}));
  EXPECT_FALSE(Right({first, second, Call(What::kStatMode, 1, 5, 6, 7)}));
}

TEST(Linearizable, ANameIsMadeOnce) {
  auto made = Call(What::kCreate, 0, 1, 4, 77), also = Call(What::kCreate, 1, 2, 3, 78);
  EXPECT_FALSE(Right({made, also}));
  also.error = EEXIST;
  EXPECT_TRUE(Right({made, also}));
  EXPECT_FALSE(Right({made, Call(What::kStatName, 1, 5, 6, 0)}));
  EXPECT_FALSE(Right({made, Call(What::kStatName, 1, 5, 6, 78)}));
}

TEST(Linearizable, ALockIsOnesAlone) {
  auto mine = Call(What::kFlock, 0, 1, 2), yours = Call(What::kFlock, 1, 3, 4);
  EXPECT_TRUE(Right({mine, yours}));  // both share it
  mine.exclusive = 1;
  EXPECT_FALSE(Right({mine, yours}));
  EXPECT_TRUE(Right({mine, Call(What::kUnflock, 0, 2, 9), yours}));
  yours.error = EAGAIN;
  EXPECT_TRUE(Right({mine, yours}));
  yours.begin = 5;
  yours.end = 6;
  EXPECT_FALSE(Right({mine, Call(What::kUnflock, 0, 3, 4), yours}));
}

TEST(Linearizable, RoundsAndGroupsAreDifferentObjects) {
  auto write = Call(What::kWriteContent, 0, 1, 2, 7), read = Call(What::kReadContent, 1, 3, 4, 0);
  EXPECT_FALSE(Right({write, read}));
  read.group = 1;
  EXPECT_TRUE(Right({write, read}));
  read.group = 0;
  read.round = 1;
  EXPECT_TRUE(Right({write, read}));
}

TEST(Linearizable, AnErrorThatSaysNothingIsWrong) {
  auto read = Call(What::kReadContent, 0, 1, 2);
  read.error = EIO;
  EXPECT_FALSE(Right({read}));
}

}  // namespace
}  // namespace rdfs::linearizable
