// rdfs: mounts a directory of another machine. See options.cc for the command line, serve.h for
// what a mount is made of.
#include <unistd.h>

#include <string>
#include <variant>
#include <vector>

#include "fs/fuse/daemon.h"
#include "fs/fuse/options.h"
#include "fs/fuse/serve.h"
#include "transport/base/log.h"

namespace {

using namespace rdfs::fs::fuse;

rdfs::LogLevel LevelFor(int verbosity) {
  switch (verbosity) {
    case 0:
      return rdfs::LogLevel::kWarn;
    case 1:
      return rdfs::LogLevel::kInfo;
    case 2:
      return rdfs::LogLevel::kDebug;
    default:
      return rdfs::LogLevel::kTrace;
  }
}

int Print(const Answer& answer) {
  std::string text = answer.text;
  if (!text.ends_with('\n')) text += '\n';
  const int fd = answer.exit_code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  (void)!write(fd, text.data(), text.size());
  return answer.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::variant<Options, Answer> parsed =
      ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  if (const auto* answer = std::get_if<Answer>(&parsed)) return Print(*answer);
  const auto& options = std::get<Options>(parsed);
  rdfs::SetLogName("rdfs");
  rdfs::SetLogLevel(LevelFor(options.verbosity));
  if (options.foreground) {
    StartReport report;
    return Serve(options, report);
  }
  return RunDetached([&options](StartReport& report) { return Serve(options, report); });
}
