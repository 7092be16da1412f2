// rdfsd: exports directories. This process becomes the supervisor, its child does the serving.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "server/command/daemon.h"
#include "server/command/options.h"
#include "server/command/setup.h"
#include "server/process/confine.h"
#include "server/process/serving.h"
#include "server/supervisor/supervisor.h"
#include "server/supervisor/supervisor_keeper.h"
#include "transport/base/fd.h"
#include "transport/base/log.h"
#include "transport/base/log_format.h"
#include "transport/base/say.h"
#include "transport/base/watch_command.h"

namespace rdfs::server {
namespace {

int Fail(const Status& status) {
  LogError("{}", status.message());
  return 1;
}

void SetUpLog(int verbosity) {
  SetLogName("rdfsd");
  if (verbosity > 0) SetLogLevel(verbosity > 1 ? LogLevel::kDebug : LogLevel::kInfo);
}

// Directories that are not there are told before the fork, to whoever typed them.
Status CheckExports(const Options& options) {
  for (const ExportSpec& spec : options.exports) {
    if (auto exported = Export::Create(spec); !exported.ok()) return exported.status();
  }
  return {};
}

int Supervise(ServingParams params, Readiness readiness) {
  SharedState& shared = MakeSharedState();
  SupervisorOptions options;
  options.worker = [&](int fd) {
    if (const Status confined = Confine(); !confined.ok()) return Fail(confined);
    auto keeper = DescriptorKeeper::Connect(fd);
    if (!keeper.ok()) return Fail(keeper.status());
    return Serve(params, **keeper, shared, readiness);
  };
  options.started = [&] { readiness.Detach(); };
  const Result<int> code = RunSupervisor(options);
  return code.ok() ? *code : Fail(code.status());
}

int Main(int argc, const char* const* argv) {
  HoldStandardDescriptors();
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (const auto watched = RunWatchCommand("rdfsd", arguments, false)) return *watched;
  const CommandLine command = ParseCommandLine(argc, argv);
  if (!command.options) {
    if (command.exit_code == 0) {  // --help, --version
      Tell("{}", command.output);
      return EndTold("rdfsd");
    }
    const std::string text = std::string(ErrorPrefix()) + command.output;
    std::fputs(text.c_str(), stderr);
    return command.exit_code;
  }
  const Options& options = *command.options;
  SetUpLog(options.verbosity);
  RaiseDescriptorLimit();
  if (options.stdio) return ServeStdio(options);
  WarnOfLargePool(options);

  ServingParams params;
  params.options = options;
  if (const Status status = CheckExports(options); !status.ok()) return Fail(status);
  if (!options.no_auth) {
    auto key = SetUpKey(options);
    if (!key.ok()) return Fail(key.status());
    params.key = key->key;
    params.key_path = key->path;
    if (key->made) std::fprintf(stderr, "rdfsd: made a key: %s\n", key->path.c_str());
  } else if (!options.listen.empty()) {
    LogWarn("--no-auth: whoever reaches {} can read and write what is exported",
            options.listen.front());
  }
  params.secret = SetUpHandleSecret();
  params.read_exports = [argc, argv]() -> Result<std::vector<ExportSpec>> {
    CommandLine again = ParseCommandLine(argc, argv);
    if (again.options) return std::move(again.options->exports);
    again.output.erase(again.output.find_last_not_of('\n') + 1);
    return Status(Code::kInvalidArgument, std::move(again.output));
  };
  Readiness readiness;
  if (!options.foreground) {
    auto daemon = Readiness::Daemonise();
    if (!daemon.ok()) return Fail(daemon.status());
    readiness = *std::move(daemon);
  }
  return Supervise(std::move(params), std::move(readiness));
}

}  // namespace
}  // namespace rdfs::server

int main(int argc, char** argv) { return rdfs::server::Main(argc, argv); }
