// Handover: bytes between a program's thread, which waits, and a stream's driver, which does not:
// what a pipe is between two processes, copied once, from or into the program's own memory.
//
// One direction. Either the program Writes and the driver Takes, or the driver Puts and the program
// Reads. Who gives says that it was all (End); either may say why it goes no further (Break). Any
// thread is the program's, those of one handover take turns; the driver is one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/base/bytes.h"
#include "transport/base/event_fd.h"
#include "transport/base/status.h"

namespace rdfs::pipe {

class Handover {
 public:
  static Result<std::shared_ptr<Handover>> Create();
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // The program's. Waits until the driver has all of `bytes`; else why it never will.
  Status Write(ByteSpan bytes);
  // The program's. Waits for some bytes: how many are in `room`, which is not empty; 0: the end.
  // Errors: why none will come, and EAGAIN: none came within `limit`.
  Result<std::size_t> Read(MutableByteSpan room,
                           std::optional<std::chrono::milliseconds> limit = std::nullopt);

  // The driver's. How many bytes are in `room`; 0: the end; nullopt: none yet, see fd.
  std::optional<std::size_t> Take(MutableByteSpan room);
  // The driver's. How many bytes a program has taken; 0: none is there for them yet, see fd.
  std::size_t Put(ByteSpan bytes);
  // Becomes readable when Take or Put has something to do again.
  [[nodiscard]] int fd() const { return wake_.fd(); }

  void End();
  // The first reason counts. An ok one: the stream is over, and went well.
  void Break(Status why);

 private:
  explicit Handover(EventFd wake) : wake_(std::move(wake)) {}
  // Under mutex_.
  [[nodiscard]] Status WhyOver() const;
  void Wake() const;
  void Sleep() const;

  const EventFd wake_;
  std::mutex turn_;   // the program's threads; taken before mutex_
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  ByteSpan offered_;        // by Write, what is left of it
  MutableByteSpan wanted_;  // by Read
  std::size_t put_ = 0;     // into what was wanted
  bool ended_ = false;
  std::optional<Status> over_;
};

}  // namespace rdfs::pipe
