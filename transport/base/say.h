// What a program says to its user, beside the log: Say on standard error, Tell on standard output.
// Neither throws, as fmt::print does. Any thread.
#pragma once

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "transport/base/sigpipe.h"
#include "transport/base/status.h"

namespace rdfs {

// That nobody can read it any more (a terminal that was closed, a full disk) is no failure of what
// the program does, and is not told. One write(2) a call.
template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

// Whether a line said now waits for nobody: not so on a terminal that was stopped (^S), or that
// nobody reads.
inline bool MaySay() {
  pollfd entry{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&entry, 1, 0) > 0;
}

// The errno of what was not taken, once that has happened.
inline std::atomic<int> why_not_told{0};

// What the user asked for: whether all of it was taken is asked at the end, with Told.
template <typename... Args>
void Tell(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) why_not_told = errno;
}

// Flushes, and says whether all that was told has been taken, by fputs and its like as well.
inline Status Told() {
  if (std::fflush(stdout) != 0) why_not_told = errno;
  if (std::ferror(stdout) == 0) return {};
  return Status::FromErrno(why_not_told != 0 ? why_not_told.load() : EIO,
                           "cannot write to standard output");
}

// The exit status of a program that had only this to tell: 1, and why, where it was not taken.
inline int EndTold(std::string_view program) {
  const Status told = Told();
  if (told.ok()) return 0;
  if (told.errno_value() == EPIPE) EndBySigpipe();
  Say("{}: {}\n", program, told.message());
  return 1;
}

}  // namespace rdfs
