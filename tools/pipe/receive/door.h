// Door: the upper layer of rdrecv's acceptor. It lets one sender in, and nobody behind it.
//
// Admit, OnLane and OnSessionEnd come on the acceptor's thread; Await on the caller's. A sender
// that proved the key but brings no lane (it required a transport that does not work, or has
// stopped) makes room for the next; so does, before that, whoever had a wrong key. The domain is
// made when a sender is admitted and has no memory in it until the receiver puts it there.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/pipe/wire/protocol.h"
#include "transport/base/event_fd.h"
#include "transport/session/acceptor.h"

namespace rdfs::pipe {

// A sender that has been let in.
struct Guest {
  std::unique_ptr<transport::Connection> lane;
  std::shared_ptr<transport::Domain> domain;
  transport::session::Secret32 exporter;
  Hello hello;
  bool relays = false;  // it is a receiver itself, and passes the stream on: by RelayKey
};

struct DoorOptions {
  bool require_sealed = false;  // senders that do not encrypt are refused
  bool passes_on = true;        // else so are those that want their stream to go further
  std::optional<transport::Kind> require{};     // all that is offered, where that is one transport
  std::chrono::milliseconds lane_limit{20000};  // who has been let in brings a lane by then
};

class Door final : public transport::SessionHost {
 public:
  static Result<std::unique_ptr<Door>> Create(DoorOptions options);

  Result<transport::Admission> Admit(const transport::SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<transport::Connection> lane) override;
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override;

  // Blocks until a sender is in. `deadline`: for one to come, that then has `lane_limit` to bring
  // its lane. `interrupts`: a descriptor that is readable when the user wants to stop, or -1.
  // Errors: kDeadlineExceeded, kErrno EINTR.
  Result<Guest> Await(int interrupts, std::optional<Deadline> deadline);
  // Lets another one in, now that the one whom Await gave is gone.
  void Reopen();

 private:
  Door(DoorOptions options, EventFd wake) : options_(options), wake_(std::move(wake)) {}
  // Under mutex_.
  void MakeRoom();

  const DoorOptions options_;
  const EventFd wake_;
  std::mutex mutex_;
  std::optional<std::uint64_t> session_;  // under mutex_: whose lane is awaited, or has come
  TimePoint lane_by_{};                   // under mutex_: when there is such a session
  Guest guest_;                           // under mutex_
  bool taken_ = false;                    // under mutex_
};

}  // namespace rdfs::pipe
