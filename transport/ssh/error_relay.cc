#include "transport/ssh/error_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "transport/base/clock.h"

namespace rdfs::transport::ssh {
namespace {

// For the last words, where nobody takes them.
constexpr std::chrono::seconds kPatience{1};

// Room for a whole piece of a pipe that nobody else writes to: there write(2) does not block. It is
// waited for until `stop` is readable.
bool HasRoom(int stop) {
  std::array<pollfd, 2> entries{{{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0},
                                 {.fd = stop, .events = POLLIN, .revents = 0}}};
  while (poll(entries.data(), entries.size(), -1) < 0) {
    if (errno != EINTR) return false;
  }
  return entries[0].revents != 0;
}

// What does not get through is lost: a terminal that is stopped holds nobody up in the end.
void WriteToStandardError(std::string_view text, int stop) {
  while (!text.empty() && HasRoom(stop)) {
    const ssize_t wrote = write(STDERR_FILENO, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

}  // namespace

Result<std::unique_ptr<ErrorRelay>> ErrorRelay::Create() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno(errno, "cannot make a pipe");
  Fd read_end(ends[0]);
  Fd child_end(ends[1]);
  // Ours alone: a program does not expect that of its standard error.
  if (fcntl(read_end.get(), F_SETFL, O_NONBLOCK) != 0) return Status::FromErrno(errno, "fcntl");
  Shared shared{.read_end = std::move(read_end), .stop = {}, .over = {}};
  RDFS_ASSIGN_OR_RETURN(shared.stop, EventFd::Create());
  RDFS_ASSIGN_OR_RETURN(shared.over, EventFd::Create());
  try {
    return std::unique_ptr<ErrorRelay>(
        new ErrorRelay(std::make_shared<const Shared>(std::move(shared)), std::move(child_end)));
  } catch (const std::system_error& error) {
    return Status::FromErrno(error.code().value(), "cannot start a thread");
  }
}

ErrorRelay::ErrorRelay(std::shared_ptr<const Shared> shared, Fd child_end)
    : shared_(std::move(shared)), child_end_(std::move(child_end)) {
  thread_ = std::thread([mine = shared_] {
    Run(*mine);
    mine->over.Ring();
  });
}

// It may stand in a write(2) that nobody lets end: the thread is left there, with what it uses.
ErrorRelay::~ErrorRelay() {
  shared_->stop.Ring();
  pollfd over{.fd = shared_->over.fd(), .events = POLLIN, .revents = 0};
  const Deadline deadline = DeadlineAfter(kPatience);
  int ended = 0;
  do {
    ended = poll(&over, 1, PollTimeoutMs(deadline, BootClock::now()));
  } while (ended < 0 && errno == EINTR);
  if (ended > 0) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void ErrorRelay::Run(const Shared& shared) {
  // As much as a pipe holds: whoever goes on talking does not keep this from its end.
  constexpr unsigned kPiecesInAPipe = 16;
  std::array<char, 4096> piece{};
  for (;;) {
    std::array<pollfd, 2> entries{{{.fd = shared.read_end.get(), .events = POLLIN, .revents = 0},
                                   {.fd = shared.stop.fd(), .events = POLLIN, .revents = 0}}};
    if (poll(entries.data(), entries.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (unsigned i = 0; i < kPiecesInAPipe; ++i) {
      const ssize_t got = read(shared.read_end.get(), piece.data(), piece.size());
      if (got == 0) return;
      if (got < 0) break;
      WriteToStandardError(std::string_view(piece.data(), static_cast<std::size_t>(got)),
                           shared.stop.fd());
    }
    if (entries[1].revents != 0) return;
  }
}

}  // namespace rdfs::transport::ssh
