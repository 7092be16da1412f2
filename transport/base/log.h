// The log: one line a call on standard error (or the journal, which reads it).
//
// Levels by volume: error, warn, info (per mount), debug (per object), trace (per request). Log
// once, where the error is decided; callers add context to the Status instead. The level is the one
// mutable global that rdfs has, besides the limit of warnings (log_limit.h). Any thread; a call
// writes one line with one write(2).
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <string_view>
#include <utility>

namespace rdfs {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

void SetLogLevel(LogLevel level);
// The prefix of each line, usually the program's name. Call before the first thread starts.
void SetLogName(std::string_view name);
// From now on lines go to syslog(3), under the name set before, and no more to standard error.
void LogToSyslog();
[[nodiscard]] bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

}  // namespace rdfs
