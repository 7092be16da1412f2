#include "transport/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "transport/base/log_format.h"
#include "transport/base/log_limit.h"

namespace rdfs {
namespace {

constinit std::atomic<LogLevel> g_level{LogLevel::kWarn};

std::string& Name() {
  static auto* const name = new std::string("rdfs");
  return *name;
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

LogLevel FromSpdlog(spdlog::level::level_enum level) {
  for (const LogLevel ours :
       {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn}) {
    if (ToSpdlog(ours) == level) return ours;
  }
  return LogLevel::kError;
}

class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(LogStyle style) : style_(style) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string line =
        FormatLogLine(style_, message.time, FromSpdlog(message.level), Name(),
                      std::string_view(message.payload.data(), message.payload.size()));
    out.append(line.data(), line.data() + line.size());
    out.push_back('\n');
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(style_);
  }

 private:
  LogStyle style_;
};

spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger(Name(), std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_formatter(std::make_unique<LineFormatter>(DetectLogStyle()));
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

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

void SetLogName(std::string_view name) {
  Name() = name;
  (void)Logger();  // before there are threads
  const char* wanted = std::getenv("RDFS_LOG");
  const std::string_view style = wanted == nullptr ? "" : wanted;
  if (!style.empty() && style != "text" && style != "json") {
    LogWarn("RDFS_LOG={} is not known; give text or json", style);
  }
}

void LogToSyslog() {
  Logger().sinks() = {
      std::make_shared<spdlog::sinks::syslog_sink_mt>(Name(), LOG_PID, LOG_DAEMON, false)};
}

void LogToWhereStandardErrorIs() {
  Logger().set_formatter(std::make_unique<LineFormatter>(DetectLogStyle()));
}

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void LogLine(LogLevel level, std::string_view line) {
  if (level == LogLevel::kWarn && !AdmitWarning()) return;
  Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace rdfs
