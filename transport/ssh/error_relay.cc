#include "transport/ssh/error_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace rdfs::transport::ssh {
namespace {

// Room for a whole piece: then write(2) does not block. It is waited for until `stop` is readable.
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
  Fd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return Status::FromErrno(errno, "eventfd");
  try {
    return std::unique_ptr<ErrorRelay>(
        new ErrorRelay(std::move(read_end), std::move(child_end), std::move(stop)));
  } catch (const std::system_error& error) {
    return Status::FromErrno(error.code().value(), "cannot start a thread");
  }
}

ErrorRelay::ErrorRelay(Fd read_end, Fd child_end, Fd stop)
    : read_end_(std::move(read_end)), child_end_(std::move(child_end)), stop_(std::move(stop)) {
  thread_ = std::jthread([this] { Run(); });
}

ErrorRelay::~ErrorRelay() {
  const std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void ErrorRelay::Run() const {
  // As much as a pipe holds: whoever goes on talking does not keep this from its end.
  constexpr unsigned kPiecesInAPipe = 16;
  std::array<char, 4096> piece{};
  for (;;) {
    std::array<pollfd, 2> entries{{{.fd = read_end_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
    if (poll(entries.data(), entries.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (unsigned i = 0; i < kPiecesInAPipe; ++i) {
      const ssize_t got = read(read_end_.get(), piece.data(), piece.size());
      if (got == 0) return;
      if (got < 0) break;
      WriteToStandardError(std::string_view(piece.data(), static_cast<std::size_t>(got)),
                           stop_.get());
    }
    if (entries[1].revents != 0) return;
  }
}

}  // namespace rdfs::transport::ssh
