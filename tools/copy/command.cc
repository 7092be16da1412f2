#include "tools/copy/command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "tools/copy/list.h"
#include "tools/copy/local_copy.h"
#include "tools/copy/names.h"
#include "tools/copy/setup.h"
#include "tools/copy/watch.h"
#include "tools/pipe/process.h"

namespace rdfs::copy {
namespace {

constexpr const char* kName = "rdcp";
// Threads that copy. Beyond that they wait for each other in the file system.
constexpr unsigned kLeastCrew = 2;
constexpr unsigned kMostCrew = 8;

int Fail(const Status& status) {
  fmt::print(stderr, "{}: {}\n", kName, status.message());
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

SourceFacts FactsOf(const std::string& path, const ScanOptions& scan) {
  struct stat info {};
  const bool follow = scan.follow || scan.follow_source || path.back() == '/';
  const int status = follow ? stat(path.c_str(), &info) : lstat(path.c_str(), &info);
  return {path, status == 0 && S_ISDIR(info.st_mode)};
}

Result<Targets> Locate(const CopyOptions& options, const ScanOptions& scan) {
  std::vector<SourceFacts> sources;
  for (const Operand& each : options.sources) sources.push_back(FactsOf(each.path, scan));
  return PlaceHere(sources, options.destination.path);
}

// A directory that DST is, or lies in, would be copied for ever.
Status CheckNotInto(const CopyOptions& options, const ScanOptions& scan,
                    const Destination& destination, int root) {
  struct stat there {};
  if (fstat(root, &there) != 0) return Status::FromErrno(errno, "cannot look at DST");
  for (const Operand& each : options.sources) {
    struct stat info {};
    if (!FactsOf(each.path, scan).is_directory || stat(each.path.c_str(), &info) != 0) continue;
    if (options.one_file_system && info.st_dev != there.st_dev) continue;
    if (!destination.IsIn({info.st_dev, info.st_ino})) continue;
    return {Code::kInvalidArgument,
            "the directory '" + Shown(each.path) + "' cannot be copied into itself"};
  }
  return {};
}

bool Lists(const CopyOptions& options) { return options.verbosity > 0 || options.dry_run; }

// As people write it in front of a name.
std::string Prefix(const std::string& root) { return root == "." ? "" : root; }

LocalOptions LocalOf(const CopyOptions& options, const ScanOptions& scan, const Targets& targets) {
  LocalOptions out;
  out.root = Prefix(targets.root);
  out.scan = scan;
  out.keep = options.keep;
  out.policy = options.policy;
  out.remove = options.remove;
  out.verify = options.verify;
  out.dry_run = options.dry_run;
  out.limit = options.limit;
  out.threads =
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), kLeastCrew, kMostCrew));
  return out;
}

Status Copy(const CopyOptions& options, const ScanOptions& scan, mode_t mask, Report& report,
            std::atomic<bool>& stop) {
  RDFS_ASSIGN_OR_RETURN(const Targets targets, Locate(options, scan));
  DestinationOptions to;
  to.keep = options.keep;
  to.umask = mask;
  to.in_place = options.in_place;
  to.resume = options.resume;
  to.same_machine = true;
  to.report = [&](const std::string& path, const Status& status) {
    if (!stop) report.Failed(Joined(Prefix(targets.root), path), status);
  };
  RDFS_ASSIGN_OR_RETURN(const auto destination, Destination::Open(targets.root, to));
  for (std::uint32_t i = 0; i < targets.names.size(); ++i) {
    RDFS_RETURN_IF_ERROR(destination->AddTarget(i, targets.names[i]));
  }
  const Fd root(open(targets.root.c_str(), O_PATH | O_CLOEXEC));
  RDFS_RETURN_IF_ERROR(CheckNotInto(options, scan, *destination, root.get()));

  RDFS_ASSIGN_OR_RETURN(Fd interrupts, pipe::TakeInterrupts());
  std::vector<std::string> sources;
  for (const Operand& each : options.sources) sources.push_back(each.path);
  Watch::Count count = [&](auto& files, auto& bytes, const auto& done) {
    for (const std::string& each : sources) CountTree(each, scan, done, files, bytes);
  };
  // Patterns and lists are the walk's own: how much they leave is not counted.
  if (scan.filter != nullptr) count = nullptr;
  const Watch watch(std::move(interrupts),
                    ShowsProgress(options.quiet, Lists(options) && !options.progress), report, stop,
                    count);
  LocalCopy copy(LocalOf(options, scan, targets), sources, *destination, report, stop);
  for (std::uint32_t i = 0; i < options.sources.size() && !stop; ++i) copy.Add(i);
  copy.Finish();
  if (!stop) return {};
  return {Code::kErrno, EINTR,
          options.resume ? "interrupted; the same command goes on from here"
                         : "interrupted; what was not finished was removed"};
}

}  // namespace

int RunLocal(CopyOptions& options) {
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
  const Status status = Copy(options, scan, mask, report, stop);
  if (!status.ok()) return Fail(status);
  for (const std::string& path : list.Missing()) {
    report.Failed(path, Listed::IsMissing());
  }
  if (options.verbosity > 0) report.Note(report.Summary(BootClock::now()));
  return report.ExitCode();
}

}  // namespace rdfs::copy
