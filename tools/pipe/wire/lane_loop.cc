#include "tools/pipe/wire/lane_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace rdfs::pipe {

using transport::Completion;
using transport::Connection;
using std::chrono_literals::operator""s;

namespace {

// The most of `others` below.
constexpr std::size_t kMostOthers = 4;

// Until `lane` or one of `others` is readable, or `writable` takes something. -1 is nothing.
Status Await(int lane, std::span<const int> others, Deadline deadline, int writable) {
  std::array<pollfd, kMostOthers + 2> entries{};
  std::size_t count = 0;
  entries[count++] = {.fd = lane, .events = POLLIN, .revents = 0};
  entries[count++] = {.fd = writable, .events = POLLOUT, .revents = 0};
  for (const int fd : others) entries[count++] = {.fd = fd, .events = POLLIN, .revents = 0};
  const int timeout_ms = PollTimeoutMs(deadline, BootClock::now());
  if (poll(entries.data(), count, timeout_ms) < 0 && errno != EINTR) {
    return Status::FromErrno(errno, "poll");
  }
  return {};
}

}  // namespace

Status SleepUntil(Connection& lane, std::span<const int> others, Deadline deadline, int writable) {
  RDFS_ASSIGN_OR_RETURN(const bool armed, lane.Arm());
  if (!armed) return {};
  return Await(lane.fd(), others, deadline, writable);
}

void Part(Connection& lane) {
  const Deadline deadline = DeadlineAfter(2s);
  std::array<Completion, 16> completions;
  if (!lane.Flush().ok()) return;
  while (BootClock::now() < deadline) {
    const auto count = lane.Wait(completions, deadline);
    if (!count.ok()) return;
  }
}

bool IsInterrupted(int interrupts) {
  pollfd entry{.fd = interrupts, .events = POLLIN, .revents = 0};
  return interrupts >= 0 && poll(&entry, 1, 0) > 0;
}

Status CheckInterrupt(int interrupts) {
  if (!IsInterrupted(interrupts)) return {};
  signalfd_siginfo info{};
  const ssize_t got = read(interrupts, &info, sizeof info);
  if (got == sizeof(eventfd_t)) return {Code::kErrno, EINTR, "interrupted"};
  if (got != sizeof info) return {};
  const char* name = sigabbrev_np(static_cast<int>(info.ssi_signo));
  return {
      Code::kErrno, EINTR,
      std::string("interrupted by ") + (name != nullptr ? "SIG" + std::string(name) : "a signal")};
}

Status Turns::CheckInterrupt() {
  constexpr std::uint64_t kNowAndThen = 16;
  const bool looks = looks_++ % kNowAndThen == 0 || slept_;
  slept_ = false;
  return looks ? pipe::CheckInterrupt(interrupts_) : Status::Ok();
}

bool Turns::LookAgain(const Connection& lane) {
  if (!lane.capabilities().same_host) return false;
  const TimePoint now = BootClock::now();
  if (!spin_.GoOn(now)) return false;
  if (gives_way_) (void)GiveWay(spin_, now);
  return true;
}

Status Turns::Sleep(Connection* lane, std::initializer_list<int> readable, int writable,
                    Deadline next) {
  std::array<int, kMostOthers> fds{};
  std::size_t count = 0;
  fds[count++] = interrupts_;
  for (const int fd : readable) fds[count++] = fd;
  const auto others = std::span(fds).first(count);
  const Deadline deadline = std::min(next, DeadlineAfter(std::chrono::milliseconds(200)));
  slept_ = true;
  return lane == nullptr ? Await(-1, others, deadline, writable)
                         : SleepUntil(*lane, others, deadline, writable);
}

}  // namespace rdfs::pipe
