// Measures one lane: round trips and bandwidth of messages, READ and WRITE. One thread, the
// caller's.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "tools/rdping/statistics.h"
#include "transport/transport.h"

namespace rdfs::rdping {

class LaneMeasure {
 public:
  // How long nothing at all may come back before the server counts as gone.
  static constexpr std::chrono::seconds kPatience{10};

  // `local` is in the lane's domain, at least kRegionBytes, and outlives this.
  LaneMeasure(transport::Connection& lane, const transport::MemoryRegion& local,
              std::chrono::nanoseconds patience = kPatience)
      : lane_(lane), local_(local), patience_(patience) {}

  // Asks the server for its regions; before the READs and WRITEs.
  Status FetchRegions();
  [[nodiscard]] bool can_read() const { return readable_.length > 0; }
  [[nodiscard]] bool can_write() const { return writable_.length > 0; }

  Result<LatencySummary> MessageLatency(std::size_t size, std::chrono::nanoseconds duration);
  Result<double> MessageBandwidth(std::size_t size, std::chrono::nanoseconds duration);
  Result<LatencySummary> ReadLatency(std::size_t size, std::chrono::nanoseconds duration);
  Result<double> ReadBandwidth(std::size_t size, std::chrono::nanoseconds duration);
  Result<LatencySummary> WriteLatency(std::size_t size, std::chrono::nanoseconds duration);
  // Until a message sent behind the last WRITE has been answered: the bytes are there then.
  Result<double> WriteBandwidth(std::size_t size, std::chrono::nanoseconds duration);

 private:
  using Post = Result<transport::Ticket> (LaneMeasure::*)(std::size_t index, std::size_t size);
  Result<transport::Ticket> PostRead(std::size_t index, std::size_t size);
  Result<transport::Ticket> PostWrite(std::size_t index, std::size_t size);
  Result<LatencySummary> OneSidedLatency(Post post, std::size_t size,
                                         std::chrono::nanoseconds duration);
  Result<double> OneSidedBandwidth(Post post, bool confirm, std::size_t size,
                                   std::chrono::nanoseconds duration);
  Status SendMessage(std::uint32_t op, std::size_t size);
  // Waits for one message; completions of one-sided operations before it are counted off.
  // `patience`: for each of all these.
  Status AwaitMessage(std::chrono::nanoseconds patience);
  // Says that the stream ends here, and waits until the server has all of it.
  Status EndStream();
  // Waits until the wire has taken most of what messages are queued.
  Status AwaitRoom();
  // Waits for at least one completion of a one-sided operation.
  Status AwaitCompletions();

  transport::Connection& lane_;
  const transport::MemoryRegion& local_;
  const std::chrono::nanoseconds patience_;
  transport::RemoteRegion readable_, writable_;
  std::size_t in_flight_ = 0;
  std::array<transport::Completion, 64> completions_;
  std::vector<std::byte> message_ = std::vector<std::byte>(transport::kMaxMessageBytes);
  std::vector<std::byte> answer_;
};

}  // namespace rdfs::rdping
