#include "tools/copy/local_copy.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"
#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {
namespace {

// Names found and not yet copied: enough to keep the crew busy, few enough that their directories'
// descriptors do not run out.
constexpr std::size_t kMostQueued = 256;

bool IsSpecial(Kind kind) {
  return kind != Kind::kFile && kind != Kind::kDirectory && kind != Kind::kSymlink;
}

Status LeftOut() {
  return {Code::kUnsupported, "it is no regular file, directory or symlink; -a copies such, too"};
}

}  // namespace

LocalCopy::LocalCopy(LocalOptions options, std::vector<Source> sources, Destination& destination,
                     Report& report, const std::atomic<bool>& stop)
    : options_(std::move(options)),
      sources_(std::move(sources)),
      destination_(destination),
      report_(report),
      stop_(stop),
      pace_(options_.limit) {
  for (int i = 0; i < options_.threads; ++i) {
    std::thread thread;
    if (!pipe::StartThread(thread, [this] { Work(); })) break;
    crew_.push_back(std::move(thread));
  }
}

LocalCopy::~LocalCopy() { Finish(); }

void LocalCopy::Finish() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  more_.notify_all();
  for (std::thread& thread : crew_) thread.join();
  crew_.clear();
}

std::string LocalCopy::Shown(const Entry& entry) const {
  const std::string& source = sources_[entry.source].shown;
  if (entry.path.empty()) return source;
  return source.ends_with('/') ? source + entry.path : Joined(source, entry.path);
}

// Of the source's side: what is not there any more has vanished.
void LocalCopy::Problem(const Entry& entry, const Status& status) {
  if (status.code() == Code::kErrno && status.errno_value() == ENOENT) {
    report_.Vanished(Shown(entry));
  } else if (!stop_) {
    report_.Failed(Shown(entry), status);
  }
}

// ---- the scanner's thread -----------------------------------------------------------------------

void LocalCopy::Add(std::uint32_t source) {
  const Source& from = sources_[source];
  auto scanner = Scanner::Open(source, from.path, options_.scan, from.from);
  if (!scanner.ok()) return report_.Failed(from.shown, scanner.status());
  Scanned scanned;
  while (!stop_ && (*scanner)->Next(scanned)) Take(scanned, **scanner);
  seen_.clear();
  if (options_.in_turn) AwaitIdle();
}

void LocalCopy::Take(Scanned& scanned, Scanner& scanner) {
  Note(scanned);
  switch (scanned.what) {
    case Scanned::What::kEnter:
      return Enter(scanned, scanner);
    case Scanned::What::kLeave:
      return Leave(scanned.entry);
    case Scanned::What::kProblem:
      return Problem(scanned.entry, scanned.problem);
    case Scanned::What::kEntry:
      break;
  }
  if (options_.dry_run) return DryRun(scanned);
  auto pin = destination_.Hold(scanned.entry);
  if (!pin.ok()) {
    report_.Passed(1, scanned.entry.size);
    return report_.Failed(Shown(scanned.entry), pin.status());
  }
  Queue({std::move(scanned), *std::move(pin)});
}

void LocalCopy::Note(const Scanned& scanned) {
  if (!options_.remove || seen_.empty() || scanned.what == Scanned::What::kLeave) return;
  // A directory's own problem comes while it is the innermost, a child's under the child's name.
  if (scanned.name.empty() && scanned.what == Scanned::What::kProblem) {
    seen_.back().whole = false;
  } else {
    seen_.back().names.emplace(NameOf(scanned.entry.path));
  }
}

void LocalCopy::Enter(Scanned& scanned, Scanner& scanner) {
  const Entry& entry = scanned.entry;
  Status status = ReadRest(scanned, nullptr, options_.keep);
  if (!status.ok()) Problem(entry, status);
  if (options_.dry_run) {
    const auto now = destination_.Peek(entry);
    if (now.ok() && !*now) report_.Done(Shown(entry) + "/");
  } else if (status = destination_.Enter(entry); !status.ok()) {
    report_.Failed(Shown(entry), status);
    scanner.Skip();
    return;
  }
  if (options_.remove) seen_.push_back({.names = {}, .unread = scanned.unread});
}

void LocalCopy::Leave(const Entry& entry) {
  if (options_.remove) {
    Prune(entry, seen_.back());
    seen_.pop_back();
  }
  if (options_.dry_run) return;
  const Status status = destination_.Leave(entry);
  if (!status.ok()) report_.Failed(Shown(entry), status);
}

