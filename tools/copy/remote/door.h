// Door: the upper layer of the far end's acceptor. It lets the one caller in that started it, with
// one lane and perhaps others, to move to or to carry batches. A caller that sends another far end
// here says first what that one may ask for, and is told where we listen.
//
// Admit, OnLane, OnSessionEnd and OnStreamEnd come on the acceptor's thread; the rest on another
// one. The domain is made when the caller is admitted and has no memory in it until a sender or
// receiver puts it there.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/copy/remote/wire.h"
#include "transport/base/event_fd.h"
#include "transport/session/acceptor.h"

namespace rdfs::copy {

struct Guest {
  std::unique_ptr<transport::Connection> lane;
  std::shared_ptr<transport::Domain> domain;
};

class Door final : public transport::SessionHost {
 public:
  static Result<std::unique_ptr<Door>> Create();
  void set_port(std::uint16_t port);
  // Whether the task may be done: any of the caller's, of another far end the one that it is to
  // give. Errors: kProtocolError.
  [[nodiscard]] Status Check(const Task& task) const;

  Result<transport::Admission> Admit(const transport::SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<transport::Connection> lane) override;
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override;
  void OnStreamEnd() override;

  // Blocks until the caller's lane is there. `interrupts`: as pipe::CheckInterrupt, or -1. Errors:
  // kDeadlineExceeded; kDisconnected when the caller went without a lane; an interrupt.
  Result<Guest> Await(int interrupts, Deadline deadline);
  // The next of the lanes that came behind that one, or null. Never blocks.
  std::unique_ptr<transport::Connection> TakeOther();

 private:
  explicit Door(EventFd wake) : wake_(std::move(wake)) {}
  void Wake() const;
  void Leave();

  const EventFd wake_;
  mutable std::mutex mutex_;
  std::uint16_t port_ = 0;  // under mutex_, as what follows
  std::optional<TaskDigest> only_;
  bool admitted_ = false;
  bool gone_ = false;
  Guest guest_;
  std::deque<std::unique_ptr<transport::Connection>> others_;
  std::size_t lanes_ = 0;  // that came
};

}  // namespace rdfs::copy
