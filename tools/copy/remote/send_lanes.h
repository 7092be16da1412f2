// SendLanes: brings batches to the receiver over further lanes of the session.
//
//   driver --Put--> queue --> whichever lane has room: WRITE, Batch --> the buffer is free again
//
// Batches leave the queue in order, and arrive in any. The driver takes some for the first lane. A
// lane carries none before the receiver has said where the ring is reached on it (Welcome).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tools/copy/remote/lane_threads.h"
#include "tools/copy/remote/send_crew.h"
#include "transport/base/event_fd.h"

namespace rdfs::copy {

// The WRITEs of batches that a lane has under way.
class BatchesUnderWay {
 public:
  using Release = std::function<void(std::uint32_t buffer)>;

  // WRITEs one from `memory` into its slot of the ring that `to` names, and tells of it. Its buffer
  // is released when it may be used again.
  Status Send(const SendCrew::Batch& batch, Talk& talk, const transport::MemoryRegion& memory,
              const Welcome& to, const Release& release);
  // Of one of these; false for any other.
  bool Done(const transport::Completion& completion, const Release& release);
  [[nodiscard]] std::size_t count() const { return in_flight_.size(); }

 private:
  struct InFlight {
    transport::Ticket ticket;
    std::uint32_t buffer;
  };
  std::vector<InFlight> in_flight_;
};

class SendLanes {
 public:
  struct Settings {
    const transport::MemoryRegion* memory = nullptr;  // of the buffers; outlives this
    std::uint32_t slot_bytes = 0, slots = 0;          // of the ring
    BatchesUnderWay::Release release;                 // any thread
  };
  static Result<std::unique_ptr<SendLanes>> Create(Settings settings);
  SendLanes(const SendLanes&) = delete;
  SendLanes& operator=(const SendLanes&) = delete;

  Status Add(std::unique_ptr<transport::Connection> lane) { return threads_.Add(std::move(lane)); }
  // There is a lane that carries.
  [[nodiscard]] bool ready() const { return ready_; }
  // For which the receiver has a free slot. Never blocks.
  void Put(const SendCrew::Batch& batch);
  // The next that no lane has taken.
  std::optional<SendCrew::Batch> Take();
  // So many WRITEs at a time for a lane: what is on its way across a long distance.
  static constexpr std::size_t kMostUnderWay = 8;
  // See LaneThreads.
  [[nodiscard]] Status status() const { return threads_.status(); }
  void Stop() { threads_.Stop(); }

 private:
  SendLanes(Settings settings, EventFd queued);
  Status Drive(Talk& talk, bool& counts);
  // What one lane is doing.
  struct Carrying {
    std::optional<Welcome> ring;  // once it may carry
    BatchesUnderWay batches;
    // As many as it may have. One more with each that has arrived, as TCP's own window grows
    // meanwhile: all others wait for what a slow lane has taken.
    std::size_t most = 2;

    [[nodiscard]] bool has_room() const { return ring && batches.count() < most; }
  };
  Status OnMessage(MessageType type, ByteSpan message, Carrying& lane);

  const Settings settings_;
  const EventFd queued_;  // readable while queue_ has something
  std::atomic<bool> ready_{false};
  std::mutex mutex_;
  std::deque<SendCrew::Batch> queue_;  // under mutex_
  LaneThreads threads_;                // last: ends first
};

}  // namespace rdfs::copy
