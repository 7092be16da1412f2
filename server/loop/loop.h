// Loop: one thread that serves many lanes.
//
// Each round polls the lanes that have something, one session after the other (turns.h), runs their
// requests to completion (what may block goes through the loop's FileIo), and hands the answers
// over in one Flush a lane. With nothing to do it spins for as long as that pays off, then arms its
// lanes and sleeps in epoll: an idle loop makes no system call. A lane whose peer does not read its
// answers is left alone until it does.
//
// Owned by the Service. AddLane, Post, After, times and Stop are for any thread; the rest is the
// loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/core.h"
#include "server/loop/answer_times.h"
#include "server/loop/conn_lane.h"
#include "server/loop/file_io.h"
#include "server/loop/scheduler.h"
#include "server/loop/turns.h"
#include "server/ops/dispatch.h"
#include "transport/base/adaptive_spin.h"
#include "transport/base/fd.h"
#include "transport/transport.h"

namespace rdfs::server {

class Loop final : public Scheduler {
 public:
  // Called on the loop's thread when a lane has gone.
  using LaneGone = std::function<void(const SessionPtr&)>;

  // Starts the thread. `core` comes later than the loop where it needs a Scheduler: see Start.
  static Result<std::unique_ptr<Loop>> Create(unsigned index);
  // Stops and joins; lanes end.
  ~Loop() override;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Begins to serve; once, before the first lane.
  void Start(Core& core, LaneGone lane_gone);
  void Stop();
  // Waits for the thread's end; after Stop.
  void Join();

  void AddLane(SessionPtr session, std::unique_ptr<transport::Connection> connection);
  // Ends every lane of a session that is over; for Remove.
  void DropLanes(std::uint64_t session, const Status& why);
  void Post(std::function<void()> task);
  void After(std::chrono::nanoseconds delay, std::function<void()> task) override;
  // How long its answers have taken. Any thread.
  [[nodiscard]] const AnswerTimes& times() const { return times_; }
  [[nodiscard]] std::size_t lanes() const { return lane_count_.load(std::memory_order_relaxed); }

 private:
  using LaneEntry = std::shared_ptr<ConnLane>;
  Loop(std::unique_ptr<FileIo> io, Fd epoll, unsigned index);

  void Run(Core& core);
  bool ServeLanes();
  void FlushAnswers();
  // Answers what is under way when the loop stops; what takes too long is left unanswered.
  void FinishIo();
  // How many messages it took, at most `most`, and what the lane's READs were worth beside them;
  // what ended the lane counts as one.
  std::size_t Serve(const LaneEntry& lane, std::size_t most);
  // Notes when the loop has carried something for a lane itself; returns what that was worth.
  std::size_t Carried(std::size_t like_messages);
  // The end of a lane whose peer is dead (kDeadlineExceeded) or hostile (kProtocolError) waits for
  // nobody.
  void Remove(const LaneEntry& lane, const Status& why);
  // In all for as long as one may take, or a little longer.
  void RemoveTogether(const std::vector<LaneEntry>& lanes, const Status& why);
  void RemoveAll();
  // Ends lanes of which nothing was heard for longer than a session's lease, and looks again later
  // while there are any: an idle queue pair does not notice that its peer is gone.
  void RemoveSilent();
  void LookForSilentLater();
  // `now` is the round's: what the clock said when the last messages had been served, or behind
  // that.
  bool RunTimers(TimePoint now);
  bool Idle(TimePoint now);
  void Sleep(TimePoint now);
  void WaitBeside(const std::vector<LaneEntry>& stuck, TimePoint now);
  void LookAround(TimePoint now);
  void Wait(int timeout_ms);
  void Woken(int fd);
  void AddOnLoop(const SessionPtr& session, std::unique_ptr<transport::Connection> connection);

  const std::unique_ptr<FileIo> io_;
  const Fd epoll_;
  const unsigned index_;
  const bool gives_way_;  // who spins, to the others of a chain of requests
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> lane_count_{0};
  LaneGone lane_gone_;

  // The loop's thread only.
  std::unique_ptr<Dispatcher> dispatcher_;
  Core* core_ = nullptr;
  std::unordered_map<int, LaneEntry> lanes_;        // by descriptor
  Turns<LaneEntry> active_;                         // not armed: polled each round
  std::vector<std::weak_ptr<ConnLane>> unflushed_;  // sent to outside of their own turn
  AnswerTimes times_;
  unsigned rounds_ = 0;
  TimePoint looked_{};     // at the clock, in this round; none: not yet
  TimePoint last_look_{};  // at what sleeps in epoll; none: since a sleep
  bool io_ready_ = true;
  std::multimap<TimePoint, std::function<void()>> timers_;
  bool looks_for_silent_ = false;  // it is among them
  AdaptiveSpin spin_;
  std::thread thread_;
};

}  // namespace rdfs::server
