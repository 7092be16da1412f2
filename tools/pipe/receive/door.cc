#include "tools/pipe/receive/door.h"

#include <poll.h>

#include <array>
#include <cerrno>

#include "tools/pipe/send/delivery.h"
#include "tools/pipe/wire/lane_loop.h"
#include "transport/base/log.h"

namespace rdfs::pipe {

Result<std::unique_ptr<Door>> Door::Create(DoorOptions options) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::unique_ptr<Door>(new Door(options, std::move(wake)));
}

Result<transport::Admission> Door::Admit(const transport::SessionRequest& request) {
  if (request.service != kServiceName) {
    return Status(Code::kNotFound, "this is rdrecv: it takes a stream from rdsend, and is no '" +
                                       request.service + "' server");
  }
  RDFS_ASSIGN_OR_RETURN(const Hello hello, Hello::Decode(request.request));
  if (options_.require_sealed && !hello.sealed) {
    return Status(Code::kInvalidArgument,
                  "rdrecv was started with --encrypt: give it to rdsend as well");
  }
  if (!options_.passes_on && !hello.forward.empty()) {
    return Status(Code::kInvalidArgument,
                  "a program that passes nothing on receives there: name it last of the hosts");
  }
  const std::lock_guard lock(mutex_);
  if (session_ || taken_) return Status(Code::kBusy, "rdrecv has another sender already");
  session_ = request.session_id;
  lane_by_ = BootClock::now() + options_.lane_limit;
  guest_.domain = transport::Domain::Create("pipe");
  guest_.hello = hello;
  guest_.exporter = request.exporter;
  guest_.relays = request.key_name == kRelayKeyName;
  wake_.Ring();  // Await has a limit now
  return transport::Admission{.domain = guest_.domain, .grant = {}, .context = nullptr};
}

void Door::OnLane(std::uint64_t session_id, const std::shared_ptr<void>&,
                  std::unique_ptr<transport::Connection> lane) {
  {
    const std::lock_guard lock(mutex_);
    if (session_ != session_id || taken_ || guest_.lane != nullptr) return;
    guest_.lane = std::move(lane);
  }
  wake_.Ring();
}

void Door::OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>&) {
  const std::lock_guard lock(mutex_);
  if (session_ != session_id || taken_ || guest_.lane != nullptr) return;
  MakeRoom();
}

void Door::MakeRoom() {
  if (options_.require) {
    LogWarn(
        "a sender with the right key came and went without a stream: {} is required here, and "
        "may not work there; waiting for the next",
        Name(*options_.require));
  } else {
    LogWarn("a sender with the right key came and went without a stream: waiting for the next");
  }
  session_.reset();
  guest_ = Guest{};
  wake_.Ring();  // Await's deadline counts again
}

void Door::Reopen() {
  const std::lock_guard lock(mutex_);
  taken_ = false;
  session_.reset();
  guest_ = Guest{};
}

Result<Guest> Door::Await(int interrupts, std::optional<Deadline> deadline) {
  for (;;) {
    std::optional<Deadline> until = deadline;
    bool in_time = false;
    {
      const std::lock_guard lock(mutex_);
      if (guest_.lane != nullptr) {
        taken_ = true;
        return std::move(guest_);
      }
      if (session_ && BootClock::now() >= lane_by_) MakeRoom();
      // Who was let in before the deadline may bring its lane behind it.
      in_time = session_ && (!deadline || lane_by_ <= *deadline + options_.lane_limit);
      if (in_time) until = lane_by_;
    }
    if (!in_time && deadline && BootClock::now() >= *deadline) {
      return Status(Code::kDeadlineExceeded,
                    "no sender came; check that it uses this host, port and key");
    }
    std::array<pollfd, 2> entries{pollfd{wake_.fd(), POLLIN, 0}, pollfd{interrupts, POLLIN, 0}};
    const int timeout_ms = until ? PollTimeoutMs(*until, BootClock::now()) : -1;
    if (poll(entries.data(), entries.size(), timeout_ms) < 0 && errno != EINTR) {
      return Status::FromErrno(errno, "poll");
    }
    wake_.Drain();
    RDFS_RETURN_IF_ERROR(CheckInterrupt(interrupts));
  }
}

}  // namespace rdfs::pipe
