#include "transport/ssh/stdio.h"

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "transport/base/log.h"
#include "transport/ssh/bootstrap.h"

namespace rdfs::transport::ssh {
namespace {

// One line of standard input and nothing behind it.
Result<std::string> ReadLine(std::string_view hint, Deadline deadline) {
  std::string line;
  line.reserve(kMaxBootstrapLineBytes);  // so that the key is not left behind by growing
  while (line.size() < kMaxBootstrapLineBytes) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, PollTimeoutMs(deadline, BootClock::now()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    char c = 0;
    const ssize_t got = ::read(STDIN_FILENO, &c, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got != 1) break;
    if (c == '\n') return line;
    line += c;
  }
  sodium_memzero(line.data(), line.size());
  return Status(Code::kProtocolError, std::string(hint));
}

}  // namespace

Result<Bootstrap> ReadBootstrap(std::string_view magic, std::string_view hint, Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(std::string line, ReadLine(hint, deadline));
  Bootstrap bootstrap;
  const auto request = ParseBootstrapRequest(magic, line);
  if (request.ok()) {
    bootstrap.key = Key(request->key);
    bootstrap.text = request->text;
  }
  sodium_memzero(line.data(), line.size());
  if (!request.ok()) return request.status();
  return bootstrap;
}

std::unique_ptr<tcp::ByteStream> TakeStdio() {
  Fd in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  Fd out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.valid()) {
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
  }
  return tcp::MakePipeStream(std::move(in), std::move(out), "ssh");
}

void Answer(std::string_view magic, const Status& outcome) {
  const std::string line = EncodeBootstrapReply(magic, outcome);
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) LogDebug("ssh is gone");
}

}  // namespace rdfs::transport::ssh
