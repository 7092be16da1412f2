// The kernel's end is a socket that keeps the borders of writes, as /dev/fuse does.
#include "fs/fuse/worker/answer_batch.h"

#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/fs/fuse/buffered_test.h"
#include "transport/base/fd.h"

namespace rdfs::fs::fuse {
namespace {

class AnswerBatchTest : public BufferedTest {
 protected:
  AnswerBatchTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
              0);
    ours_.Reset(ends[0]);
    kernels_.Reset(ends[1]);
  }

  void Add(AnswerBatch& batch, std::uint64_t unique, std::string_view text) {
    std::optional<client::Buffer> buffer = pool_->Allocate(std::max(text.size(), std::size_t{1}));
    ASSERT_TRUE(buffer);
    std::memcpy(buffer->bytes().data(), text.data(), text.size());
    batch.Add(unique, *std::move(buffer), text.size());
  }
  // The next write that the kernel sees: its header and its body.
  struct Seen {
    fuse_out_header header{};
    std::string body;
  };
  std::optional<Seen> Next() {
    std::string bytes(1 << 20, '\0');
    const ssize_t got = recv(kernels_.get(), bytes.data(), bytes.size(), 0);
    Seen seen;
    if (got < static_cast<ssize_t>(sizeof seen.header)) return {};
    std::memcpy(&seen.header, bytes.data(), sizeof seen.header);
    seen.body =
        bytes.substr(sizeof seen.header, static_cast<std::size_t>(got) - sizeof seen.header);
    EXPECT_EQ(seen.header.len, static_cast<std::size_t>(got));
    return seen;
  }
  void ExpectNext(std::uint64_t unique, std::string_view body) {
    const std::optional<Seen> seen = Next();
    ASSERT_TRUE(seen) << unique;
    EXPECT_EQ(seen->header.unique, unique);
    EXPECT_EQ(seen->header.error, 0);
    EXPECT_EQ(seen->body, body);
  }
  void ExpectAllBuffersBack() { EXPECT_EQ(pool_->free_bytes(), pool_->size_bytes()); }

  Fd ours_, kernels_;
};

TEST_F(AnswerBatchTest, EachAnswerIsAWriteOfItsOwn) {
  AnswerBatch batch(ours_.get());
  for (int turn = 0; turn < 3; ++turn) {
    Add(batch, 7, "seven");
    Add(batch, 9, "");
    Add(batch, 8, std::string(5000, 'x'));
    EXPECT_FALSE(Next()) << "before Send";
    batch.Send();
    EXPECT_TRUE(batch.together()) << "io_uring is not available here";
    ExpectAllBuffersBack();
    ExpectNext(7, "seven");
    ExpectNext(9, "");
    ExpectNext(8, std::string(5000, 'x'));
    EXPECT_FALSE(Next());
  }
}

TEST_F(AnswerBatchTest, OneNeedsNoRing) {
  AnswerBatch batch(ours_.get());
  batch.Send();
  Add(batch, 1, "one");
  batch.Send();
  EXPECT_FALSE(batch.together());
  ExpectNext(1, "one");
  ExpectAllBuffersBack();
}

TEST_F(AnswerBatchTest, MoreThanFitGoInTurns) {
  AnswerBatch batch(ours_.get());
  for (std::uint64_t i = 0; i < 2 * AnswerBatch::kMost + 3; ++i) {
    Add(batch, 100 + i, std::to_string(i));
  }
  EXPECT_EQ(batch.size(), 3U);
  for (std::uint64_t i = 0; i < 2 * AnswerBatch::kMost; ++i) ExpectNext(100 + i, std::to_string(i));
  EXPECT_FALSE(Next());
  batch.Send();
  for (std::uint64_t i = 2 * AnswerBatch::kMost; i < 2 * AnswerBatch::kMost + 3; ++i) {
    ExpectNext(100 + i, std::to_string(i));
  }
  ExpectAllBuffersBack();
}

// What the socket cannot take at all, as /dev/fuse might not: its program is told, and the others
// have their answers.
TEST_F(AnswerBatchTest, WhatIsNotTakenEndsAsAnError) {
  const int small = 4096;
  ASSERT_EQ(setsockopt(ours_.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  for (const bool together : {true, false}) {
    AnswerBatch batch(ours_.get());
    if (together) Add(batch, 1, "before");
    Add(batch, 2, std::string(100'000, 'x'));
    if (together) Add(batch, 3, "behind");
    batch.Send();
    EXPECT_EQ(batch.together(), together);
    std::vector<std::uint64_t> answered;
    while (const std::optional<Seen> seen = Next()) {
      answered.push_back(seen->header.unique);
      EXPECT_EQ(seen->header.error, seen->header.unique == 2 ? -EIO : 0);
    }
    std::ranges::sort(answered);
    EXPECT_EQ(answered,
              together ? (std::vector<std::uint64_t>{1, 2, 3}) : std::vector<std::uint64_t>{2});
    ExpectAllBuffersBack();
  }
}

TEST_F(AnswerBatchTest, WithoutIoUringTheyGoByThemselves) {
  AnswerBatch batch(ours_.get(), /*use_io_uring=*/false);
  Add(batch, 1, "one");
  Add(batch, 2, "two");
  batch.Send();
  EXPECT_FALSE(batch.together());
  ExpectNext(1, "one");
  ExpectNext(2, "two");
  ExpectAllBuffersBack();
}

}  // namespace
}  // namespace rdfs::fs::fuse
