// Relay: passes on, to the receivers behind this one, what this one receives: a thread that sends
// from a pipe in which the records are put in their order.
//
//   ReceiveCrew --Write--> pipe --> thread: Deliver --> the next receiver
//
// Holes go through it as such, so that files behind us are as sparse as the first one.
// When the next receiver is lost, the one behind it gets the stream from us, with what has been
// passed on already out of our own file. What else fails behind us ends the relay and nothing else:
// further bytes are dropped, and Finish says who has not got it. Used by one thread at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/pipe/send/delivery.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"

namespace rdfs::pipe {

class Relay {
 public:
  // `options` say where to, as of Deliver. Starts at once: the next receiver is awaited meanwhile.
  // `resumes`: StartAt will be called; else the stream comes from its beginning on.
  static Result<std::unique_ptr<Relay>> Create(SendOptions options, bool resumes);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  // Not finished: the receivers behind us are told that the stream has broken off.
  ~Relay();

  // Before Write: the stream goes on behind the first `have` bytes, which are in `file`; what is
  // written here is there first. The next receiver may have less of it, or other bytes: of one that
  // resumes. `file` is none where our own output is no file.
  Status StartAt(Fd file, std::uint64_t have);
  // Our own output has failed: from now on the file lacks what is written here.
  void ForgetFile();
  // Instead of Finish: the stream ends here. Those behind us are told, and `goes_on`: that somebody
  // else may go on with it, for whom they wait.
  void BreakOff(bool goes_on);
  // Block while the pipe is full; drop the bytes once the relay is over, or `stop` is set.
  void Write(ByteSpan bytes, const StopFlag& stop);
  void WriteHole(std::uint64_t length, const StopFlag& stop);
  // The stream is whole, `length` with its head. Blocks until those behind us have it, or have
  // failed, or `stop` is set.
  std::vector<FailedHop> Finish(std::uint64_t length, const StopFlag& stop);
  // Nobody behind us takes anything any more.
  [[nodiscard]] bool over() const { return over_; }

 private:
  Relay(SendOptions options, std::shared_ptr<Head> head, Fd into, EventFd interrupt)
      : options_(std::move(options)),
        head_(std::move(head)),
        into_(std::move(into)),
        interrupt_(std::move(interrupt)) {}
  void Run(Fd from);
  // Both, one behind the other.
  void Put(ByteSpan head, ByteSpan bytes, const StopFlag& stop);
  void End();
  Fd OpenFile();

  const SendOptions options_;
  const std::shared_ptr<Head> head_;  // null: it does not resume
  Fd into_;
  const EventFd interrupt_;  // ends a Deliver that nobody wants any more
  StopFlag stop_{false};     // of the thread's source
  std::atomic<std::uint64_t> length_{Source::kBrokenOff};  // set before `into_` is closed
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  Fd file_;            // under mutex_: has all that was ever written here; none: nothing has
  bool done_ = false;  // under mutex_
  Delivery delivery_;  // the thread's until done_
  std::thread thread_;
};

}  // namespace rdfs::pipe
