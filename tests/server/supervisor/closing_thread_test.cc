#include "server/supervisor/closing_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "transport/base/fd.h"

namespace rdfs::server {
namespace {

TEST(ClosingThread, NobodyWaitsForWhatTakesLong) {
  std::promise<void> may_end;
  std::shared_future<void> end = may_end.get_future().share();
  std::atomic<int> gone{0};
  std::atomic<bool> elsewhere{true};
  const auto here = std::this_thread::get_id();
  const auto slow = [&](const int* value) {
    end.wait();
    elsewhere = elsewhere && std::this_thread::get_id() != here;
    ++gone;
    delete value;
  };
  ClosingThread closing;
  closing.LetGo(nullptr);
  closing.LetGo(std::shared_ptr<const int>(new int(1), slow));
  closing.LetGo(std::shared_ptr<const int>(new int(2), slow));
  EXPECT_EQ(gone.load(), 0);
  may_end.set_value();
  closing.Join();
  EXPECT_EQ(gone.load(), 2);
  EXPECT_TRUE(elsewhere.load());
}

TEST(ClosingThread, BeginsAgainAfterItsEnd) {
  ClosingThread closing;
  for (int turn = 0; turn < 3; ++turn) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const Fd from(ends[0]);
    closing.LetGo(std::make_shared<const Fd>(ends[1]));
    char byte = 0;
    EXPECT_EQ(::read(from.get(), &byte, 1), 0);
    if (turn == 1) closing.Join();
  }
}

}  // namespace
}  // namespace rdfs::server
