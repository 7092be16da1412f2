#include "tools/rdping/lane_measure.h"

#include <algorithm>
#include <cstring>

#include "tools/rdping/laps.h"
#include "tools/rdping/protocol.h"

namespace rdfs::rdping {
namespace {

using std::chrono::nanoseconds;
using transport::Completion;
using transport::Ticket;

// How much of a stream of messages may wait on our side before we look at the wire again.
constexpr std::size_t kStreamBacklog = 1 << 20;
// The answer to a stream's end comes behind what both kernels hold of it then, some MiB, of whose
// way nothing is told: so many times as long as for anything else.
constexpr int kEndPatience = 6;
// Of memory that bandwidth is measured on, at each end.
constexpr std::size_t kHotBytes = 1 << 20;

double Seconds(nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

Status LaneMeasure::SendMessage(std::uint32_t op, std::size_t size) {
  size = std::clamp(size, sizeof(PingMessage), transport::kMaxMessageBytes);
  const PingMessage header{op, static_cast<std::uint32_t>(size)};
  std::memcpy(message_.data(), &header, sizeof header);
  return lane_.Send(ByteSpan(message_).first(size));
}

Status LaneMeasure::AwaitMessage(nanoseconds patience) {
  while (true) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count,
                          lane_.Wait(completions_, DeadlineAfter(patience)));
    if (count == 0) return {Code::kDeadlineExceeded, "the server stopped answering"};
    bool got = false;
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& completion = completions_[i];
      if (completion.kind == Completion::Kind::kMessage) {
        answer_.assign(completion.message.begin(), completion.message.end());
        got = true;
      } else {
        RDFS_RETURN_IF_ERROR(completion.status);
        --in_flight_;
      }
    }
    if (got) return {};
  }
}

Status LaneMeasure::AwaitCompletions() {
  RDFS_ASSIGN_OR_RETURN(const std::size_t count,
                        lane_.Wait(completions_, DeadlineAfter(patience_)));
  if (count == 0) return {Code::kDeadlineExceeded, "the server stopped answering"};
  for (std::size_t i = 0; i < count; ++i) {
    if (completions_[i].kind == Completion::Kind::kMessage) continue;
    RDFS_RETURN_IF_ERROR(completions_[i].status);
    --in_flight_;
  }
  return {};
}

Status LaneMeasure::EndStream() {
  RDFS_RETURN_IF_ERROR(SendMessage(static_cast<std::uint32_t>(Op::kStreamEnd), 0));
  return AwaitMessage(patience_ * kEndPatience);
}

Status LaneMeasure::AwaitRoom() {
  std::size_t backlog = lane_.backlog_bytes();
  if (backlog <= kStreamBacklog) return {};
  Deadline deadline = DeadlineAfter(patience_);
  while (backlog > kStreamBacklog) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t got, lane_.Poll(completions_));
    (void)got;
    const TimePoint now = BootClock::now();
    const std::size_t left = lane_.backlog_bytes();
    if (left < backlog) deadline = now + patience_;
    if (now > deadline) return {Code::kDeadlineExceeded, "the server takes no more messages"};
    backlog = left;
  }
  return {};
}

Status LaneMeasure::FetchRegions() {
  RDFS_RETURN_IF_ERROR(SendMessage(static_cast<std::uint32_t>(Op::kRegions), 0));
  RDFS_RETURN_IF_ERROR(AwaitMessage(patience_));
  ByteReader reader(answer_);
  const auto reply = reader.Read<RegionsReply>();
  if (!reader.ok()) return {Code::kProtocolError, "the server's answer is too short"};
  readable_ = reply.readable.ToRegion();
  writable_ = reply.writable.ToRegion();
  for (const auto& region : {readable_, writable_}) {
    if (region.length != 0 && region.length < kRegionBytes) {
      return {Code::kProtocolError, "the server offered less memory than rdping uses"};
    }
  }
  return {};
}

