// rdsock: runs a command with librdsock.so in it, so that its TCP connections to programs that run
// so, too, move their bytes through shared memory on this host, and through RDMA to hosts that it
// has been paired with.
#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/sock/far/carrier.h"
#include "tools/sock/far/pairs.h"
#include "tools/sock/pairing.h"
#include "tools/sock/preload/settings.h"
#include "transport/base/command_line.h"
#include "transport/base/fd.h"
#include "transport/base/say.h"

namespace rdfs::sock {
namespace {

constexpr int kUsage = 2;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

constexpr const char* kDescription =
    "rdsock [OPTIONS] COMMAND [ARGUMENT...]\n"
    "rdsock --pair [USER@]HOST | --pairs | --unpair HOST\n\n"
    "Runs COMMAND with its TCP connections moved to shared memory wherever the other end is a "
    "program on this host that runs under rdsock, too. Nothing has to be set: a connection begins "
    "as TCP, and both ends find each other after a few calls. Connections to a host with RDMA move "
    "to that once the two hosts have been paired, by --pair on either. Everything else stays what "
    "it was: connections to other hosts or to programs without rdsock, and what cannot be moved.";
constexpr const char* kFooter = R"(
LISTs are ports and addresses with commas between, such as 5432,127.0.0.1,10.0.0.0/8,::1. A
connection is among them when one of its two ports or the other end's address is.

Examples:
  rdsock redis-server & rdsock redis-benchmark -q
  rdsock --only 5432 postgres -D data
  rdsock --stats psql -h localhost
  rdsock --pair db.example && rdsock psql -h db.example

Exit status: COMMAND's own; 126 when it cannot be run, 127 when there is none of that name, 1 when
rdsock itself failed, 2 for wrong usage. With --stats, 128 and the signal's number when a signal has
ended it.

Programs that are linked statically, that are setuid, or that make their system calls without the C
library (Go) keep their TCP connections. So does what goes through io_uring, aio(7), kTLS or splice(2),
and what is opened as a stream with fdopen(3).)";

int Fail(int status, const std::string& message) {
  Say("rdsock: {}\n", message);
  return status;
}

struct Options {
  std::string only, except, require;
  bool stats = false;
  bool list = false;
  std::string unpair;
  PairOptions pair;
  std::vector<std::string> command;
};

// Beside this program, or where it is installed.
std::optional<std::string> FindLibrary() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  for (const char* const place : {"librdsock.so", "../" RDSOCK_LIBRARY_FOLDER "/librdsock.so"}) {
    const std::filesystem::path path = (self.parent_path() / place).lexically_normal();
    if (access(path.c_str(), R_OK) == 0) return path.string();
  }
  return std::nullopt;
}

void SetOrUnset(const char* variable, const std::string& value) {
  if (value.empty()) {
    unsetenv(variable);
  } else {
    setenv(variable, value.c_str(), 1);
  }
}

