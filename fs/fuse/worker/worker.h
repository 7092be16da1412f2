// Worker: one event loop of a mount. It polls {the FUSE descriptor, its lane, a timer, a wake-up},
// takes requests as long as there are any, and never waits for one: an operation that has been sent
// is parked in its callback, so a blocking lock or a dead server costs nobody else anything.
//
// Requests are read into registered memory of the lane, so that the bytes of a large write are sent
// from where the kernel put them. When no buffer of full size is free, the kernel keeps the next
// request until one is.
//
// It spins for answers and for the next request, each as long as that pays off: who makes the next
// request, and the server, may also be waiting for this very processor. Idle, it sleeps in poll(2).
//
// Everything but Wake and Call belongs to the thread that calls Run; another worker may hand over
// an interrupt.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fs/client/client.h"
#include "fs/fuse/content/buffer_turns.h"
#include "fs/fuse/content/read_ahead.h"
#include "fs/fuse/content/short_reads.h"
#include "fs/fuse/filesystem.h"
#include "fs/fuse/worker/answer_batch.h"
#include "fs/fuse/worker/interrupts.h"
#include "fs/fuse/worker/request.h"
#include "fs/fuse/worker/workers.h"
#include "transport/base/adaptive_spin.h"
#include "transport/base/event_fd.h"
#include "transport/base/processors.h"

namespace rdfs::fs::fuse {

class Worker {
 public:
  // `session` is mounted, its descriptor non-blocking; both outlive the worker. `all` are the
  // workers of the mount, this one among them: an interrupt may be read by another one than its
  // request.
  static Result<std::unique_ptr<Worker>> Create(fuse_session* session, Filesystem& filesystem,
                                                std::unique_ptr<client::Lane> lane, Workers& all);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // Until the mount is gone (unmounted from outside, or Stop on the session). Errors: the FUSE
  // descriptor broke.
  Status Run();
  // Any thread, and signal handlers: Run looks at the session's exit flag again.
  void Wake() const;

  // A worker that cannot keep up with the kernel's requests has a helper: one that takes its share
  // for a while when it is called, and is not woken by requests else, so that it costs nothing
  // while one is enough. `call` says whether there is one. Before Run:
  void set_call_helper(std::function<bool(TimePoint now)> call) { call_helper_ = std::move(call); }
  void set_helps() { helps_ = true; }
  // To a helper; any thread.
  void Call(TimePoint now) {
    duty_ends_ = now + kDuty;
    if (off_duty_.exchange(false)) Wake();
  }

