// What is read: ranges and holes of files, streams, files that change.
#include "tools/pipe/io/source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "tests/tools/pipe/temp_dir.h"

namespace rdfs::pipe {
namespace {

constexpr std::size_t kRoom = 4096;

class SourceTest : public testing::Test {
 protected:
  // Everything, pieces filled in; holes as zeros. `holes` counts them.
  std::string ReadAll(Source& source) {
    std::string out;
    std::vector<std::byte> room(kRoom);
    for (;;) {
      const auto piece = source.Next(room);
      if (!piece.ok()) {
        error_ = piece.status();
        return out;
      }
      if (piece->kind == Piece::Kind::kEnd) return out;
      EXPECT_EQ(piece->offset, out.size());
      const MutableByteSpan bytes = MutableByteSpan(room).first(std::min(kRoom, piece->length));
      if (piece->kind == Piece::Kind::kHole) {
        ++holes_;
        out.append(piece->length, '\0');
        continue;
      }
      if (piece->kind == Piece::Kind::kToFill) {
        if (error_ = source.Fill(piece->offset, bytes); !error_.ok()) return out;
      }
      out.append(AsText(bytes));
    }
  }

  TempDir dir_;
  StopFlag stop_{false};
  Status error_;
  int holes_ = 0;
};

TEST_F(SourceTest, AFile) {
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 4097U, 100000U}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
    dir_.Write("file", text);
    auto source = Source::Open(dir_ / "file", stop_);
    ASSERT_TRUE(source.ok());
    EXPECT_EQ((*source)->size(), size);
    EXPECT_EQ(ReadAll(**source), text);
    EXPECT_TRUE(error_.ok());
  }
}

TEST_F(SourceTest, HolesAreToldNotRead) {
  dir_.Write("file", "begin");
  const Fd fd(open((dir_ / "file").c_str(), O_WRONLY));
  ASSERT_EQ(pwrite(fd.get(), "middle", 6, 1 << 20), 6);
  ASSERT_EQ(ftruncate(fd.get(), 3 << 20), 0);
  auto source = Source::Open(dir_ / "file", stop_);
  ASSERT_TRUE(source.ok());
  const std::string text = ReadAll(**source);
  EXPECT_EQ(text.size(), 3U << 20);
  EXPECT_EQ(text.substr(1 << 20, 6), "middle");
  EXPECT_GE(holes_, 1);
}

TEST_F(SourceTest, FromTheMiddle) {
  dir_.Write("file", std::string(10000, 'a') + "end");
  auto source = Source::Open(dir_ / "file", stop_);
  ASSERT_TRUE(source.ok());
  (*source)->StartAt(10000);
  std::vector<std::byte> room(kRoom);
  const auto piece = (*source)->Next(room);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->offset, 10000U);
  EXPECT_EQ(piece->length, 3U);
}

TEST_F(SourceTest, AFileThatGrowsIsReadToItsEnd) {
  dir_.Write("file", "one");
  auto source = Source::Open(dir_ / "file", stop_);
  ASSERT_TRUE(source.ok());
  dir_.Write("file", "one and two");
  EXPECT_EQ(ReadAll(**source), "one and two");
}

TEST_F(SourceTest, AFileThatShrinksIsAnError) {
  dir_.Write("file", std::string(10000, 'a'));
  auto source = Source::Open(dir_ / "file", stop_);
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(truncate((dir_ / "file").c_str(), 5000), 0);
  (void)ReadAll(**source);
  EXPECT_NE(error_.message().find("became shorter"), std::string::npos);
}

TEST_F(SourceTest, AFileWithoutASize) {
  auto source = Source::Open("/proc/self/status", stop_);
  ASSERT_TRUE(source.ok());
  EXPECT_NE(ReadAll(**source).find("Name:"), std::string::npos);
}

TEST_F(SourceTest, AFolderCannotBeRead) {
  const Status refused = Source::Open(dir_ / ".", stop_).status();
  EXPECT_EQ(refused.errno_value(), EISDIR);
  EXPECT_NE(refused.message().find("is a directory; send"), std::string::npos) << refused.message();
  EXPECT_EQ(Source::Open(dir_ / "none", stop_).status().errno_value(), ENOENT);
}

TEST_F(SourceTest, AFifo) {
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  std::thread writer([&] { dir_.Write("fifo", std::string(300000, 'f')); });
  auto source = Source::Open(dir_ / "fifo", stop_);
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE((*source)->size());
  EXPECT_EQ(ReadAll(**source), std::string(300000, 'f'));
  writer.join();
}