// LD_PRELOAD with `library` in it, as under another rdsock it is already.
std::string WithLibrary(const std::string& library, std::string_view before) {
  for (std::string_view rest = before;;) {
    const std::size_t end = rest.find_first_of(" :");
    if (rest.substr(0, end) == library) return std::string(before);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return before.empty() ? library : fmt::format("{}:{}", library, before);
}

// What the command and its children find in their environment.
void Prepare(const Options& options, const std::string& library, const std::string& stats) {
  const char* const before = getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", WithLibrary(library, before == nullptr ? "" : before).c_str(), 1);
  SetOrUnset(kOnlyVariable, options.only);
  SetOrUnset(kExceptVariable, options.except);
  SetOrUnset(kRequireVariable, options.require);
  SetOrUnset(kStatsVariable, stats);
}

int Run(const Options& options) {
  std::vector<char*> arguments;
  for (const std::string& argument : options.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  return Fail(error == ENOENT ? kNotFound : kNotExecutable,
              fmt::format("cannot run '{}': {}", options.command[0], strerror(error)));
}

const char* Explain(Reason reason) {
  switch (reason) {
    case Reason::kFiltered:
      return "are not among those asked for (--only, --except)";
    case Reason::kElsewhere:
      return "lead to another host or network namespace, and no carrier of this user's runs here "
             "(rdsock --pair)";
    case Reason::kOnlyHere:
      return "lead to another host or network namespace (--require=shm)";
    case Reason::kNotPaired:
      return "lead to a host that is not paired (rdsock --pair)";
    case Reason::kUnreachable:
      return "lead to a host whose carrier does not answer (a firewall, or no rdsock runs there)";
    case Reason::kNoRdma:
      return "lead to a paired host to which there is no RDMA (rdinfo HOST)";
    case Reason::kAlone:
      return "had nobody at the other end who came to meet (is it under rdsock, and may it move? "
             "its own --stats says); or they were over before it came";
    case Reason::kShared:
      return "were held by several processes, or handed to another program";
    case Reason::kStranger:
      return "had another user at the other end than its socket's";
    case Reason::kNeedsTcp:
      return "were used as only TCP can be";
    case Reason::kUring:
      return "were read or written by io_uring";
    case Reason::kEnded:
      return "were over before both ends could meet";
    default:
      return "found no descriptors or memory (ulimit -n; to other hosts also ulimit -l)";
  }
}

void Show(const Counts& counts) {
  std::uint64_t told = counts.upgraded;
  Say("rdsock: {} connections, {} upgraded, {} of these went back to TCP\n",
      counts.connections.load(), counts.upgraded.load(), counts.left.load());
  if (counts.far > 0) {
    Say("rdsock:   {} of the upgraded ones lead to other hosts\n", counts.far.load());
  }
  for (std::size_t i = 0; i < counts.stayed.size(); ++i) {
    const std::uint64_t count = counts.stayed[i];
    told += count;
    if (count > 0) {
      Say("rdsock:   {} stayed on TCP: they {}\n", count, Explain(static_cast<Reason>(i)));
    }
  }
  // What its processes have left to the kernel to close, for one.
  if (const std::uint64_t all = counts.connections; all > told) {
    Say("rdsock:   {} stayed on TCP: they were open when COMMAND ended, and nothing had been "
        "decided yet (that takes a few calls)\n",
        all - told);
  }
  Say("rdsock: on upgraded ones {} bytes sent in {} calls, {} received in {}; {} wake-ups "
      "sent, {} sleeps\n",
      counts.bytes_sent.load(), counts.sends.load(), counts.bytes_received.load(),
      counts.receives.load(), counts.bells.load(), counts.sleeps.load());
}

// Waits for the command to end and passes signals on to it that are sent to us alone. Those of a
// terminal's keys, which come from the kernel, reach our whole process group, and it is in that.
int WaitFor(pid_t child, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    siginfo_t info{};
    const int number = sigwaitinfo(&signals, &info);
    const bool from_key = (number == SIGINT || number == SIGQUIT) && info.si_code == SI_KERNEL;
    if (number > 0 && number != SIGCHLD && !from_key) kill(child, number);
  }
}

// As a parent that stays until the command has ended, to show what it has counted.
int RunCounting(const Options& options, const std::string& library) {
  const Fd memory(memfd_create("rdsock-stats", MFD_CLOEXEC));
  if (!memory.valid() || ftruncate(memory.get(), sizeof(Counts)) != 0) {
    return Fail(1, fmt::format("no memory for --stats: {}", strerror(errno)));
  }
  void* const place =
      mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (place == MAP_FAILED) return Fail(1, "no memory for --stats");
  const auto* const counts = new (place) Counts;
  Prepare(options, library, fmt::format("/proc/{}/fd/{}", getpid(), memory.get()));
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, &before);
  // Who ignores it is not told that a child has ended.
  const auto inherited = signal(SIGCHLD, SIG_DFL);
  const pid_t child = fork();
  if (child < 0) return Fail(1, fmt::format("cannot start a process: {}", strerror(errno)));
  if (child == 0) {
    (void)signal(SIGCHLD, inherited);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return Run(options);
  }
  const int status = WaitFor(child, signals);
  Show(*counts);
  return status;
}

std::optional<std::string> Wrong(const Options& options) {
  for (const auto& [name, list] :
       {std::pair("--only", &options.only), std::pair("--except", &options.except)}) {
    Filter filter;
    std::string_view wrong;
    if (filter.Parse(*list, wrong)) continue;
    return fmt::format("{}: '{}' is neither a port nor an address, or more than {} are given", name,
                       wrong, Filter::kMostRules);
  }
  if (!options.require.empty() && options.require != "shm" && options.require != "verbs") {
    return fmt::format("--require={}: give shm or verbs", options.require);
  }
  if (options.command.empty()) return "COMMAND is required; see rdsock --help";
  if (options.command[0].starts_with("-")) {
    return fmt::format("{}: there is no such option; see rdsock --help", options.command[0]);
  }
  return std::nullopt;
}

