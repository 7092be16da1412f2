#include "fs/fuse/names/new_directories.h"

#include <algorithm>
#include <climits>
#include <string>

namespace rdfs::fs::fuse {
namespace {

// Whether a file system that folds names can take it for no other than one that differs in the case
// of its letters: FAT drops dots and spaces at the end and makes short names with a '~', Unicode
// folds some letters onto ASCII.
bool IsPlain(std::string_view name) {
  return !name.empty() && name.back() != '.' && name.back() != ' ' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= ' ' && c < '\x7f' && c != '~'; });
}

std::uint64_t HashOf(std::string_view name) {
  std::string folded(name);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return std::hash<std::string_view>()(folded);
}

}  // namespace

void NewDirectories::EraseLocked(Directories::iterator at) {
  names_ -= at->second.names.size();
  known_.erase(at);
}

void NewDirectories::Made(NodeId directory, TimePoint until, TimePoint now) {
  if (until <= now) return;
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMostDirectories) {
    known_.clear();
    names_ = 0;
  }
  known_[directory] = {.until = until};
}

void NewDirectories::Renew(NodeId directory, TimePoint until, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(directory);
  if (found == known_.end()) return;
  if (found->second.until <= now) return EraseLocked(found);
  if (until > now + unwatched_) found->second.until = std::max(found->second.until, until);
}

void NewDirectories::Adds(NodeId directory, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(directory);
  if (found == known_.end()) return;
  if (!IsPlain(name) || names_ >= kMostNames) return EraseLocked(found);
  if (found->second.names.insert(HashOf(name)).second) ++names_;
}

TimePoint NewDirectories::AbsentUntil(NodeId directory, std::string_view name,
                                      TimePoint now) const {
  if (!IsPlain(name) || name.size() > NAME_MAX) return now;
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(directory);
  if (found == known_.end() || found->second.names.contains(HashOf(name))) return now;
  return std::max(found->second.until, now);
}

void NewDirectories::Forget(NodeId directory) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(directory); found != known_.end()) EraseLocked(found);
}

void NewDirectories::ForgetAll() {
  const std::lock_guard lock(mutex_);
  known_.clear();
  names_ = 0;
}

}  // namespace rdfs::fs::fuse
