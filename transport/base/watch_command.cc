#include "transport/base/watch_command.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <thread>

#include "transport/base/control_socket.h"
#include "transport/base/log.h"
#include "transport/base/parse_number.h"
#include "transport/base/printable.h"
#include "transport/base/runtime_directory.h"
#include "transport/base/say.h"
#include "transport/base/snapshot.h"
#include "transport/base/top.h"

namespace rdfs {
namespace {

using std::chrono_literals::operator""s;

struct Wanted {
  std::string command;
  std::string format = "status";  // what is asked for
  std::string name;               // empty: all
  unsigned turns = 0;             // of top; 0: for ever
  bool verbose = false;
};

// As the other commands' --help.
std::string Help(const std::string& program, const std::string& command, bool named) {
  const bool stats = command == "stats";
  const bool top = command == "top";
  std::string out =
      fmt::format("Usage: {} {} [OPTIONS]{}\n\n", program, command, named ? " [MNT]" : "");
  out += fmt::format("What this user's {} are doing, ", named ? "mounts" : "servers");
  if (stats) {
    out += "for programs; without an option as status says it.\n";
  } else if (top) {
    out += "once a second.\n";
  } else {
    out += "and over which transport.\n";
  }
  out +=
      "\nOptions:\n  -h,--help                   Print this and exit\n"
      "  --version                   Print the version and exit\n"
      "  -v                          Say whom it asks, and who does not answer and why\n";
  if (stats) {
    out +=
        "  --json                      One JSON object a line\n"
        "  --prometheus                Prometheus's text format\n";
  }
  if (top) out += "  -n TURNS                    End after so many\n";
  return out;
}

int Usage(const std::string& program, bool named) {
  Say("{0}: write {0} status{1}, {0} stats [--json|--prometheus]{1} or {0} top [-n "
      "TURNS]{1}\n",
      program, named ? " [MNT]" : "");
  return 2;
}

// As the program calls it: absolute, without symlinks.
std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  return real == nullptr ? path : real.get();
}

std::optional<Wanted> Parse(const std::vector<std::string>& arguments, bool named) {
  Wanted wanted;
  wanted.command = arguments[0];
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-v") {
      wanted.verbose = true;
    } else if (word == "--json" && wanted.command == "stats" && wanted.format != "metrics") {
      wanted.format = "json";
    } else if (word == "--prometheus" && wanted.command == "stats" && wanted.format != "json") {
      wanted.format = "metrics";
    } else if (word.starts_with("-n") && wanted.command == "top" &&
               (word.size() > 2 || i + 1 < arguments.size())) {
      const std::string turns = word.size() > 2 ? word.substr(2) : arguments[++i];
      wanted.turns = ParseNumber<unsigned>(turns).value_or(0);
      if (wanted.turns == 0) return std::nullopt;
    } else if (named && wanted.name.empty() && !word.starts_with('-')) {
      wanted.name = RealPath(word);
    } else {
      return std::nullopt;
    }
  }
  return wanted;
}

// Errors: AskControl's, kNotFound with its name for one that is not meant.
Result<std::string> AskIfMeant(const std::string& path, const Wanted& wanted,
                               const std::string& request) {
  if (!wanted.name.empty()) {
    RDFS_ASSIGN_OR_RETURN(const std::string name, AskControl(path, "name", DeadlineAfter(2s)));
    if (name != wanted.name) return Status(Code::kNotFound, name);
  }
  return AskControl(path, request, DeadlineAfter(2s));
}

// What those that are meant answer.
std::vector<std::string> Ask(const std::string& program, const Wanted& wanted,
                             const std::string& request) {
  std::vector<std::string> answers;
  for (const std::string& path : FindControlSockets(program)) {
    auto answer = AskIfMeant(path, wanted, request);
    if (answer.ok()) {
      LogInfo("{}: answers", path);
      answers.push_back(*std::move(answer));
    } else {
      const bool another = answer.status().code() == Code::kNotFound;
      LogInfo("{}: {}{}", path, another ? "it is " : "", answer.status().message());
    }
  }
  return answers;
}

std::string NameOf(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry == nullptr ? std::to_string(user) : entry->pw_name;
}

// The status of other users' ones, where we are root. What they say may be made up to steer a
// terminal; whoever is silent keeps nobody waiting twice.
std::vector<std::string> AskForeign(const std::string& program, const Wanted& wanted) {
  std::vector<std::string> answers;
  VisitForeignControlSockets(program, [&](uid_t owner, const std::string& path) {
    auto answer = AskIfMeant(path, wanted, "status");
    if (!answer.ok()) return answer.status().code() != Code::kDeadlineExceeded;
    answers.push_back(
        fmt::format("{:<24} {}\n{}", "user", NameOf(owner), Printable(*answer, "\n")));
    return true;
  });
  return answers;
}

int Ended(const std::string& program, const Status& status) {
  if (status.ok()) return 0;
  Say("{}: {}\n", program, status.message());
  return 1;
}

Status NobodyAnswers(const std::string& program, const Wanted& wanted) {
  return {Code::kNotFound,
          fmt::format("no {} of this user answers{}; its socket is looked for in {}", program,
                      wanted.name.empty() ? "" : " for " + wanted.name,
                      fmt::join(RuntimeDirectories(), ", "))};
}

// What happens in a second, once a second.
Status Top(const std::string& program, const Wanted& wanted) {
  Samples before;
  TimePoint last{};
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  for (unsigned turn = 0; wanted.turns == 0 || turn <= wanted.turns; ++turn) {
    const auto answers = Ask(program, wanted, "metrics");
    const TimePoint now = BootClock::now();
    if (answers.empty()) return NobodyAnswers(program, wanted);
    const Samples samples = ParseMetrics(answers);
    if (turn > 0) {
      const double seconds = std::chrono::duration<double>(now - last).count();
      Tell("{}{}", terminal ? "\033[H\033[J" : "", TopTable(before, samples, seconds));
      RDFS_RETURN_IF_ERROR(Told());
    }
    before = samples;
    last = now;
    if (wanted.turns == 0 || turn < wanted.turns) std::this_thread::sleep_for(1s);
  }
  return {};
}

// What the user asked for, to standard output.
Status Show(const std::string& program, const Wanted& wanted) {
  auto answers = Ask(program, wanted, wanted.format);
  if (wanted.command == "status") {
    std::ranges::move(AskForeign(program, wanted), std::back_inserter(answers));
  }
  if (answers.empty()) return NobodyAnswers(program, wanted);
  if (wanted.format == "metrics") {
    Tell("{}", MergeMetrics(answers));
  } else {
    for (const std::string& answer : answers) Tell("{}", answer);
  }
  return Told();
}

}  // namespace

std::optional<int> RunWatchCommand(const std::string& program,
                                   const std::vector<std::string>& arguments, bool named) {
  if (arguments.empty() ||
      (arguments[0] != "status" && arguments[0] != "stats" && arguments[0] != "top")) {
    return std::nullopt;
  }
  for (const std::string& word : arguments) {
    if (word == "-h" || word == "--help") {
      Tell("{}", Help(program, arguments[0], named));
      return Ended(program, Told());
    }
    if (word == "--version") {
      Tell("{} " RDFS_VERSION "\n", program);
      return Ended(program, Told());
    }
  }
  const auto wanted = Parse(arguments, named);
  if (!wanted) return Usage(program, named);
  SetLogName(program);
  if (wanted->verbose) SetLogLevel(LogLevel::kInfo);
  return Ended(program, wanted->command == "top" ? Top(program, *wanted) : Show(program, *wanted));
}

}  // namespace rdfs
