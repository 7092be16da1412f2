#include "tools/copy/command/command.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "tools/copy/command/roots.h"
#include "tools/copy/command/setup.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"
#include "tools/copy/local_copy.h"
#include "tools/copy/report/watch.h"
#include "tools/copy/source/list.h"
#include "tools/pipe/command/process.h"
#include "transport/base/log.h"
#include "transport/base/say.h"

namespace rdfs::copy {
namespace {

constexpr const char* kName = "rdcp";
// Threads that copy. Beyond that they wait for each other in the file system.
constexpr unsigned kLeastCrew = 2;
constexpr unsigned kMostCrew = 8;
// To or from an export they wait for its server: so many requests are under way.
constexpr int kCrewForExports = ExportSession::kMostLanes;

int Fail(const Status& status) {
  Say("{}: {}\n", kName, status.message());
  return kExitFailed;
}

ScanOptions ScanOf(const CopyOptions& options) {
  ScanOptions out;
  out.recurse = options.recurse;
  out.follow = options.follow;
  // As cp: what is named is followed, unless directories are copied as they are.
  out.follow_source = !options.recurse;
  out.one_file_system = options.one_file_system;
  return out;
}

// What is copied, and where to.
struct Job {
  std::vector<Source> sources;
  Source destination;
  Targets targets;
  bool exports = false;  // are among them
};

bool LookAt(const Source& source, const ScanOptions& scan, struct stat& info) {
  const bool follow = scan.follow || scan.follow_source || source.path.back() == '/';
  return source.from->Stat(source.path, follow, info) == 0;
}

SourceFacts FactsOf(const Source& source, const ScanOptions& scan) {
  struct stat info {};
  const bool is_there = LookAt(source, scan, info);
  return {source.shown, is_there && S_ISDIR(info.st_mode)};
}

Result<Job> Locate(const CopyOptions& options, const ScanOptions& scan, Roots& roots) {
  Job out;
  out.exports = options.destination.where == Operand::Where::kExport;
  RDFS_ASSIGN_OR_RETURN(out.destination, roots.Find(options.destination));
  std::vector<SourceFacts> facts;
  for (const Operand& each : options.sources) {
    out.exports |= each.where == Operand::Where::kExport;
    RDFS_ASSIGN_OR_RETURN(std::vector<Source> found, roots.FindAll(each));
    for (Source& source : found) {
      facts.push_back(FactsOf(source, scan));
      out.sources.push_back(std::move(source));
    }
  }
  auto targets = PlaceHere(facts, out.destination.path, out.destination.from);
  if (!targets.ok()) {
    const bool here = options.destination.where == Operand::Where::kHere;
    return here ? targets.status() : targets.status().WithContext(options.destination.base());
  }
  out.targets = *std::move(targets);
  if (options.remove) RDFS_RETURN_IF_ERROR(CheckApart(out.targets.names));
  return out;
}

// A directory that DST is, or lies in, would be copied for ever.
Status CheckNotInto(const Job& job, const ScanOptions& scan, const Destination& destination) {
  struct stat there {};
  if (job.destination.from->Stat(job.targets.root, true, there) != 0) {
    return Status::FromErrno(errno, "cannot look at DST");
  }
  for (const Source& each : job.sources) {
    struct stat info {};
    if (!LookAt(each, scan, info) || !S_ISDIR(info.st_mode)) continue;
    if (scan.one_file_system && info.st_dev != there.st_dev) continue;
    if (!destination.IsIn(EntryOf(info))) continue;
    return {Code::kInvalidArgument,
            "the directory '" + Shown(each.shown) + "' cannot be copied into itself"};
  }
  return {};
}

bool Lists(const CopyOptions& options) { return options.verbosity > 0 || options.dry_run; }

// As people write it in front of a name.
std::string Prefix(const CopyOptions& options, const Job& job) {
  const std::string root = job.targets.root == "." ? "" : job.targets.root;
  const bool here = options.destination.where == Operand::Where::kHere;
  return here ? root : Joined(options.destination.base(), root);
}

LocalOptions LocalOf(const CopyOptions& options, const ScanOptions& scan, const Job& job) {
  LocalOptions out;
  out.root = Prefix(options, job);
  out.scan = scan;
  out.keep = options.keep;
  out.policy = options.policy;
  out.remove = options.remove;
  out.verify = options.verify;
  out.dry_run = options.dry_run;
  out.limit = options.limit;
  out.in_turn = Meet(job.targets.names);
  out.threads = job.exports ? kCrewForExports
                            : static_cast<int>(std::clamp(std::thread::hardware_concurrency(),
                                                          kLeastCrew, kMostCrew));
  return out;
}

Result<std::unique_ptr<Destination>> OpenDestination(const CopyOptions& options, const Job& job,
                                                     mode_t mask, Report& report,
                                                     const std::atomic<bool>& stop) {
  DestinationOptions to;
  to.keep = options.keep;
  to.umask = mask;
  to.in_place = options.in_place;
  to.resume = options.resume;
  to.one_file_system = options.one_file_system;
  to.same_machine = true;
  to.meet = Meet(job.targets.names);
  to.report = [&report, &stop, prefix = Prefix(options, job)](const std::string& path,
                                                              const Status& status) {
    if (!stop) report.Failed(Joined(prefix, path), status);
  };
  RDFS_ASSIGN_OR_RETURN(auto out, Destination::Open(job.targets.root, to, job.destination.from));
  for (std::uint32_t i = 0; i < job.targets.names.size(); ++i) {
    RDFS_RETURN_IF_ERROR(out->AddTarget(i, job.targets.names[i]));
  }
  return out;
}

Status Copy(const CopyOptions& options, const ScanOptions& scan, mode_t mask, Roots& roots,
            Report& report, std::atomic<bool>& stop) {
  RDFS_ASSIGN_OR_RETURN(const Job job, Locate(options, scan, roots));
  RDFS_ASSIGN_OR_RETURN(const auto destination, OpenDestination(options, job, mask, report, stop));
  RDFS_RETURN_IF_ERROR(CheckNotInto(job, scan, *destination));
  for (const Source& each : job.sources) {
    const auto look = [&each, &scan]() -> std::optional<Entry> {
      struct stat info {};
      if (!LookAt(each, scan, info)) return std::nullopt;
      return EntryOf(info);
    };
    if (const auto entry = look()) destination->AddSource(*entry, look);
  }

  RDFS_ASSIGN_OR_RETURN(Fd interrupts, pipe::TakeInterrupts());
  const Counter::Count count = [&](auto& files, auto& bytes, const auto& done) {
    for (const Source& each : job.sources) CountTree(each, scan, done, files, bytes);
  };
  const Watch watch(std::move(interrupts),
                    ShowsProgress(options.quiet, Lists(options) && !options.progress), report, stop,
                    count);
  RDFS_RETURN_IF_ERROR(watch.status());
  LocalCopy copy(LocalOf(options, scan, job), job.sources, *destination, report, stop);
  for (std::uint32_t i = 0; i < job.sources.size() && !stop; ++i) copy.Add(i);
  copy.Finish();
  if (!stop) return {};
  RDFS_RETURN_IF_ERROR(roots.Lost());
  return {Code::kErrno, EINTR,
          options.resume     ? "interrupted; the same command goes on from here"
          : options.in_place ? "interrupted; what was being written in place is not finished"
                             : "interrupted; what was not finished was removed"};
}

}  // namespace

int RunLocal(CopyOptions& options) {
  SetLogName(kName);
  SetLogLevel(options.verbosity > 1 ? LogLevel::kDebug : LogLevel::kError);
  const mode_t mask = SetUpProcess();
  ScanOptions scan = ScanOf(options);
  if (!options.rules.empty()) scan.filter = &options.rules;
  Listed list(scan.filter);
  if (!options.files_from.empty()) {
    const Status status = ReadList(options.files_from, options.nul, list);
    if (!status.ok()) return Fail(status);
    scan.filter = &list;
  }
  std::atomic<bool> stop{false};
  Report report({.name = kName,
                 .lists = Lists(options),
                 .progress = ShowsProgress(options.quiet, Lists(options) && !options.progress)},
                BootClock::now());
  Roots roots({options.key_file, options.require, options.plaintext, options.require_encryption},
              stop);
  const Status status = Copy(options, scan, mask, roots, report, stop);
  if (!status.ok()) return Fail(status);
  for (const std::string& path : list.Missing()) {
    report.Failed(path, Listed::IsMissing());
  }
  if (const std::string where = roots.KeptOwner(); !where.empty()) {
    report.Note(where +
                ": its server does not let us give files away: they have the owner that it "
                "gives to new ones");
  }
  if (options.verbosity > 0) {
    for (const std::string& how : roots.Describe()) report.Note(how);
    report.Note(report.Summary(BootClock::now()));
  }
  return report.End();
}

}  // namespace rdfs::copy
