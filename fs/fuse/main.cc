// rdfs: mounts a directory of another machine. See options.cc for the command line, serve.h for
// what a mount is made of, mount_helper.h for its other name.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <variant>
#include <vector>

#include "fs/fuse/command/daemon.h"
#include "fs/fuse/command/mount_helper.h"
#include "fs/fuse/command/options.h"
#include "fs/fuse/command/serve.h"
#include "fs/watch/command.h"
#include "transport/base/fd.h"
#include "transport/base/log.h"
#include "transport/base/log_format.h"
#include "transport/base/say.h"
#include "transport/base/watch_command.h"

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

int Print(const Answer& answer, bool helper) {
  if (answer.text.empty()) return answer.exit_code;
  std::string text = answer.text;
  if (!text.ends_with('\n')) text += '\n';
  if (answer.exit_code == 0) {  // --help, --version
    rdfs::Tell("{}", text);
    const int status = rdfs::EndTold(helper ? "mount.rdfs" : "rdfs");
    return helper ? HelperExitCode(status) : status;
  }
  text.insert(0, rdfs::ErrorPrefix());
  (void)!write(STDERR_FILENO, text.data(), text.size());
  return answer.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  rdfs::HoldStandardDescriptors();
  // Who starts us may ignore it: nobody would be told then how what we start has ended.
  (void)std::signal(SIGCHLD, SIG_DFL);
  const bool helper = argc > 0 && IsMountHelper(argv[0]);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (!helper) {
    if (!arguments.empty() && arguments[0] == "watch") {
      return rdfs::fs::watch::RunWatch({arguments.begin() + 1, arguments.end()});
    }
    if (const auto watched = rdfs::RunWatchCommand("rdfs", arguments, true)) return *watched;
  }
  const std::variant<Options, Answer> parsed =
      helper ? ParseHelperCommandLine(arguments) : ParseCommandLine(arguments);
  if (const auto* answer = std::get_if<Answer>(&parsed)) return Print(*answer, helper);
  const auto& options = std::get<Options>(parsed);
  rdfs::SetLogName("rdfs");
  rdfs::SetLogLevel(LevelFor(options.verbosity));
  if (options.foreground) {
    StartReport report;
    return Serve(options, report);
  }
  const int status =
      RunDetached([&options](StartReport& report) { return Serve(options, report); });
  return helper ? HelperExitCode(status) : status;
}
