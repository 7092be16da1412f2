// LaneMeasure against a peer that is slow, or says nothing any more.
#include "tools/rdping/lane_measure.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <deque>

#include "tools/rdping/protocol.h"
#include "transport/base/fd.h"
#include "transport/domain.h"

namespace rdfs::rdping {
namespace {

using transport::Completion;
using transport::Ticket;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// Answers messages at once, and completes one READ after the other, `pace` apart.
class SlowConnection final : public transport::Connection {
 public:
  explicit SlowConnection(std::chrono::nanoseconds pace) : pace_(pace) {}

  [[nodiscard]] const transport::Capabilities& capabilities() const override { return can_; }
  [[nodiscard]] std::string Describe() const override { return "slow"; }
  Status Send(std::span<const ByteSpan>) override {
    ++messages_;
    return {};
  }
  using Connection::Send;
  [[nodiscard]] std::size_t backlog_bytes() const override { return 0; }
  Result<Ticket> Read(const transport::LocalSlice&, const transport::RemoteSlice&,
                      transport::Order) override {
    if (reads_.empty()) next_ = BootClock::now() + pace_;
    reads_.push_back(++last_);
    return last_;
  }
  Result<Ticket> Write(const transport::LocalSlice&, const transport::RemoteSlice&) override {
    return Status(Code::kInvalidArgument, "nobody WRITEs here");
  }
  Status Flush() override { return {}; }
  Result<std::size_t> Poll(std::span<Completion> out) override {
    if (messages_ > 0) {
      --messages_;
      out[0] = {.kind = Completion::Kind::kMessage,
                .ticket = 0,
                .status = {},
                .message = std::as_bytes(std::span<const RegionsReply, 1>(&answer_, 1))};
      return std::size_t{1};
    }
    if (reads_.empty() || BootClock::now() < next_) return std::size_t{0};
    out[0] = {
        .kind = Completion::Kind::kRead, .ticket = reads_.front(), .status = {}, .message = {}};
    reads_.pop_front();
    next_ = BootClock::now() + pace_;
    return std::size_t{1};
  }
  Result<bool> Arm() override { return true; }
  [[nodiscard]] int fd() const override { return event_.get(); }
  Result<transport::RemoteRegion> Share(const transport::MemoryRegion&) override {
    return transport::RemoteRegion{};
  }
  void Unshare(const transport::MemoryRegion&) override {}

 private:
  const std::chrono::nanoseconds pace_;
  const transport::Capabilities can_{.max_outstanding = 64, .max_transfer_bytes = kRegionBytes};
  // Always readable: who sleeps looks again at once.
  const Fd event_{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
  const RegionsReply answer_{
      .header = {},
      .readable = transport::RemoteRegionWire::From({.address = 0, .length = kRegionBytes}),
      .writable = {}};
  int messages_ = 0;
  std::deque<Ticket> reads_;
  Ticket last_ = 0;
  TimePoint next_;
};

class LaneMeasureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto memory = SharedMemory::Create("test", kRegionBytes, SharedMemory::Peers::kMayWrite);
    ASSERT_TRUE(memory.ok());
    auto local = domain_->Register(*std::move(memory), transport::Access::kLocal);
    ASSERT_TRUE(local.ok());
    local_ = *std::move(local);
  }

  const std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("test");
  std::unique_ptr<transport::MemoryRegion> local_;
};

// 16 READs of 1 MiB are under way, which take longer than the measurement and the patience.
TEST_F(LaneMeasureTest, ASlowServerHasNotStoppedAnswering) {
  SlowConnection lane(100ms);
  LaneMeasure measure(lane, *local_, 1s);
  ASSERT_TRUE(measure.FetchRegions().ok());
  const auto rate = measure.ReadBandwidth(1 << 20, 10ms);
  ASSERT_TRUE(rate.ok()) << rate.status().message();
  EXPECT_GT(*rate, 0);
  EXPECT_LT(*rate, 12e6) << "1 MiB in 100 ms or more";
}

TEST_F(LaneMeasureTest, ASilentServerHas) {
  SlowConnection lane(1h);
  LaneMeasure measure(lane, *local_, 20ms);
  ASSERT_TRUE(measure.FetchRegions().ok());
  EXPECT_EQ(measure.ReadLatency(64, 10ms).status().code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace rdfs::rdping
