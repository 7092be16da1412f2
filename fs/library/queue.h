// rdfs_queue: a lane that any thread may use, and the completions of what is under way in it.
//
// One mutex guards it all; callbacks of the lane run under it. Whoever waits drives the lane: it
// polls, spins as long as that pays, arms, and sleeps without the mutex ("leads"). One thread leads
// at a time, the others wait for it, and whoever hands something to the wire meanwhile wakes it.
// Who polls again and again lets go of the mutex when others want it: it would not be theirs
// otherwise.
//
//   a thread in rdfs_X or rdfs_poll   leads until its own has come
//   the keeper (our own thread)       leads when nobody has used the queue for a moment, so that
//                                     recalls and heartbeats are answered, and always once the
//                                     program sleeps in poll(2) itself; steps back for a program's
//                                     thread otherwise
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "fs/library/export.h"
#include "transport/base/adaptive_spin.h"
#include "transport/base/event_fd.h"
#include "transport/base/processors.h"

namespace rdfs::fs::library {

// One operation of the program's, from its beginning to its completion. Shared by the callbacks of
// its calls; under the queue's mutex.
struct Operation {
  std::string what;  // "reading 'a/b'"
  void* user = nullptr;
  bool waited_for = false;  // by a thread: there is no completion
  bool closes = false;      // begins however much is under way: else its file would stay open
  bool over = false;
  Status status;
  std::int64_t count = 0;
  std::unique_ptr<rdfs_file> file;
  std::unique_ptr<rdfs_listing> listing;
  std::string text;  // of readlink
};
using OperationPtr = std::shared_ptr<Operation>;

}  // namespace rdfs::fs::library

struct rdfs_buffer {
  rdfs_queue& queue;
  std::shared_ptr<rdfs::fs::client::Buffer> memory;  // operations share it
};

struct rdfs_queue {
 public:
  using Operation = rdfs::fs::library::Operation;
  using OperationPtr = rdfs::fs::library::OperationPtr;
  // Issues the first call of an operation. Runs under the mutex.
  using Start = std::function<void(const OperationPtr&)>;

  static rdfs::Result<std::unique_ptr<rdfs_queue>> Open(rdfs_export& owner);
  ~rdfs_queue();

  // 0, or a negative errno when it was not begun. `start` and what it holds end under the mutex.
  int Submit(std::string what, void* user, Start start, bool closes);
  // Begins one that a thread waits for. Null when it was not begun (EAGAIN).
  OperationPtr BeginToWait(std::string what, const Start& start, bool closes = false);
  void WaitFor(const Operation& operation);
  // A negative errno with its sentence kept for rdfs_sentence.
  int Refuse(const std::string& what, int errno_value);
  int Report(const Operation& operation);

  int Poll(rdfs_completion* completions, int most, int timeout_ms);
  int CompletionFd();
  [[nodiscard]] const char* sentence() const;

  rdfs_buffer* Allocate(std::size_t bytes);
  void Free(rdfs_buffer* buffer);
  // Memory for a piece of rdfs_pread, and back. Null when there is none, or others wait for it;
  // with `wait`, which is for threads that hold none of it, when the program has all of it. Who
  // wait get it in the order in which they came, so that each waits for so many answers at most.
  // LargestLoan: what waiting always gets; 0: it may get nothing.
  std::shared_ptr<rdfs::fs::client::Buffer> Lend(std::size_t bytes, bool wait);
  void GiveBack(std::shared_ptr<rdfs::fs::client::Buffer>& memory);
  [[nodiscard]] std::size_t LargestLoan() const;

  // ---- under the mutex: for what starts and ends operations -------------------------------------
  void End(const OperationPtr& operation, rdfs::Status status, std::int64_t count = 0);
  [[nodiscard]] rdfs::fs::client::Lane& lane() { return *used_lane_; }
  [[nodiscard]] rdfs_export& owner() { return owner_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  rdfs_queue(rdfs_export& owner, std::unique_ptr<rdfs::fs::client::Lane> lane, rdfs::EventFd wake,
             rdfs::EventFd completed);

  // The mutex.
  [[nodiscard]] Lock Hold() const;
  // Lets others have it who want it, if any.
  void LetIn(Lock& lock);
  // Tells those that wait in changed_, who want the mutex from then on; under it.
  void Wake();
  void Await(Lock& lock, std::chrono::nanoseconds most);
  bool Begin(const OperationPtr& operation, const Start& start);
  std::shared_ptr<rdfs::fs::client::Buffer> LendNow(std::size_t bytes);
  // A thread that waits for a piece. It gets it while it sleeps, so that nobody waits behind it for
  // memory that there is.
  struct Borrower {
    std::size_t bytes;
    std::shared_ptr<rdfs::fs::client::Buffer> memory{};  // null: the program has all of it
    bool served = false;
  };
  // Those that there is memory for.
  void ServeBorrowers();
  // A step towards what somebody waits for; may release the mutex, and return with nothing done.
  void Turn(Lock& lock, rdfs::Deadline deadline);
  void Sleep(Lock& lock, rdfs::Deadline deadline);
  // Polls the lane, which nobody leads.
  void Look();
  [[nodiscard]] bool IsLookDue() const;
  void Enter();
  void Kick() const;
  void Keep();
  void HandOut(rdfs_completion& out);
  void Discard(Operation& operation);

  rdfs_export& owner_;
  const rdfs::EventFd wake_;       // the leader is to look again
  const rdfs::EventFd completed_;  // readable while done_ holds something
  mutable std::mutex mutex_;
  mutable std::atomic<std::size_t> wanted_{0};  // threads that wait for it; a hint
  std::condition_variable changed_;             // something came, or nobody leads any more
  std::size_t asleep_ = 0;                      // in changed_
  std::uint64_t wakes_ = 0;
  bool polled_ = false;  // since somebody was let in
  std::condition_variable keeper_;
  bool leading_ = false;         // a thread sleeps on the lane's descriptor
  bool keeper_leads_ = false;    // it is the keeper
  bool program_sleeps_ = false;  // in a poll(2) of its own: CompletionFd was called
  bool stopping_ = false;
  std::uint64_t uses_ = 0;
  rdfs::TimePoint looked_{};  // at the lane, for the last time or one of the last
  std::size_t under_way_ = 0;
  std::deque<OperationPtr> done_;
  std::deque<std::string> handed_out_;  // sentences of the last Poll
  std::string sentence_;
  std::unordered_map<rdfs_buffer*, std::unique_ptr<rdfs_buffer>> buffers_;
  std::shared_ptr<rdfs::fs::client::Buffer> spare_;
  bool spare_lent_ = false;
  std::size_t lent_ = 0;  // pieces, spare_ included
  std::deque<Borrower*> borrowers_;
  rdfs::AdaptiveSpin spin_;
  const bool gives_way_ = !rdfs::RoomForAChain();  // who spins, to the server
  std::unique_ptr<rdfs::fs::client::Lane> lane_;
  // The same, also while it is destroyed and its callbacks would go on with something.
  rdfs::fs::client::Lane* const used_lane_;
  std::thread thread_;  // Keep
};
