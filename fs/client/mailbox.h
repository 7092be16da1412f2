// Mailbox: what other threads tell a lane, and how they wake its worker.
//
// Shared by the lane and the mount's thread, so that a letter to a lane that has gone is simply
// dropped. Any thread puts; the lane's thread takes. The event gets readable with a letter; a
// look without one costs one atomic load.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "fs/client/open_file.h"
#include "fs/client/session_state.h"
#include "fs/protocol.h"
#include "transport/base/event_fd.h"
#include "transport/transport.h"

namespace rdfs::fs::client {

// A connection that has been attached: what a lane needs to work on it.
struct LaneLink {
  std::unique_ptr<transport::Connection> connection;
  std::uint64_t session = 0;
  std::uint64_t epoch = 0;
  std::uint64_t incarnation = 0;  // Mount's count of sessions that differ
  std::chrono::milliseconds lease{};
  transport::RemoteRegion staging;
  std::uint32_t slot_bytes = 0;
  std::uint32_t slots = 0;
  std::vector<ArenaMessage> arenas;             // those that came while it was attached
  std::vector<std::vector<std::byte>> recalls;  // the same
  // Known to the server again; their locks it has yet to give, when its grace period is over.
  std::vector<OpenPtr> without_locks;
};

class Mailbox {
 public:
  static Result<std::shared_ptr<Mailbox>> Create();

  struct Letters {
    bool connection_destroyed = false;  // the one that the lane had given up
    std::unique_ptr<LaneLink> link;
    std::vector<std::uint64_t> cancels;
  };
  void PutDestroyed();
  void PutLink(std::unique_ptr<LaneLink> link);
  void PutCancel(std::uint64_t ticket);
  void Wake();

  [[nodiscard]] bool pending() const { return pending_.load(std::memory_order_acquire); }
  Letters Take();
  [[nodiscard]] int fd() const { return event_.fd(); }

 private:
  explicit Mailbox(EventFd event) : event_(std::move(event)) {}

  const EventFd event_;
  std::atomic<bool> pending_{false};
  std::mutex mutex_;
  Letters letters_;  // under mutex_
};

}  // namespace rdfs::fs::client
