// ReceiveCrew: what is there already, what goes, and dry runs.
#include <utility>

#include "tools/copy/file/names.h"
#include "tools/copy/remote/content.h"
#include "tools/copy/remote/receive_crew.h"

namespace rdfs::copy {

Verdict ReceiveCrew::Judge(const Entry& entry) {
  const Policy& policy = settings_.policy;
  if (!policy.update && !policy.sync && !policy.checksum) return Verdict::kCopy;
  const auto now = destination_.Look(entry);
  // Whoever makes it will say what is wrong.
  return now.ok() ? Decide(entry, *now, settings_.policy) : Verdict::kCopy;
}

// Whether what is at its place will do; it gets the attributes that are missing.
bool ReceiveCrew::IsThere(const Entry& entry, Verdict verdict,
                          const std::optional<Digest>& digest) {
  if (verdict == Verdict::kLeave) {
    Pass(entry);
    return true;
  }
  bool same = verdict == Verdict::kSame;
  if (verdict == Verdict::kCompare && entry.kind == Kind::kSymlink) {
    const auto target = destination_.ReadExistingLink(entry);
    same = target.ok() && *target == entry.target;
    if (same) destination_.Settle(entry, true);
  }
  if (verdict == Verdict::kCompare && digest && HasContent(entry, *digest)) {
    same = true;
    destination_.Settle(entry, true);
  }
  if (!same) return false;
  Pass(entry);
  if (const Status touched = destination_.Touch(entry); !touched.ok()) TellOf(entry, touched);
  return true;
}

bool ReceiveCrew::HasContent(const Entry& entry, const Digest& digest) {
  const auto there = destination_.OpenExisting(entry);
  if (!there.ok()) return false;
  const auto its = ContentDigest(**there, entry.size, stop_);
  return its.ok() && *its == digest;
}

// Deletes what the source does not have, now that all of its names have been heard.
void ReceiveCrew::Prune(const LeaveRecord& record) {
  if (stop_) return;
  const Entry& entry = record.entry;
  if (record.partial) {
    // With -x: what is mounted there is not read, and nobody expects it to be.
    const bool unread = settings_.asked.one_file_system && seen_.back().empty();
    if (settings_.unsent && !unread) settings_.unsent(Named(entry));
    return;
  }
  const auto keeps = [&](const std::string& path, bool is_directory) {
    const Filter* filter = settings_.asked.filter;
    return filter != nullptr && !filter->MayGo(Joined(entry.path, path), is_directory);
  };
  const auto gone = [&](const std::string& path) {
    if (settings_.gone) settings_.gone(path);
  };
  const auto would_go = [&](const std::string& path) {
    Put(Notice{Notice::What::kGone, path, ""});
  };
  const Status status = settings_.dry_run
                            ? destination_.PeekPrune(entry, seen_.back(), keeps, would_go, &stop_)
                            : destination_.Prune(entry, seen_.back(), keeps, gone, &stop_);
  if (!status.ok()) TellOf(entry, status);
}

// ---- dry runs -----------------------------------------------------------------------------------

void ReceiveCrew::Rehearse(const EntryRecord& record) {
  const Entry& entry = record.entry;
  if (!seen_.empty()) seen_.back().emplace(NameOf(entry.path));
  if (entry.kind == Kind::kDirectory) return RehearseDirectory(entry);
  const auto now = destination_.Peek(entry);
  if (!now.ok()) return TellOf(entry, now.status());
  Verdict verdict = Decide(entry, *now, settings_.policy);
  if (verdict == Verdict::kCompare && entry.kind == Kind::kSymlink) {
    verdict = destination_.PeekSameLink(entry) ? Verdict::kSame : Verdict::kCopy;
  }
  if (verdict == Verdict::kLeave || verdict == Verdict::kSame) return;
  const char* what = verdict == Verdict::kCompare ? "compare" : "";
  Put(Notice{Notice::What::kWould, Named(entry), what});
}

void ReceiveCrew::RehearseDirectory(const Entry& entry) {
  if (settings_.remove) seen_.emplace_back();
  const auto now = destination_.Peek(entry);
  if (!now.ok()) return TellOf(entry, now.status());
  if (!*now) Put(Notice{Notice::What::kWould, Named(entry) + "/", ""});
}

void ReceiveCrew::RehearseLeave(const LeaveRecord& record) {
  if (seen_.empty()) return;
  Prune(record);
  seen_.pop_back();
}

}  // namespace rdfs::copy