// A thread that waits for a writer's bytes ends when it is asked to.
TEST_F(SourceTest, ABlockedReadIsInterrupted) {
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  const Fd writer(open((dir_ / "fifo").c_str(), O_RDWR));
  auto source = Source::Open(dir_ / "fifo", stop_);
  ASSERT_TRUE(source.ok());
  Threads threads(1, [&] { (void)ReadAll(**source); });
  stop_ = true;
  threads.Join();
  EXPECT_EQ(error_.errno_value(), EINTR);
}

// As a relay puts it into its pipe.
void PutFrame(int into, const std::string& text) {
  const FrameHead head = HeadOfFrame(text.size(), false);
  EXPECT_EQ(write(into, head.data(), head.size()), static_cast<ssize_t>(head.size()));
  EXPECT_EQ(write(into, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}
void PutHole(int into, std::uint64_t length) {
  const FrameHead head = HeadOfFrame(length, true);
  EXPECT_EQ(write(into, head.data(), head.size()), static_cast<ssize_t>(head.size()));
}

// Nobody else who holds the pipe sees anything of it.
TEST_F(SourceTest, AnUnblockedPipeWaitsForNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd others(dup(ends[0]));
  const std::atomic<std::uint64_t> length(3);
  const auto source = Source::OfPipe(Fd(ends[0]), nullptr, length, stop_);
  ASSERT_TRUE(source->Unblock());
  EXPECT_EQ(fcntl(others.get(), F_GETFL) & O_NONBLOCK, 0);
  std::vector<std::byte> room(kRoom);
  EXPECT_EQ(source->Next(room)->kind, Piece::Kind::kNone);
  PutFrame(ends[1], "abc");
  const auto piece = source->Next(room);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->kind, Piece::Kind::kRead);
  EXPECT_EQ(AsText(ByteSpan(room).first(piece->length)), "abc");
  EXPECT_EQ(source->Next(room)->kind, Piece::Kind::kNone);
  close(ends[1]);
  EXPECT_EQ(source->Next(room)->kind, Piece::Kind::kEnd);
}

TEST_F(SourceTest, HolesGoThroughAPipeOfOurOwn) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  PutHole(ends[1], 3);
  PutFrame(ends[1], "ab");
  PutFrame(ends[1], "c");
  PutHole(ends[1], 2);
  PutHole(ends[1], 4);
  PutFrame(ends[1], "d");
  PutHole(ends[1], 1);
  close(ends[1]);
  const std::atomic<std::uint64_t> whole(14);
  const auto source = Source::OfPipe(Fd(ends[0]), nullptr, whole, stop_);
  EXPECT_EQ(ReadAll(*source),
            std::string(3, '\0') + "abc" + std::string(6, '\0') + "d" + std::string(1, '\0'));
  EXPECT_EQ(holes_, 4);
  EXPECT_TRUE(error_.ok()) << error_.ToString();
}

// Its writer may be stopped anywhere, and nothing of what comes behind a hole is taken before that.
TEST_F(SourceTest, FramesThatComeByteByByte) {
  std::array<int, 2> from{};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(from.data()), 0);
  ASSERT_EQ(::pipe(ends.data()), 0);
  PutFrame(from[1], "ab");
  PutHole(from[1], 5);
  PutFrame(from[1], "c");
  close(from[1]);
  const std::atomic<std::uint64_t> whole(8);
  const auto source = Source::OfPipe(Fd(ends[0]), nullptr, whole, stop_);
  ASSERT_TRUE(source->Unblock());
  std::string all;
  std::vector<std::byte> room(100);
  char byte = 0;
  while (read(from[0], &byte, 1) == 1) {
    ASSERT_EQ(write(ends[1], &byte, 1), 1);
    const auto piece = source->Next(room);
    ASSERT_TRUE(piece.ok());
    EXPECT_EQ(piece->offset, all.size());
    if (piece->kind == Piece::Kind::kNone) continue;
    all += piece->kind == Piece::Kind::kHole
               ? std::string(piece->length, '.')
               : std::string(AsText(ByteSpan(room).first(piece->length)));
  }
  close(from[0]);
  close(ends[1]);
  EXPECT_EQ(all, "ab.....c");
  EXPECT_EQ(source->Next(room)->kind, Piece::Kind::kEnd);
}

TEST_F(SourceTest, APipeOfOurOwnHasToBeWhole) {
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{2}, Source::kBrokenOff}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    PutFrame(ends[1], "abc");
    close(ends[1]);
    const std::atomic<std::uint64_t> whole(length);
    const auto source = Source::OfPipe(Fd(ends[0]), nullptr, whole, stop_);
    error_ = Status();
    EXPECT_EQ(ReadAll(*source), "abc");
    EXPECT_EQ(error_.ok(), length == 3);
  }
}

