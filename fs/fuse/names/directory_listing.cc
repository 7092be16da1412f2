#include "fs/fuse/names/directory_listing.h"

#include <utility>

namespace rdfs::fs::fuse {

void DirectoryListing::TakeFirst(TimePoint now, client::DirPage& page) {
  Take(0, changes_, now, page);
  if (!entries_.empty()) return;
  ends_ = false;
  current_until_ = {};
}

void DirectoryListing::Take(std::uint64_t cookie, std::uint64_t changes, TimePoint now,
                            client::DirPage& page) {
  const std::uint64_t end = entries_.empty() ? from_ : entries_.back().cookie;
  const bool goes_on = cookie == end && entries_.size() < kMostGathered && IsCurrent(changes, now);
  if (!goes_on) {
    entries_.clear();
    last_told_ = 0;
    current_until_ = {};
    from_ = cookie;
    changes_ = changes;
  }
  const std::size_t before = entries_.size();
  while (auto entry = page.Next()) {
    entries_.push_back({.ino = entry->ino,
                        .cookie = entry->cookie,
                        .type = entry->type,
                        .name = std::string(entry->name),
                        .file = std::move(entry->file)});
  }
  ends_ = page.ends_directory() || entries_.size() == before;
  end_was_told_ = false;
}

std::optional<std::span<const DirectoryListing::Entry>> DirectoryListing::Behind(
    std::uint64_t cookie) const {
  const std::span all(entries_);
  if (cookie == from_) return all;
  for (std::size_t step = 0; step < all.size(); ++step) {
    const std::size_t at = (last_told_ + step) % all.size();
    if (all[at].cookie == cookie) return all.subspan(at + 1);
  }
  return std::nullopt;
}

void DirectoryListing::Told(std::span<const Entry> entries) {
  if (!entries.empty()) last_told_ = static_cast<std::size_t>(&entries.back() - entries_.data());
}

bool DirectoryListing::TakeEnd(std::uint64_t changes, TimePoint now) {
  return ends_ && (!std::exchange(end_was_told_, true) || IsCurrent(changes, now));
}

}  // namespace rdfs::fs::fuse
