// ErrorRelay: carries what a child says on its standard error to where ours is at that moment.
//
// A child that has our standard error itself keeps it for its whole life: the pipe of a shell that
// waits for its end, also when we have long given it away for a log. One owner.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::transport::ssh {

class ErrorRelay {
 public:
  static Result<std::unique_ptr<ErrorRelay>> Create();
  ErrorRelay(const ErrorRelay&) = delete;
  ErrorRelay& operator=(const ErrorRelay&) = delete;
  // What has been said by then is carried, as long as somebody takes it within a second; who still
  // holds the other end is not waited for.
  ~ErrorRelay();

  // For the child, until it has been started.
  [[nodiscard]] int child_end() const { return child_end_.get(); }
  void CloseChildEnd() { child_end_.Reset(); }

 private:
  // The thread's, which may have to be left alone with it.
  struct Shared {
    Fd read_end;         // of the pipe
    EventFd stop, over;  // rung when it is to end; and when it has
  };
  ErrorRelay(std::shared_ptr<const Shared> shared, Fd child_end);
  static void Run(const Shared& shared);

  const std::shared_ptr<const Shared> shared_;
  Fd child_end_;
  std::thread thread_;
};

}  // namespace rdfs::transport::ssh
