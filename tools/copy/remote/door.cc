#include "tools/copy/remote/door.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tools/pipe/wire/lane_loop.h"

namespace rdfs::copy {
namespace {

// The one that it speaks on, the one that it moves to, and those that carry batches.
constexpr std::size_t kMostLanes = 2 + kMostFurtherLanes;

}  // namespace

Result<std::unique_ptr<Door>> Door::Create() {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::unique_ptr<Door>(new Door(std::move(wake)));
}

void Door::Wake() const { wake_.Ring(); }

void Door::set_port(std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  port_ = port;
}

Status Door::Check(const Task& task) const {
  const std::lock_guard lock(mutex_);
  if (!only_) return {};
  RDFS_ASSIGN_OR_RETURN(const TaskDigest given, DigestOf(task));
  if (given == *only_) return {};
  return {Code::kProtocolError,
          "the other machine's rdcp asks for another copy than the calling one: nothing was done"};
}

Result<transport::Admission> Door::Admit(const transport::SessionRequest& request) {
  if (request.service == kMeetService) {
    RDFS_ASSIGN_OR_RETURN(const TaskDigest only, DecodeMeet(request.request));
    const std::lock_guard lock(mutex_);
    if (only_ || admitted_) return Status(Code::kBusy, "this rdcp has its caller already");
    only_ = only;
    return transport::Admission{.domain = transport::Domain::Create("meet"),
                                .grant = EncodePort(port_),
                                .context = nullptr};
  }
  if (request.service != kServiceName) {
    return Status(Code::kNotFound,
                  "this is the far end of an rdcp, and no '" + request.service + "' server");
  }
  RDFS_RETURN_IF_ERROR(CheckHello(request.request));
  const std::lock_guard lock(mutex_);
  if (admitted_) return Status(Code::kBusy, "this rdcp has its caller already");
  admitted_ = true;
  guest_.domain = transport::Domain::Create("copy");
  return transport::Admission{.domain = guest_.domain, .grant = {}, .context = nullptr};
}

void Door::OnLane(std::uint64_t, const std::shared_ptr<void>&,
                  std::unique_ptr<transport::Connection> lane) {
  {
    const std::lock_guard lock(mutex_);
    if (!admitted_ || lanes_ == kMostLanes) return;
    if (++lanes_ == 1) {
      guest_.lane = std::move(lane);
    } else {
      others_.push_back(std::move(lane));
    }
  }
  Wake();
}

void Door::OnSessionEnd(std::uint64_t, const std::shared_ptr<void>&) { Leave(); }

// ssh's, by which the caller opens its session: it may go before it has one.
void Door::OnStreamEnd() { Leave(); }

void Door::Leave() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  Wake();
}

std::unique_ptr<transport::Connection> Door::TakeOther() {
  const std::lock_guard lock(mutex_);
  if (others_.empty()) return nullptr;
  auto lane = std::move(others_.front());
  others_.pop_front();
  return lane;
}

Result<Guest> Door::Await(int interrupts, Deadline deadline) {
  for (;;) {
    std::array<pollfd, 2> entries{pollfd{wake_.fd(), POLLIN, 0}, pollfd{interrupts, POLLIN, 0}};
    const int timeout_ms = PollTimeoutMs(deadline, BootClock::now());
    if (poll(entries.data(), entries.size(), timeout_ms) < 0 && errno != EINTR) {
      return Status::FromErrno(errno, "poll");
    }
    RDFS_RETURN_IF_ERROR(pipe::CheckInterrupt(interrupts));
    {
      const std::lock_guard lock(mutex_);
      if (guest_.lane != nullptr) return std::move(guest_);
      if (gone_) return Status(Code::kDisconnected, "the calling rdcp is gone");
    }
    if (BootClock::now() >= deadline) {
      return Status(Code::kDeadlineExceeded, "the calling rdcp opened no lane in time");
    }
  }
}

}  // namespace rdfs::copy
