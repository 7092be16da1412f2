// What a program says to its user, beside the log: Say on standard error, Tell on standard output.
// Neither throws, as fmt::print does. Any thread.
#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "transport/base/status.h"

namespace rdfs {

// That nobody can read it any more (a terminal that was closed, a full disk) is no failure of what
// the program does, and is not told. One write(2) a call.
template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

// What the user asked for: whether all of it was taken is asked at the end, with Told.
template <typename... Args>
void Tell(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
}

// Flushes. What standard output would not take stays in its buffer, so that this fails, too, and
// has the errno.
inline Status Told() {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return {};
  return Status::FromErrno(flushed ? EIO : errno, "cannot write to standard output");
}

}  // namespace rdfs
