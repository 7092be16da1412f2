#include "transport/base/log_format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "transport/base/json_string.h"

namespace rdfs {
namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return "trace";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warning";
    case LogLevel::kError:
    case LogLevel::kOff:
      return "error";
  }
  return "error";
}

// syslog(3)'s numbers.
std::string_view PrefixOf(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
    case LogLevel::kDebug:
      return "<7>";
    case LogLevel::kInfo:
      return "<6>";
    case LogLevel::kWarn:
      return "<4>";
    case LogLevel::kError:
    case LogLevel::kOff:
      return "<3>";
  }
  return "<3>";
}

}  // namespace

std::string FormatLogLine(const LogStyle& style, std::chrono::system_clock::time_point time,
                          LogLevel level, std::string_view name, std::string_view line) {
  const std::string_view prefix = style.journal ? PrefixOf(level) : "";
  if (!style.json) return fmt::format("{}{}: {}: {}", prefix, name, NameOf(level), line);
  using std::chrono::microseconds;
  const auto since = std::chrono::floor<microseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return fmt::format(
      R"({}{{"time": "{:%Y-%m-%dT%H:%M:%S}.{:06}Z", "level": "{}", "program": {}, "message": {}}})",
      prefix, fmt::gmtime(static_cast<std::time_t>(seconds.count())), (since - seconds).count(),
      NameOf(level), JsonString(name), JsonString(line));
}

bool IsJournal(std::string_view journal_stream, dev_t device, ino_t inode) {
  return !journal_stream.empty() && journal_stream == fmt::format("{}:{}", device, inode);
}

LogStyle DetectLogStyle() {
  LogStyle style{.json = Variable("RDFS_LOG") == "json"};
  struct stat about {};
  style.journal = fstat(STDERR_FILENO, &about) == 0 &&
                  IsJournal(Variable("JOURNAL_STREAM"), about.st_dev, about.st_ino);
  return style;
}

std::string_view ErrorPrefix() {
  return DetectLogStyle().journal ? PrefixOf(LogLevel::kError) : "";
}

}  // namespace rdfs