  // ---- for Request and the operations ----------------------------------------------------------
  // The worker that is running on this thread.
  static Worker& Current();
  [[nodiscard]] client::Lane& lane() { return *lane_; }
  [[nodiscard]] Filesystem& filesystem() { return filesystem_; }
  [[nodiscard]] OpenAhead& open_ahead() { return open_ahead_; }
  [[nodiscard]] ReadAhead& read_ahead() { return read_ahead_; }
  [[nodiscard]] bool reads_ahead() const {
    return !helps_ && filesystem_.options.prefetch_kib != 0U;
  }
  // Two workers would read ahead of each other's requests.
  [[nodiscard]] bool is_helped() const { return lane_->Now() < helped_until_; }
  // A few who read from front to back always have something to ask for, and no helper makes them
  // faster: where they are most of all, none is called.
  void ReadsOn() {
    if (read_ahead_.streams() <= kFewStreams) in_a_row_ = std::max(in_a_row_ - 2, 0);
  }
  [[nodiscard]] const Message& current_message() const { return current_; }
  Message TakeCurrentMessage() { return std::move(current_); }
  // When a request first came to wait, or now; and of which epoch the server was that last knew a
  // node of it no more.
  struct Waits {
    TimePoint since;
    std::uint64_t stale_at = 0;
    bool counted = false;    // a read: SequentialReader knows it
    bool in_order = false;   // a lock: it has waited for the closes before it
    TimePoint for_buffer{};  // a read: since when; none: it never has
  };
  // Takes the message up again when `is_over`, which is asked in each turn, says so. `waits`: of
  // its request, as the others have them.
  void Postpone(Message message, const Waits& waits, std::function<bool()> is_over);
  // A read's, if it is its turn to have one.
  std::optional<client::Buffer> TakeBuffer(std::uint64_t unique, std::size_t bytes);
  // A read that waits for a buffer.
  void PostponeForBuffer(Message message, const Waits& waits);
  // One that is to be carried out behind these writes.
  void PostponeBehind(const WritesBehind::Wait& wait, Message message, const Waits& waits);
  // A read of pages behind this write to them.
  void PostponeBehindPages(PageWrites::Number write, Message message, const Waits& waits);
  // This write has been answered.
  void WrotePages(std::uint64_t unique);
  // What other workers had read from the kernel before now, they have begun with behind this: but
  // for one that is not let run for long, and for reads that wait in here themselves.
  void LetOthersBegin();
  // Whether no other worker has a close of the file in its hands that the kernel sent before the
  // request that this one is processing, and no server (Unlocks).
  [[nodiscard]] bool IsInOrder(NodeId node) const;
  // One that is to be carried out behind what other workers have of the file in their hands now,
  // but not much later.
  void PostponeForOrder(NodeId node, Message message, const Waits& waits);
  struct Awaited {
    TimePoint until;
    std::function<bool()> is_over;
    std::function<void()> then;
  };
  // Calls `then` when `is_over` says so, and then at the latest; at this worker's end in any case.
  void Await(Awaited awaited) { awaited_.push_back(std::move(awaited)); }
  [[nodiscard]] bool HasWaited(std::uint64_t unique) const {
    return !waits_.empty() && waits_.contains(unique);
  }
  // What is left of the deadline of a request that was postponed.
  [[nodiscard]] std::chrono::milliseconds TimeLeft(std::uint64_t unique) const;
  // The server has answered a write that the kernel was answered before, or the write has given its
  // place back.
  void WroteBehind(WritesBehind::Number number, const Message& message);
  // It ends, and with it the calls that were not answered.
  [[nodiscard]] bool ends() const { return lane_ == nullptr; }
  [[nodiscard]] Waits WaitsOf(std::uint64_t unique) const;
  // Looks a node up again whose request waits so (stale_recovery.h).
  void Recover(NodeId node, Message message, Waits waits);
  void Resume(Message message);
  // The same, and it has waited so.
  void Resume(Message message, const Waits& waits);
  // The request `unique` waits for this call: what an interrupt does to it, interrupts.h says.
  void Track(std::uint64_t unique, const Interrupts::Call& call) {
    begun_.push_back({.unique = unique, .call = call, .first = unique == processed_});
  }
  // The request has been answered.
  void Untrack(std::uint64_t unique);
  // This request changes a directory's names (DirectoryAttributes::Begin gave it this number) or a
  // file's bytes, until it has been answered. At most two nodes a request.
  void SettleWhenAnswered(std::uint64_t unique, NodeId node, std::uint64_t change = 0);
  // Gives an open file up with the next message that goes out, or before the worker sleeps: nobody
  // waits for it, and a message of its own would wake the server for nothing else.
  void ReleaseLater(const client::CallContext& caller, client::OpenPtr file);
  // As that for what is kept open of a node (kept_opens.h), but at once: before a request that
  // takes its name or permissions away.
  void GiveUpKept(NodeId node);
  // This request's open file is kept open: somebody has to look at the time.
  void KeptOne() { kept_one_ = helps_; }
  // Whether the answer to a read of so many bytes goes to the kernel with those of others that are
  // under way: then to AnswerTogether, and no other way.
  [[nodiscard]] bool AnswersTogether(std::size_t length) const {
    return together_ && length <= ShortReads::kLongest;
  }
  void AnswerTogether(std::uint64_t unique, client::Buffer buffer, std::size_t length) {
    answers_.Add(unique, std::move(buffer), length);
  }
  // A request that changes something is about to be carried out, or has been answered.
  void NoteChange(const Message& message, TimePoint now);

