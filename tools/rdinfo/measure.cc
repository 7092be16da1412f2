#include "tools/rdinfo/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/session/probe.h"

namespace rdfs::rdinfo {
namespace {

using std::chrono::nanoseconds;
using transport::Completion;
using transport::session::kProbeBytes;
using transport::session::ProbeAnswer;

// For one answer: longer than any network takes, lost packets and all.
constexpr std::chrono::seconds kPatience{3};
constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kLargeBytes = 64 << 10;
constexpr std::size_t kDepth = 8;

class LaneProbe {
 public:
  LaneProbe(transport::Connection& lane, const transport::MemoryRegion& buffer)
      : lane_(lane), buffer_(buffer) {}

  // The first message, whose answer describes the peer's memory.
  Status Begin() {
    RDFS_RETURN_IF_ERROR(lane_.Send(ByteSpan(message_)));
    RDFS_ASSIGN_OR_RETURN(const bool got, Await(Completion::Kind::kMessage));
    if (!got) return {Code::kUnavailable, "the server does not measure: it is an older one"};
    ByteReader reader(answer_);
    const auto words = reader.Read<ProbeAnswer>();
    if (!reader.ok()) return {Code::kProtocolError, "the server's answer is too short"};
    memory_ = words.readable.ToRegion();
    return {};
  }
  [[nodiscard]] bool can_read() const { return memory_.length >= kProbeBytes; }

  Status Echo() {
    RDFS_RETURN_IF_ERROR(lane_.Send(ByteSpan(message_)));
    RDFS_ASSIGN_OR_RETURN(const bool got, Await(Completion::Kind::kMessage));
    if (got) return {};
    return {Code::kDeadlineExceeded, "the server stopped answering"};
  }

  Status Read(std::size_t size) {
    RDFS_ASSIGN_OR_RETURN(const auto ticket, lane_.Read({&buffer_, 0, size}, {memory_, 0}));
    (void)ticket;
    return AwaitRead();
  }

  // READs of large pieces, several at a time, for `duration`; bytes a second.
  Result<double> Stream(nanoseconds duration) {
    const std::size_t depth = std::min<std::size_t>(kDepth, lane_.capabilities().max_outstanding);
    const TimePoint start = BootClock::now();
    std::size_t in_flight = 0;
    double moved = 0;
    bool more = true;
    while (more || in_flight > 0) {
      for (; more && in_flight < depth; ++in_flight) {
        const std::uint64_t offset = in_flight % (kProbeBytes / kLargeBytes) * kLargeBytes;
        RDFS_ASSIGN_OR_RETURN(const auto ticket,
                              lane_.Read({&buffer_, offset, kLargeBytes}, {memory_, offset}));
        (void)ticket;
      }
      RDFS_RETURN_IF_ERROR(AwaitRead());
      --in_flight;
      moved += kLargeBytes;
      more = BootClock::now() - start < duration;
    }
    return moved / std::chrono::duration<double>(BootClock::now() - start).count();
  }

 private:
  // One completion at a time: whether one of that kind came in time.
  Result<bool> Await(Completion::Kind kind) {
    const Deadline deadline = DeadlineAfter(kPatience);
    for (;;) {
      RDFS_ASSIGN_OR_RETURN(const std::size_t count, lane_.Wait(completion_, deadline));
      if (count == 0) return false;
      if (completion_[0].kind != kind) continue;
      RDFS_RETURN_IF_ERROR(completion_[0].status);
      answer_.assign(completion_[0].message.begin(), completion_[0].message.end());
      return true;
    }
  }
  Status AwaitRead() {
    RDFS_ASSIGN_OR_RETURN(const bool got, Await(Completion::Kind::kRead));
    if (got) return {};
    return {Code::kDeadlineExceeded, "small messages pass, and READs do not come back"};
  }

  transport::Connection& lane_;
  const transport::MemoryRegion& buffer_;
  transport::RemoteRegion memory_;
  std::array<Completion, 1> completion_;
  std::vector<std::byte> message_ = std::vector<std::byte>(kSmallBytes);
  std::vector<std::byte> answer_;
};

// The median of laps of `lap`, in microseconds.
template <typename Lap>
Result<double> Median(nanoseconds duration, Lap lap) {
  std::vector<double> laps;
  const TimePoint start = BootClock::now();
  TimePoint last = start;
  while (laps.empty() || last - start < duration) {
    RDFS_RETURN_IF_ERROR(lap());
    const TimePoint now = BootClock::now();
    laps.push_back(std::chrono::duration<double, std::micro>(now - last).count());
    last = now;
  }
  std::ranges::nth_element(laps, laps.begin() + static_cast<std::ptrdiff_t>(laps.size() / 2));
  return laps[laps.size() / 2];
}

}  // namespace

Result<std::unique_ptr<transport::MemoryRegion>> MakeBuffer(transport::Domain& domain) {
  RDFS_ASSIGN_OR_RETURN(
      auto memory, SharedMemory::Create("rdinfo", kProbeBytes, SharedMemory::Peers::kMayWrite));
  return domain.Register(std::move(memory), transport::Access::kLocal);
}

Result<Speed> MeasureLane(transport::Connection& lane, const transport::MemoryRegion& buffer,
                          std::chrono::milliseconds duration) {
  LaneProbe probe(lane, buffer);
  RDFS_RETURN_IF_ERROR(probe.Begin());
  Speed speed;
  const nanoseconds lap_time = duration / 4;
  RDFS_ASSIGN_OR_RETURN(speed.message_us, Median(lap_time, [&] { return probe.Echo(); }));
  if (!probe.can_read()) return speed;
  RDFS_ASSIGN_OR_RETURN(speed.read_us, Median(lap_time, [&] { return probe.Read(kSmallBytes); }));
  RDFS_ASSIGN_OR_RETURN(speed.bytes_per_second, probe.Stream(duration / 2));
  return speed;
}

std::string ToString(const Speed& speed) {
  const std::string message = fmt::format("{:.1f} us a message", speed.message_us);
  if (speed.read_us == 0) return message;
  return fmt::format("{}, {:.1f} us a READ, {:.2f} GB/s", message, speed.read_us,
                     speed.bytes_per_second / 1e9);
}

}  // namespace rdfs::rdinfo
