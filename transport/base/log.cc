#include "transport/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "transport/base/log_limit.h"

namespace rdfs {
namespace {

constinit std::atomic<LogLevel> g_level{LogLevel::kWarn};

std::string& Name() {
  static auto* const name = new std::string("rdfs");
  return *name;
}

spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger(Name(), std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%n: %l: %v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

// Whether a warning may be written; tells how many could not be.
bool AdmitWarning() {
  static std::mutex mutex;
  static LogLimit limit;
  LogLimit::Verdict verdict{};
  {
    const std::lock_guard lock(mutex);
    verdict = limit.Admit(BootClock::now());
  }
  if (verdict.write && verdict.left_out > 0) {
    Logger().log(spdlog::level::warn, "{} more warnings were left out", verdict.left_out);
  }
  return verdict.write;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

void SetLogName(std::string_view name) {
  Name() = name;
  Logger().set_pattern(Name() + ": %l: %v");
}

void LogToSyslog() {
  Logger().sinks() = {
      std::make_shared<spdlog::sinks::syslog_sink_mt>(Name(), LOG_PID, LOG_DAEMON, false)};
}

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void LogLine(LogLevel level, std::string_view line) {
  if (level == LogLevel::kWarn && !AdmitWarning()) return;
  Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace rdfs