 private:
  // About what two wake-ups cost, the server's and ours: an answer that takes longer is slept for.
  static constexpr std::chrono::nanoseconds kLongestForAnswer{100'000};
  // Twice what one costs: a program that does nothing else asks again sooner, though it had to be
  // woken up itself.
  static constexpr std::chrono::nanoseconds kLongestForRequest{80'000};
  // Of a helper, since it was called last.
  static constexpr std::chrono::milliseconds kDuty{10};
  static constexpr std::size_t kFewStreams = 2;

  Worker(fuse_session* session, Filesystem& filesystem, std::unique_ptr<client::Lane> lane,
         Workers& all, EventFd wake, std::size_t request_bytes)
      : session_(session),
        filesystem_(filesystem),
        all_(all),
        wake_(std::move(wake)),
        request_bytes_(request_bytes),
        answer_spin_(kLongestForAnswer),
        request_spin_(kLongestForRequest),
        short_reads_(Processors() == 1),
        answers_(fuse_session_fd(session)),
        gives_way_(!RoomForAChain()),
        read_ahead_(filesystem, *lane, buffer_turns_),
        lane_(std::move(lane)) {}

  // Takes what the kernel has, at most a few at once; returns whether there was anything.
  Result<bool> TakeRequests();
  // Counts the short reads; where nothing else is under way not more than `most_short`.
  Result<bool> TakeRequests(int most_short, int& short_reads);
  // Whether there is a buffer of full size to receive into.
  bool ReadyToReceive();
  // The request of `size` bytes in receive_.
  Message TakeReceived(std::size_t size);
  void Process(Message message);
  // Takes up what the lane has brought; returns whether there was anything.
  bool TakeAnswers();
  void Interrupt(std::uint64_t unique);
  void TrackBegun();
  void LookAtInterrupted();
  void Act(const Interrupts::Decision& decision);
  bool TakeUpAgain();
  // Those that were postponed, as far as what they wait for is over.
  bool TakeUpPostponed();
  // Whether to look for a request right after something was done. The look is a system call; where
  // we are about to sleep, poll(2) tells the same.
  bool LookAgain();
  // Looks again for what is to come; false when it is time to sleep.
  bool Spin();
  void SendReleases();
  void TakeDropped(TimePoint now);
  // Whether it takes requests; a helper does for a while.
  [[nodiscard]] bool OnDuty(TimePoint now) const {
    return !helps_ || (now < duty_ends_.load() && lane_->connected());
  }
  Status Sleep();
  // Whoever is killed waits neither for writes nor for a buffer.
  void LetDyingGo(TimePoint now);
  void LookForDying(TimePoint now);
  // At a server that is slow, and not silent, a turn may come late: a part of its time is left.
  void LeaveTime(std::uint64_t unique);
  // Whoever waits for a write in another worker.
  void WakeWhoWaitsBehind() const;
  // Gives the server what programs were told is written.
  void SendRest();

  fuse_session* session_;
  Filesystem& filesystem_;
  Workers& all_;
  EventFd wake_;
  const std::size_t request_bytes_;
  Message current_;         // being processed
  client::Buffer receive_;  // of full size, for the next request
  std::deque<Message> resumed_;
  struct Postponed {
    Message message;
    std::function<bool()> is_over;
  };
  std::deque<Postponed> postponed_;
  std::deque<Awaited> awaited_;
  std::unordered_map<std::uint64_t, Waits> waits_;    // by request, of those, or stale
  TimePoint next_look_for_dying_ = TimePoint::max();  // none while nobody waits
  // Odd from before a request is read until it has been processed.
  std::atomic<std::uint64_t> request_turns_{0};
  std::atomic<bool> lets_begin_ = false;             // it is in LetOthersBegin
  TimePoint next_look_at_order_ = TimePoint::max();  // none while nobody waits for it
  std::atomic<bool> waits_behind_ = false;           // for writes: other workers wake us
  struct Released {
    client::CallContext caller;
    client::OpenPtr file;
  };
  std::vector<Released> released_;
  OpenAhead open_ahead_;
  struct Changing {
    std::array<NodeId, kMostDirectoriesTold> nodes{};
    std::array<std::uint64_t, kMostDirectoriesTold> changes{};
    std::size_t count = 0;
  };
  std::unordered_map<std::uint64_t, Changing> changing_;  // by request
  // Calls of this turn, which may be over before it is: interrupts_ knows them from its end on.
  struct Begun {
    std::uint64_t unique = 0;
    Interrupts::Call call;
    bool first = false;  // of its request: interrupts_ knows none of it
  };
  std::vector<Begun> begun_;
  std::uint64_t processed_ = 0;  // the request that libfuse has been given; 0: none
  std::mutex interrupts_mutex_;  // another worker may read an interrupt of our request
  Interrupts interrupts_{IsDying};
  std::atomic<bool> interrupted_ = false;  // there is one to look at again
  bool look_ = true;                       // for a request, in the next turn
  bool drained_ = false;                   // the last look has found that there is none more
  int in_a_row_ = 0;                       // requests that were there when we looked, since then
  std::function<bool(TimePoint)> call_helper_;  // whether there is one
  TimePoint helped_until_{};
  bool helps_ = false;
  bool kept_one_ = false;               // since it slept, where another worker looks at the time
  std::atomic<TimePoint> duty_ends_{};  // of a helper
  std::atomic<bool> off_duty_ = false;  // it sleeps until it is called
  int turns_blind_ = 0;                 // since then
  AdaptiveSpin answer_spin_;
  AdaptiveSpin request_spin_;
  ShortReads short_reads_;
  AnswerBatch answers_;
  bool together_ = false;     // answers to short reads go into answers_
  const bool gives_way_;      // who spins, to the program and the server
  BufferTurns buffer_turns_;  // of the lane's
  ReadAhead read_ahead_;
  std::unique_ptr<client::Lane> lane_;  // last: its destructor runs callbacks, which use the rest
};

}  // namespace rdfs::fs::fuse