// Of the options for pairings: each is for itself, and none is for a command.
std::optional<std::string> WrongForPairing(const CLI::App& app, const Options& options) {
  const std::size_t pairings = app.count("--pair") + app.count("--unpair") + app.count("--pairs");
  if (pairings > 1) return "give only one of --pair, --unpair and --pairs; see rdsock --help";
  if (pairings == 1 && !options.command.empty()) {
    return "give COMMAND without --pair, --unpair and --pairs; see rdsock --help";
  }
  if (app.count("--pair") == 0 && app.count("--ssh") + app.count("--far-rdsock") > 0) {
    return "give --ssh and --far-rdsock only with --pair; see rdsock --help";
  }
  return std::nullopt;
}

// Where there are pairings, somebody has to carry. Without a carrier connections stay on TCP: said
// only to who asked.
std::optional<std::string> PrepareToCarry(const Options& options) {
  const Result<std::string> path = far::PairsPath();
  const bool verbs = options.require == "verbs";
  Result<far::Pairs> pairs = path.ok() ? far::ReadPairs(*path) : path.status();
  if (!pairs.ok()) {
    const bool none = pairs.status().code() == Code::kNotFound;
    if (verbs || (options.stats && !none)) return pairs.status().message();
    return std::nullopt;
  }
  if (verbs && pairs->over_tcp) {
    return fmt::format("--require=verbs: {} says 'over tcp'", *path);
  }
  if (pairs->pairs.empty()) return std::nullopt;
  const Status carrier = far::EnsureCarrier();
  if (!carrier.ok() && (verbs || options.stats)) return carrier.message();
  return std::nullopt;
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "rdsock");
  app.footer(kFooter);
  app.set_version_flag("--version", "rdsock " RDFS_VERSION);
  Options options;
  app.add_option("--only", options.only, "Move only these connections")->type_name("LIST");
  app.add_option("--except", options.except, "Never move these")->type_name("LIST");
  app.add_option("--require", options.require,
                 "Reset a connection that would stay on TCP for good, and say why on standard "
                 "error. 'shm': those to other hosts, too; 'verbs': those may move to RDMA")
      ->type_name("TRANSPORT");
  app.add_flag("-v,--stats", options.stats,
               "When COMMAND has ended, say on standard error what was moved, what was not and "
               "why, and how many bytes and wake-ups there were");
  app.add_option("--pair", options.pair.destination,
                 "Pair this user's programs here with those of USER on HOST: done once, over ssh, "
                 "which stores a key and the hosts' addresses on both sides")
      ->type_name("[USER@]HOST");
  app.add_option("--far-rdsock", options.pair.path,
                 "With --pair: where rdsock is on HOST, if not in the PATH of commands there")
      ->type_name("PATH");
  app.add_option("--ssh", options.pair.ssh, "With --pair: how to run ssh")->type_name("CMD");
  app.add_flag("--pairs", options.list, "List the pairings");
  app.add_option("--unpair", options.unpair, "Forget the pairing of this name, or with this host")
      ->type_name("HOST");
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return TellAsked(app, done, "rdsock");
  } catch (const CLI::ParseError& error) {
    return Fail(kUsage, error.what());
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command[0] == "--") {
    options.command.erase(options.command.begin());
  }
  if (const auto wrong = WrongForPairing(app, options)) return Fail(kUsage, *wrong);
  if (!options.pair.destination.empty()) return PairMain(options.pair);
  if (!options.unpair.empty()) return UnpairMain(options.unpair);
  if (options.list) return ListPairsMain();
  if (const auto wrong = Wrong(options)) return Fail(kUsage, *wrong);
  const std::optional<std::string> library = FindLibrary();
  if (!library) {
    return Fail(1, "librdsock.so is neither beside this program nor in ../" RDSOCK_LIBRARY_FOLDER
                   "; install it again");
  }
  if (library->find_first_of(": ") != std::string::npos) {
    return Fail(1, fmt::format("the path {} has a colon or a space, which LD_PRELOAD cannot hold; "
                               "install rdsock elsewhere",
                               *library));
  }
  if (const auto why = PrepareToCarry(options)) {
    const int status = Fail(1, *why);
    if (options.require == "verbs") return status;
  }
  if (options.stats) return RunCounting(options, *library);
  Prepare(options, *library, "");
  return Run(options);
}

}  // namespace
}  // namespace rdfs::sock

int main(int argc, char** argv) {
  const std::string_view role = argc == 2 ? argv[1] : "";
  if (role == "--carrier") return rdfs::sock::far::CarrierMain();
  if (role == "--far-pair") return rdfs::sock::FarPairMain();
  return rdfs::sock::Main(argc, argv);
}
