// Say: what a program tells its user on standard error, beside the log.
//
// That nobody can read it any more (a terminal that was closed, a full disk) is no failure of what
// the program does, and is not told; fmt::print would throw. Any thread; one write(2) a call.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace rdfs {

template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace rdfs