Result<LatencySummary> LaneMeasure::MessageLatency(std::size_t size, nanoseconds duration) {
  Laps laps(duration);
  do {
    RDFS_RETURN_IF_ERROR(SendMessage(static_cast<std::uint32_t>(Op::kEcho), size));
    RDFS_RETURN_IF_ERROR(AwaitMessage(patience_));
  } while (laps.More());
  return laps.Summarise();
}

Result<double> LaneMeasure::MessageBandwidth(std::size_t size, nanoseconds duration) {
  const TimePoint start = BootClock::now();
  double sent = 0;
  while (BootClock::now() - start < duration) {
    RDFS_RETURN_IF_ERROR(SendMessage(static_cast<std::uint32_t>(Op::kStream), size));
    sent += static_cast<double>(size);
    // A stream that runs ahead of the wire would only fill memory.
    RDFS_RETURN_IF_ERROR(AwaitRoom());
  }
  RDFS_RETURN_IF_ERROR(EndStream());
  return sent / Seconds(BootClock::now() - start);
}

Result<Ticket> LaneMeasure::PostRead(std::size_t index, std::size_t size) {
  const std::uint64_t offset = index * size % (kRegionBytes - size + 1);
  return lane_.Read({&local_, offset, size}, {readable_, offset});
}

Result<Ticket> LaneMeasure::PostWrite(std::size_t index, std::size_t size) {
  const std::uint64_t offset = index * size % (kRegionBytes - size + 1);
  return lane_.Write({&local_, offset, size}, {writable_, offset});
}

Result<LatencySummary> LaneMeasure::OneSidedLatency(Post post, std::size_t size,
                                                    nanoseconds duration) {
  Laps laps(duration);
  do {
    RDFS_ASSIGN_OR_RETURN(const Ticket ticket, (this->*post)(0, size));
    (void)ticket;
    ++in_flight_;
    while (in_flight_ > 0) RDFS_RETURN_IF_ERROR(AwaitCompletions());
  } while (laps.More());
  return laps.Summarise();
}

Result<double> LaneMeasure::OneSidedBandwidth(Post post, bool confirm, std::size_t size,
                                              nanoseconds duration) {
  const std::size_t depth = std::clamp<std::size_t>(
      kRegionBytes / size, 1, std::min<std::size_t>(lane_.capabilities().max_outstanding, 64));
  // Transfers under way share places, so that the caches hold the memory: measured is the wire, as
  // perftest does it, and kernel TCP beside it. Whose bytes win does not matter here.
  const std::size_t places = std::clamp<std::size_t>(kHotBytes / size, 1, depth);
  const TimePoint start = BootClock::now();
  double moved = 0;
  std::size_t index = 0;
  while (BootClock::now() - start < duration) {
    while (in_flight_ < depth) {
      RDFS_ASSIGN_OR_RETURN(const Ticket ticket, (this->*post)(index++ % places, size));
      (void)ticket;
      ++in_flight_;
      moved += static_cast<double>(size);
    }
    RDFS_RETURN_IF_ERROR(AwaitCompletions());
  }
  while (in_flight_ > 0) RDFS_RETURN_IF_ERROR(AwaitCompletions());
  if (confirm) RDFS_RETURN_IF_ERROR(EndStream());
  return moved / Seconds(BootClock::now() - start);
}

Result<LatencySummary> LaneMeasure::ReadLatency(std::size_t size, nanoseconds duration) {
  return OneSidedLatency(&LaneMeasure::PostRead, size, duration);
}
Result<double> LaneMeasure::ReadBandwidth(std::size_t size, nanoseconds duration) {
  return OneSidedBandwidth(&LaneMeasure::PostRead, false, size, duration);
}
Result<LatencySummary> LaneMeasure::WriteLatency(std::size_t size, nanoseconds duration) {
  return OneSidedLatency(&LaneMeasure::PostWrite, size, duration);
}
Result<double> LaneMeasure::WriteBandwidth(std::size_t size, nanoseconds duration) {
  return OneSidedBandwidth(&LaneMeasure::PostWrite, true, size, duration);
}

}  // namespace rdfs::rdping