void LocalCopy::Prune(const Entry& entry, const Seen& seen) {
  if (seen.unread) return;
  if (!seen.whole || stop_) {
    return report_.Note("nothing is deleted in " + copy::Shown(Shown(entry)) +
                        ": it could not be read to its end");
  }
  const auto keeps = [&](const std::string& path, bool is_directory) {
    // What was excluded is not missing.
    const Filter* filter = options_.scan.filter;
    return filter != nullptr && !filter->MayGo(Joined(entry.path, path), is_directory);
  };
  const auto gone = [&](const std::string& path) {
    report_.Done(Joined(options_.root, path), "deleted ");
  };
  const Status status = options_.dry_run
                            ? destination_.PeekPrune(entry, seen.names, keeps, gone, &stop_)
                            : destination_.Prune(entry, seen.names, keeps, gone, &stop_);
  if (!status.ok()) report_.Failed(Shown(entry), status);
}

void LocalCopy::DryRun(Scanned& scanned) {
  const Entry& entry = scanned.entry;
  if (IsSpecial(entry.kind) && !options_.keep.specials) return Problem(entry, LeftOut());
  const auto now = destination_.Peek(entry);
  if (!now.ok()) return report_.Failed(Shown(entry), now.status());
  Verdict verdict = Decide(entry, *now, options_.policy);
  if (verdict == Verdict::kCompare && entry.kind == Kind::kSymlink) {
    const Status read = ReadRest(scanned, nullptr, {});
    if (!read.ok()) return Problem(entry, read);
    verdict = destination_.PeekSameLink(entry) ? Verdict::kSame : Verdict::kCopy;
  }
  if (verdict == Verdict::kLeave || verdict == Verdict::kSame) {
    return report_.Passed(1, entry.size);
  }
  report_.Done(Shown(entry), verdict == Verdict::kCompare ? "compare " : "");
  report_.Copied();
  report_.bytes() += entry.size;
}

void LocalCopy::Queue(Item item) {
  if (crew_.empty()) return Do(item);  // no thread can be made here
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return queue_.size() < kMostQueued; });
  queue_.push_back(std::move(item));
  lock.unlock();
  more_.notify_one();
}

void LocalCopy::AwaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return queue_.empty() && busy_ == 0; });
}

// ---- the crew -----------------------------------------------------------------------------------

void LocalCopy::Work() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return ended_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      ++busy_;
      if (queue_.size() == kMostQueued / 2) room_.notify_one();
    }
    Do(item);
    item = {};  // lets go of its directory
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0 && queue_.empty()) idle_.notify_one();
  }
}

void LocalCopy::Do(Item& item) {
  const std::uint64_t size = item.scanned.entry.size;
  if (!stop_ && !CopyOne(item.scanned)) report_.Passed(1, size);
}

bool LocalCopy::CopyOne(Scanned& scanned) {
  const Entry& entry = scanned.entry;
  const auto fails = [&](const Status& status) {
    report_.Failed(Shown(entry), status);
    return false;
  };
  if (IsSpecial(entry.kind) && !options_.keep.specials) {
    Problem(entry, LeftOut());
    return false;
  }
  const auto verdict = Judge(entry);
  if (!verdict.ok()) return fails(verdict.status());
  const bool whole = *verdict == Verdict::kSame || *verdict == Verdict::kLeave;
  using Turn = Destination::Turn;
  std::function<void()> made;
  if (entry.links > 1) made = [this, shown = Shown(entry)] { report_.Done(shown); };
  const auto turn =
      destination_.TakeTurn(entry, whole, std::move(made), *verdict == Verdict::kLeave);
  if (!turn.ok()) return fails(turn.status());
  if (*turn == Turn::kLink) report_.Done(Shown(entry));
  if (*turn != Turn::kFirst || *verdict == Verdict::kLeave) return false;

  // Said there, by whose side it is.
  if (entry.kind == Kind::kFile ? !CopyFile(scanned, *verdict) : !MakeOther(scanned, *verdict))
    return false;
  report_.Copied();
  report_.Done(Shown(entry));
  return true;
}

bool LocalCopy::MakeOther(Scanned& scanned, Verdict verdict) {
  const Entry& entry = scanned.entry;
  Status status = ReadRest(scanned, nullptr, options_.keep);
  if (!status.ok()) {
    destination_.Settle(entry, false);
    Problem(entry, status);
    return false;
  }
  bool same = verdict == Verdict::kSame;
  if (verdict == Verdict::kCompare) {
    const auto target = destination_.ReadExistingLink(entry);
    same = target.ok() && *target == entry.target;
    if (same) destination_.Settle(entry, true);
  }
  status = same ? destination_.Touch(entry) : destination_.Make(entry);
  if (!status.ok()) report_.Failed(Shown(entry), status);
  return status.ok() && !same;
}

Result<Verdict> LocalCopy::Judge(const Entry& entry) {
  const Policy& policy = options_.policy;
  if (!policy.update && !policy.sync && !policy.checksum) return Verdict::kCopy;
  RDFS_ASSIGN_OR_RETURN(const auto now, destination_.Look(entry));
  return Decide(entry, now, policy);
}

}  // namespace rdfs::copy
