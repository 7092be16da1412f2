// Lines for readers that are slow, that go, and that never read.
#include "fs/watch/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "transport/base/fd.h"

namespace rdfs::fs::watch {
namespace {

class OutputTest : public testing::Test {
 protected:
  void SetUp() override {
    (void)std::signal(SIGPIPE, SIG_IGN);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reader_ = Fd(ends[0]);
    writer_ = Fd(ends[1]);
  }
  std::unique_ptr<Output> Start(int fd) {
    const auto gone = std::make_shared<std::promise<void>>();
    gone_ = gone->get_future();
    auto output = Output::Start(fd, [gone] { gone->set_value(); });
    EXPECT_TRUE(output.ok()) << output.status().ToString();
    return output.ok() ? *std::move(output) : nullptr;
  }
  bool SaysItHasGone() {
    return gone_.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  }
  static bool Waits(int fd, int milliseconds) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&entry, 1, milliseconds) > 0;
  }
  // What is to be read: the pipe takes nothing more, and lines until `output` is full as well.
  std::string Fill(Output& output) {
    std::string all;
    EXPECT_EQ(fcntl(writer_.get(), F_SETFL, O_NONBLOCK), 0);
    while (write(writer_.get(), ".", 1) == 1) all += '.';
    EXPECT_EQ(fcntl(writer_.get(), F_SETFL, 0), 0);
    for (int i = 0; !output.full(); ++i) {
      const std::string line = "line " + std::to_string(i) + '\n';
      output.Tell(line);
      all += line;
    }
    return all;
  }
  std::string Read(std::size_t size) {
    std::string all;
    while (all.size() < size) {
      std::array<char, 4096> bytes{};
      const ssize_t got = read(reader_.get(), bytes.data(), bytes.size());
      if (got <= 0) break;
      all.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

  Fd reader_, writer_;
  std::future<void> gone_;
  const Fd stop_{eventfd(0, EFD_CLOEXEC)};
};

TEST_F(OutputTest, WhoTellsWaitsForNoReader) {
  const auto output = Start(writer_.get());
  std::string all = Fill(*output);
  // Told all the same, it is not lost.
  output->Tell("one more\n");
  all += "one more\n";
  EXPECT_FALSE(Waits(output->fd(), 0));
  EXPECT_EQ(Read(all.size()), all);
  EXPECT_TRUE(Waits(output->fd(), 20'000));
  EXPECT_FALSE(output->full());
  output->TakeRoom();
  EXPECT_FALSE(Waits(output->fd(), 0));
  EXPECT_TRUE(output->End(stop_.get()).ok());
}

TEST_F(OutputTest, ItEndsWhenAllIsRead) {
  const auto output = Start(writer_.get());
  const std::string all = Fill(*output);
  std::thread reading([&] { EXPECT_EQ(Read(all.size()), all); });
  EXPECT_TRUE(output->End(stop_.get()).ok());
  reading.join();
}

TEST_F(OutputTest, ToldToEndItLeavesAReaderThatNeverReads) {
  const auto output = Start(writer_.get());
  (void)Fill(*output);
  eventfd_write(stop_.get(), 1);
  EXPECT_TRUE(output->End(stop_.get()).ok());
  reader_.Reset();  // its thread writes to it
  EXPECT_TRUE(SaysItHasGone());
}

TEST_F(OutputTest, AReaderThatHasGoneIsNoError) {
  const auto output = Start(writer_.get());
  reader_.Reset();
  output->Tell("line\n");
  EXPECT_TRUE(SaysItHasGone());
  output->Tell("line\n");
  EXPECT_TRUE(output->End(stop_.get()).ok());
}

TEST_F(OutputTest, AFullDiskIsTold) {
  const Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  const auto output = Start(full.get());
  output->Tell("line\n");
  EXPECT_TRUE(SaysItHasGone());
  EXPECT_EQ(output->End(stop_.get()).errno_value(), ENOSPC);
}

}  // namespace
}  // namespace rdfs::fs::watch
