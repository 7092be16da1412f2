// MountImpl: Mount as the lanes see it. See client.h for what it promises; the thread is here.
//
// Locks, in the order in which they may be taken: session_mutex_ (held while connecting, which
// blocks), mutex_ (never held across anything that blocks), opens_mutex_.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "fs/client/client.h"
#include "fs/client/lane_counters.h"
#include "fs/client/mailbox.h"
#include "fs/client/session_state.h"
#include "fs/client/timed_mutex.h"

namespace rdfs::fs::client {

class Attacher;
class LaneImpl;

class MountImpl final : public Mount {
 public:
  MountImpl(MountOptions options, SessionState state);
  ~MountImpl() override;
  // Dials for the first time, and starts the thread.
  Status Start(Deadline deadline);

  Result<std::unique_ptr<Lane>> OpenLane(Deadline deadline) override;
  Result<std::unique_ptr<Lane>> OpenLaneBeside(Deadline deadline) override;
  void SetPathFinder(PathFinder finder) override { path_finder_ = std::move(finder); }
  void SetRecallHandler(RecallHandler handler) override { on_recall_ = std::move(handler); }
  [[nodiscard]] MountInfo info() const override;
  [[nodiscard]] Counters counters() const override;
  [[nodiscard]] Status health() const override;

  // ---- For lanes; any thread --------------------------------------------------------------------
  [[nodiscard]] const MountOptions& options() const { return options_; }
  [[nodiscard]] const Clock& clock() const { return *options_.clock; }
  [[nodiscard]] const std::shared_ptr<transport::Domain>& domain() const { return domain_; }
  SequenceCounter& sequences() { return sequences_; }
  [[nodiscard]] const RecallHandler& on_recall() const { return on_recall_; }
  [[nodiscard]] const PathFinder& path_finder() const { return path_finder_; }

  // The lane gives its connection up: it is destroyed, the lane told so, and connected anew.
  // `stale`: the session itself must be made anew.
  void Lost(std::uint32_t lane, std::unique_ptr<transport::Connection> connection,
            std::uint64_t incarnation, bool stale);
  // Whether no other lane is open.
  [[nodiscard]] bool IsLast(std::uint32_t lane) const;
  // The lane is about to go. Whether it is the last one: of several that go at a time, one is.
  [[nodiscard]] bool Leave(std::uint32_t lane);
  // The lane is gone.
  void Closed(std::uint32_t lane);
  // Moves when connections of an earlier count are of no use any more.
  [[nodiscard]] std::uint64_t incarnation() const {
    return incarnation_.load(std::memory_order_acquire);
  }

  // The state that all open files of an inode share, made when there is none; or null.
  std::shared_ptr<InodeState> InodeFor(const Handle& handle);
  std::shared_ptr<InodeState> FindInode(const Handle& handle);
  static constexpr std::size_t kMostUnsynced = 8192;
  // Something was written to it that is not synced: after the last close, what may be lost with a
  // crash of the server's host is still known to who opens it next. Of the last kMostUnsynced that
  // were written to.
  void KeepUnsynced(const std::shared_ptr<InodeState>& inode);
  // Remembers an open file (with its incarnation), to be reclaimed after a restart.
  void Remember(const OpenPtr& open);

 private:
  struct LaneSeat {
    bool taken = false;
    bool leaving = false;
    Status verbs{};  // why it stays away from verbs
    std::shared_ptr<Mailbox> mailbox;
    std::shared_ptr<LaneCounters> counters;
  };
  struct LostLane {
    std::uint32_t lane = 0;
    std::shared_ptr<Mailbox> mailbox;
    std::unique_ptr<transport::Connection> connection;
  };
  // The cell of the sequence counter for requests that the mount itself sends.
  static constexpr std::size_t kMountCell = SequenceCounter::kCells - 1;
  static_assert(kMaxLanes <= kMountCell);

  // How a lane is connected: Connect or ConnectBeside.
  using Connector = Result<std::unique_ptr<LaneLink>> (MountImpl::*)(std::uint32_t lane,
                                                                     Deadline deadline);
  Result<std::unique_ptr<Lane>> TakeSeat(Connector connect, Deadline deadline);
  Result<std::unique_ptr<LaneImpl>> MakeLane(std::uint32_t number,
                                             const std::shared_ptr<Mailbox>& mailbox,
                                             std::shared_ptr<LaneCounters> counters,
                                             Connector connect, Deadline deadline);
  void Run();
  void DestroyLost(std::unique_lock<std::mutex>& lock);

  // Under session_mutex_:
  Result<std::unique_ptr<LaneLink>> Connect(std::uint32_t lane, Deadline deadline);
  Result<std::unique_ptr<LaneLink>> ConnectOnce(std::uint32_t lane, Deadline deadline);
  Result<std::unique_ptr<LaneLink>> ConnectBeside(std::uint32_t lane, Deadline deadline);
  Result<std::unique_ptr<LaneLink>> MakeLink(std::uint32_t lane,
                                             std::unique_ptr<transport::Connection> connection,
                                             Deadline deadline);
  Result<std::unique_ptr<transport::Connection>> OpenConnection(std::uint32_t lane,
                                                                Deadline deadline);
  Status Redial(Deadline deadline);
  void LoseLocks();
  // For files that nobody syncs, but somebody closes.
  void TellVerifier(std::uint64_t verifier);
  Status ReclaimOpens(LaneLink& link, Deadline deadline);
  Result<std::vector<OpenPtr>> ReclaimOnce(Attacher& attacher, const std::vector<OpenPtr>& opens,
                                           LaneLink& link);

  const MountOptions options_;
  RecallHandler on_recall_;  // as the next
  PathFinder path_finder_;   // set before the first lane, constant from then on
  const std::shared_ptr<transport::Domain> domain_;
  SequenceCounter sequences_;
  std::atomic<std::uint64_t> incarnation_{0};
  std::atomic<bool> session_stale_{false};

  TimedMutex session_mutex_;
  SessionState state_;                           // under session_mutex_
  std::unique_ptr<transport::Session> session_;  // under session_mutex_
  Admission admission_;                          // under session_mutex_
  // Which lane has ssh's stream, where that is all that the session has for data: the others wait.
  std::optional<std::uint32_t> stream_lane_;  // under session_mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;                  // under mutex_
  std::array<LaneSeat, kMaxLanes> seats_;  // under mutex_
  Counters closed_counters_;               // of lanes that are gone; under mutex_
  std::deque<LostLane> lost_;              // under mutex_: connections to destroy
  std::deque<LostLane> waiting_;           // under mutex_: lanes to connect
  MountInfo info_;                         // under mutex_
  std::uint64_t fallbacks_ = 0;            // under mutex_: of earlier sessions
  std::uint64_t session_fallbacks_ = 0;    // under mutex_
  Status health_;                          // under mutex_

  std::mutex opens_mutex_;
  std::unordered_map<Handle, std::weak_ptr<InodeState>, HandleHash> inodes_;  // under opens_mutex_
  std::size_t inodes_swept_at_ = 64;                                          // under opens_mutex_
  std::deque<std::shared_ptr<InodeState>> unsynced_;                          // under opens_mutex_
  std::vector<std::weak_ptr<OpenFile>> opens_;                                // under opens_mutex_
  std::size_t opens_swept_at_ = 64;                                           // under opens_mutex_

  std::thread thread_;  // last: uses all of the above
};

}  // namespace rdfs::fs::client