// Its beginning is in a file, once it is known how much of it; what is behind that there is not
// its.
TEST_F(SourceTest, WhatIsRelayedMayBeginInAFile) {
  std::string text(9000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  dir_.Write("part", text + "of another stream");
  for (const std::size_t have : {std::size_t{0}, std::size_t{1}, text.size()}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    PutFrame(ends[1], "behind it");
    close(ends[1]);
    const std::atomic<std::uint64_t> whole(have + 9);
    const auto head = Head::Create();
    ASSERT_TRUE(head.ok());
    const auto source = Source::OfPipe(Fd(ends[0]), *head, whole, stop_);
    EXPECT_TRUE(source->seekable());
    EXPECT_FALSE(source->size());
    EXPECT_FALSE(source->fixed());
    pollfd entry{.fd = source->fixed_told(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&entry, 1, 0), 0);
    (*head)->Set(Fd(open((dir_ / "part").c_str(), O_RDONLY | O_CLOEXEC)), have);
    EXPECT_EQ(poll(&entry, 1, 0), 1);
    EXPECT_EQ(source->fixed(), have);
    std::vector<std::byte> block(have);
    ASSERT_TRUE(source->Fill(0, block).ok());  // as it is compared before anything is sent
    EXPECT_EQ(AsText(block), text.substr(0, have));
    source->StartAt(0);
    EXPECT_EQ(ReadAll(*source), text.substr(0, have) + "behind it");
    EXPECT_TRUE(error_.ok()) << error_.ToString();
  }
}

// For another receiver, when the first one is lost.
TEST_F(SourceTest, AFileBeginsAgain) {
  dir_.Write("file", "all of it");
  const auto source = Source::Open(dir_ / "file", stop_);
  ASSERT_TRUE(source.ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadAll(**source), "all of it");
    EXPECT_TRUE((*source)->Again());
  }
}

TEST_F(SourceTest, APipeBeginsAgainAsFarAsItIsKept) {
  const std::string text = "head and what comes behind it, and still more";
  constexpr std::size_t kHead = 5;
  dir_.Write("kept", text);
  const auto kept = [&] { return Fd(open((dir_ / "kept").c_str(), O_RDONLY | O_CLOEXEC)); };
  for (const bool with_head : {false, true}) {
    for (const std::size_t read : {std::size_t{0}, std::size_t{3}, std::size_t{20}, text.size()}) {
      std::array<int, 2> ends{};
      ASSERT_EQ(::pipe(ends.data()), 0);
      const std::string in_pipe = with_head ? text.substr(kHead) : text;
      PutFrame(ends[1], in_pipe);
      close(ends[1]);
      const std::atomic<std::uint64_t> whole(text.size());
      std::shared_ptr<Head> head;
      if (with_head) {
        head = *Head::Create();
        head->Set(kept(), kHead);
      }
      const auto source = Source::OfPipe(Fd(ends[0]), head, whole, stop_, kept);
      source->StartAt(0);
      std::vector<std::byte> room(8);
      for (std::size_t at = 0; at < read;) {
        const auto piece =
            source->Next(MutableByteSpan(room).first(std::min(room.size(), read - at)));
        ASSERT_TRUE(piece.ok());
        ASSERT_GT(piece->length, 0U);
        at += piece->length;
      }
      ASSERT_TRUE(source->Again());
      EXPECT_TRUE(source->seekable() || read == 0);
      source->StartAt(0);
      EXPECT_EQ(ReadAll(*source), text) << with_head << read;
      EXPECT_TRUE(error_.ok()) << error_.ToString();
      EXPECT_TRUE(source->Again());  // and once more, all out of the file
      source->StartAt(0);
      EXPECT_EQ(ReadAll(*source), text) << with_head << read;
    }
  }
}

TEST_F(SourceTest, APipeThatNobodyKeepsBeginsAgainOnlyUnread) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  PutFrame(ends[1], "abc");
  const std::atomic<std::uint64_t> whole(Source::kPaused);
  const auto source = Source::OfPipe(Fd(ends[0]), nullptr, whole, stop_);
  EXPECT_TRUE(source->Again());
  std::vector<std::byte> room(1);
  ASSERT_TRUE(source->Next(room).ok());
  EXPECT_FALSE(source->Again());
  const Status stopped = Status::FromErrno(EINTR, "stopped");
  EXPECT_EQ(source->WhyInterrupted(stopped).code(), Code::kUnavailable);
  close(ends[1]);
}

}  // namespace
}  // namespace rdfs::pipe
