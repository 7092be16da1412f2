#include "tools/copy/command/remote_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tools/copy/command/setup.h"
#include "tools/copy/remote/caller.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/report/report.h"
#include "tools/copy/report/watch.h"
#include "tools/copy/source/list.h"
#include "tools/pipe/command/process.h"
#include "tools/pipe/wire/lane_loop.h"
#include "transport/base/log.h"
#include "transport/base/say.h"

namespace rdfs::copy {
namespace {

constexpr const char* kName = "rdcp";
using Where = Operand::Where;

int Fail(const Status& status) {
  Say("{}: {}\n", kName, status.message());
  return ExitCodeOf(status);
}

bool IsAt(const Operand& operand, Where where) { return operand.where == where; }

// As ssh takes it.
std::string MachineOf(const Operand& operand) {
  return operand.user.empty() ? operand.host : operand.user + "@" + operand.host;
}

Status CheckOperands(const CopyOptions& options) {
  const auto count = [&](Where where) {
    return std::ranges::count_if(options.sources,
                                 [where](const Operand& each) { return IsAt(each, where); });
  };
  if (IsAt(options.destination, Where::kExport) || count(Where::kExport) > 0) {
    return {
        Code::kInvalidArgument,
        "rdfs://... and HOST:PATH do not go into one command: copy by way of here, or mount the "
        "export with rdfs"};
  }
  const bool across = IsAt(options.destination, Where::kHost) && count(Where::kHost) > 0;
  if (across && (options.require || options.plaintext || options.require_encryption)) {
    return {Code::kInvalidArgument,
            "--require, --plaintext and --require-encryption are for copies to or from here"};
  }
  if (count(Where::kHost) > 0 && count(Where::kHere) > 0) {
    return {Code::kInvalidArgument,
            "sources of this machine and of others want two commands: nothing was copied"};
  }
  return {};
}

RemoteOptions OptionsOf(CopyOptions& options, mode_t mask, int interrupts) {
  RemoteOptions out;
  out.ssh_command = options.ssh_command;
  out.rdcp_path = options.rdcp_path;
  out.bootstrap = options.bootstrap;
  out.ports = options.ports;
  out.require = options.require;
  out.plaintext = options.plaintext;
  out.require_encryption = options.require_encryption;
  out.scan.recurse = options.recurse;
  out.scan.follow = options.follow;
  out.scan.follow_source = !options.recurse;
  out.scan.one_file_system = options.one_file_system;
  if (!options.rules.empty()) out.scan.filter = &options.rules;
  out.rules = options.rules.given();
  out.keep = options.keep;
  out.in_place = options.in_place;
  out.resume = options.resume;
  out.policy = options.policy;
  out.remove = options.remove;
  out.verify = options.verify;
  out.dry_run = options.dry_run;
  out.limit = options.limit;
  out.lanes = options.lanes;
  out.umask = mask;
  out.interrupts = interrupts;
  return out;
}

// What one run of ssh has to bring: sources in a row of one machine.
struct Errand {
  std::string machine;
  std::vector<std::string> paths;
};
std::vector<Errand> ErrandsOf(const CopyOptions& options) {
  std::vector<Errand> out;
  for (const Operand& source : options.sources) {
    const std::string machine =
        MachineOf(IsAt(source, Where::kHost) ? source : options.destination);
    if (out.empty() || out.back().machine != machine) out.push_back({machine, {}});
    out.back().paths.push_back(source.path);
  }
  return out;
}

bool IsAcross(const CopyOptions& options) {
  return IsAt(options.destination, Where::kHost) && IsAt(options.sources[0], Where::kHost);
}

// Of sources on several machines none sees what the others bring, nor what their patterns and ~
// stand for.
Status CheckAllApart(const CopyOptions& options) {
  if (!options.remove || ErrandsOf(options).size() < 2) return {};
  return {Code::kInvalidArgument,
          "the sources are on several machines, and --delete would remove of each what the others "
          "have not: copy them one by one, without --delete"};
}

// `dialling`: set if a thread still does at the end.
Status Run(const CopyOptions& options, const Errand& errand, const RemoteOptions& remote,
           Report& report, bool& dialling) {
  if (IsAcross(options)) {
    const Across job{errand.machine,
                     MachineOf(options.destination),
                     errand.paths,
                     options.destination.path,
                     options.sources.size() > 1,
                     report.progress() && !remote.dry_run};
    return CopyAcross(job, remote, report, [&](const std::string& how) {
      if (remote.note) remote.note(how);
    });
  }
  RDFS_ASSIGN_OR_RETURN(const auto far,
                        FarEnd::Start(errand.machine, remote, FarEnd::FirstLane::kAtOnce));
  const auto& say = far->stays() ? remote.warn : remote.note;
  if (say) say(errand.machine + ": over " + far->ExplainChoice());
  const std::string& destination = options.destination.path;
  const bool directory_wanted = options.sources.size() > 1;
  const Status status = IsAt(options.destination, Where::kHost)
                            ? far->CopyTo(errand.paths, destination, directory_wanted, report)
                            : far->CopyFrom(errand.paths, destination, directory_wanted, report);
  dialling |= far->dialling();
  return status;
}

// The user does not want the other machines either, or they would be told the same of DST.
bool ConcernsAll(const Status& status, int interrupts) {
  const bool interrupted = status.code() == Code::kErrno && status.errno_value() == EINTR;
  return interrupted || status.code() == Code::kInvalidArgument ||
         !pipe::CheckInterrupt(interrupts).ok();
}

int RunErrands(const CopyOptions& options, RemoteOptions& remote, bool& dialling) {
  const bool lists = options.verbosity > 0 || options.dry_run;
  Report report({.name = kName,
                 .lists = lists,
                 .progress = ShowsProgress(options.quiet, lists && !options.progress)},
                BootClock::now());
  if (options.verbosity > 0) {
    remote.note = [&report](const std::string& sentence) { report.Note(sentence); };
  }
  if (!options.quiet || remote.note)
    remote.warn = [&report](const std::string& text) { report.Note(text); };
  NamesTaken taken;
  const std::vector<Errand> errands = ErrandsOf(options);
  if (errands.size() > 1) remote.take = [&](const Begin& begin) { return taken.Take(begin); };
  int failed = 0;
  for (const Errand& errand : errands) {
    const Status status = Run(options, errand, remote, report, dialling);
    if (status.ok()) continue;
    const int code = Fail(status);
    if (failed == 0) failed = code;
    if (ConcernsAll(status, remote.interrupts)) break;
  }
  if (failed != 0) return failed;
  if (options.verbosity > 0) report.Note(report.Summary(BootClock::now()));
  return report.End();
}

}  // namespace

int RunRemote(CopyOptions& options) {
  if (const Status wrong = CheckOperands(options); !wrong.ok()) {
    Say("{}: {}\n", kName, wrong.message());
    return kExitUsage;
  }
  if (const Status wrong = CheckAllApart(options); !wrong.ok()) return Fail(wrong);
  SetLogName(kName);
  SetLogLevel(options.verbosity > 1 ? LogLevel::kDebug : LogLevel::kError);
  const mode_t mask = SetUpProcess();
  Listed list(options.rules.empty() ? nullptr : &options.rules);
  const bool listed = !options.files_from.empty();
  if (listed) {
    const Status status = ReadList(options.files_from, options.nul, list);
    if (!status.ok()) return Fail(status);
  }
  // From here on they are looked for: who reads a list does not.
  const auto interrupts = pipe::TakeInterrupts();
  if (!interrupts.ok()) return Fail(interrupts.status());
  RemoteOptions remote = OptionsOf(options, mask, interrupts->get());
  if (listed) {
    remote.scan.filter = &list;
    remote.list = &list;
  }
  bool dialling = false;
  const int code = RunErrands(options, remote, dialling);
  if (dialling) {
    // Who has what he wanted does not wait for a leg that does not answer.
    std::fflush(nullptr);
    _exit(code);
  }
  return code;
}

}  // namespace rdfs::copy
