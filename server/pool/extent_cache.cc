#include "server/pool/extent_cache.h"

#include <algorithm>

namespace rdfs::server {
namespace {

// Of all that a search for memory looks at, so that a read never walks the whole cache.
constexpr int kMaxLookedAt = 64;
constexpr int kMaxEvictions = 512;
// Files without extents are kept for their version, up to this many.
constexpr std::size_t kMaxIdleFiles = 1 << 16;
// Below this, ready extents are left alone when a larger one could take their place.
constexpr unsigned kReplacingOrder = 5;
// So many extents in kMaxExtentBytes of a file, and one large extent takes their place: at worst 16
// times the bytes are read that were asked for, once.
constexpr std::size_t kDenseGroup = 16;

std::uint64_t AlignDown(std::uint64_t offset, std::uint64_t unit) { return offset / unit * unit; }

std::uint64_t SaturatingEnd(std::uint64_t offset, std::uint64_t length) {
  return length > ~offset ? ~std::uint64_t{0} : offset + length;
}

}  // namespace

ExtentCache::ExtentCache(BlockPool& pool, const GrantTable::Options& grants)
    : pool_(pool), grants_(grants) {}

ExtentCache::~ExtentCache() = default;

CachedFile& ExtentCache::UseFile(const FileId& id) {
  std::unique_ptr<CachedFile>& file = files_[id];
  if (file == nullptr) {
    file = std::make_unique<CachedFile>();
    file->id = id;
  }
  ++file->users;
  return *file;
}

void ExtentCache::LeaveFile(CachedFile& file) {
  --file.users;
  PruneFile(file);
}

void ExtentCache::PruneFile(CachedFile& file) {
  if (file.users > 0 || file.extents > 0 || files_.size() <= kMaxIdleFiles) return;
  files_.erase(FileId(file.id));
}

CachedFile* ExtentCache::FindFile(const FileId& id) {
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : found->second.get();
}

bool ExtentCache::Fresh(const CachedFile& file, TimePoint now,
                        std::chrono::nanoseconds attr_lease) {
  return file.known && now < file.checked_at + attr_lease;
}

bool ExtentCache::Observe(CachedFile& file, const FileVersion& version, std::uint64_t changes,
                          TimePoint asked_at, std::chrono::nanoseconds realtime) {
  if (changes != file.changes) return false;
  if (file.known && file.checked_at > asked_at) return true;  // somebody has looked later
  const bool proven = file.known && !file.changed && !file.racy && file.version == version;
  if (!proven) DropAll(file, asked_at);
  file.version = version;
  file.known = true;
  file.changed = false;
  file.racy = version.RacyAt(realtime);
  file.checked_at = asked_at;
  return true;
}

void ExtentCache::Change(CachedFile& file, std::uint64_t offset, std::uint64_t length,
                         const FileVersion* after, TimePoint now) {
  ++file.changes;
  file.changed = true;
  const std::uint64_t end = SaturatingEnd(offset, length);
  // What reaches to the end of the file says that it ends there.
  const std::uint64_t old_size = file.version.size;
  if (end > old_size && old_size > 0) offset = std::min(offset, old_size - 1);
  // Two writers may tell in another order than they wrote; an inode's change time never goes back.
  if (after != nullptr && after->ctime > file.version.ctime) {
    file.version = *after;
  } else {
    file.known = false;
  }
  std::vector<Extent*> overlapping;
  const auto collect = [&](const std::vector<Extent*>& group) {
    for (Extent* extent : group) {
      if (extent->start < end && offset < extent->end()) overlapping.push_back(extent);
    }
  };
  const std::uint64_t first = offset / kMaxExtentBytes;
  const std::uint64_t last = (end - (end > offset ? 1 : 0)) / kMaxExtentBytes;
  if (last - first < file.groups.size()) {
    for (std::uint64_t key = first; key <= last; ++key) {
      if (const auto found = file.groups.find(key); found != file.groups.end()) {
        collect(found->second);
      }
    }
  } else {
    for (const auto& [key, group] : file.groups) collect(group);
  }
  for (Extent* extent : overlapping) Drop(*extent, now);
}

void ExtentCache::DropAll(CachedFile& file, TimePoint now) {
  if (file.extents == 0) return;
  ++file.changes;
  std::vector<Extent*> all;
  for (const auto& [key, group] : file.groups) all.insert(all.end(), group.begin(), group.end());
  for (Extent* extent : all) Drop(*extent, now);
}

void ExtentCache::Drop(Extent& extent, TimePoint now) {
  ++dropped_;
  Detach(extent, now);
}

bool ExtentCache::Complete(const Extent& extent) {
  return extent.valid_end() >= std::min(extent.end(), extent.file->version.size);
}

Extent* ExtentCache::Find(const CachedFile& file, std::uint64_t offset) {
  const auto found = file.groups.find(offset / kMaxExtentBytes);
  if (found == file.groups.end()) return nullptr;
  const std::vector<Extent*>& group = found->second;
  const auto behind = std::ranges::upper_bound(group, offset, {}, &Extent::start);
  if (behind == group.begin()) return nullptr;
  Extent* extent = *std::prev(behind);
  return offset < extent->end() ? extent : nullptr;
}

unsigned ExtentCache::ChooseOrder(CachedFile& file, std::uint64_t offset, std::uint64_t length,
                                  std::uint64_t ahead) {
  // A run may skip or go back a little: the kernel's read-ahead does not ask strictly in order.
  const std::uint64_t apart =
      offset > file.next_offset ? offset - file.next_offset : file.next_offset - offset;
  const bool goes_on = file.run_bytes > 0 && apart <= kLongRead;
  file.run_bytes = goes_on ? file.run_bytes + length : length;
  file.next_offset = offset + length;

  unsigned order = ExtentOrderFor(length + offset % kExtentPageBytes);
  if (length + ahead >= kLongRead || (goes_on && file.run_bytes >= 4 * kLongRead)) {
    order = kMaxExtentOrder;
  } else if (goes_on && file.run_bytes >= kLongRead / 2) {
    order = std::max(order, ExtentOrderFor(kLongRead));
  }
  // Random reads that come back to the same megabyte get all of it.
  const auto group = file.groups.find(offset / kMaxExtentBytes);
  if (group != file.groups.end() && group->second.size() >= kDenseGroup) order = kMaxExtentOrder;
  return ClipOrder(file.version.size, offset, order);
}

unsigned ExtentCache::ClipOrder(std::uint64_t size, std::uint64_t offset, unsigned order) {
  while (order > 0) {
    const std::uint64_t middle = AlignDown(offset, ExtentBytes(order)) + ExtentBytes(order - 1);
    if (offset >= middle || size > middle) break;
    --order;
  }
  return order;
}

bool ExtentCache::MayTake(const CachedFile& file, std::uint64_t start, unsigned order,
                          std::vector<Extent*>* replaced) {
  replaced->clear();
  const auto found = file.groups.find(start / kMaxExtentBytes);
  if (found == file.groups.end()) return true;
  const std::uint64_t end = start + ExtentBytes(order);
  for (Extent* extent : found->second) {
    if (extent->start >= end || extent->end() <= start) continue;
    if (extent->state == Extent::State::kFilling || order < kReplacingOrder) return false;
    replaced->push_back(extent);
  }
  return true;
}

Extent* ExtentCache::Begin(CachedFile& file, std::uint64_t offset, unsigned order, TimePoint now) {
  std::vector<Extent*> replaced;
  std::optional<Block> block;
  for (unsigned smaller = 0; smaller <= order && !block; ++smaller) {
    if (!MayTake(file, AlignDown(offset, ExtentBytes(order - smaller)), order - smaller,
                 &replaced)) {
      continue;
    }
    block = AllocateBlock(order - smaller, now);
    if (!block && pool_.MayGrow()) return nullptr;  // better an arena than a small extent
  }
  if (!block) return nullptr;
  MayTake(file, AlignDown(offset, block->bytes()), block->order, &replaced);  // evicting took some
  for (Extent* extent : replaced) Drop(*extent, now);

  auto made = std::make_unique<Extent>();
  Extent& extent = *made;
  extents_.emplace(&extent, std::move(made));
  extent.file = &file;
  extent.start = AlignDown(offset, block->bytes());
  extent.block = *block;
  extent.pins = 1;
  extent.number = next_number_++;
  extent.generation = pool_.Generation(*block);
  extent.filled_at = now;
  Insert(file, extent);
  return &extent;
}

void ExtentCache::Insert(CachedFile& file, Extent& extent) {
  std::vector<Extent*>& group = file.groups[extent.start / kMaxExtentBytes];
  group.insert(std::ranges::upper_bound(group, extent.start, {}, &Extent::start), &extent);
  ++file.extents;
  extent.place = probation_.insert(probation_.end(), &extent);
  probation_bytes_ += extent.block.bytes();
}

void ExtentCache::Detach(Extent& extent, TimePoint now) {
  CachedFile& file = *extent.file;
  const auto group = file.groups.find(extent.start / kMaxExtentBytes);
  std::erase(group->second, &extent);
  if (group->second.empty()) file.groups.erase(group);
  --file.extents;
  (extent.in_protected ? protected_ : probation_).erase(extent.place);
  (extent.in_protected ? protected_bytes_ : probation_bytes_) -= extent.block.bytes();
  extent.state = Extent::State::kResting;
  extent.file = nullptr;
  pool_.BumpGeneration(extent.block);
  TryFree(extent, now);
  PruneFile(file);
}

void ExtentCache::TryFree(Extent& extent, TimePoint now) {
  if (extent.state != Extent::State::kResting || extent.filling || extent.pins > 0) return;
  const TimePoint until = grants_.LeasedUntil(extent.number);
  if (until != TimePoint{} && until >= now) {
    resting_.push({until, &extent});
    return;
  }
  pool_.FreeBumped(extent.block);
  extents_.erase(&extent);
}

void ExtentCache::Sweep(TimePoint now) {
  while (!resting_.empty() && resting_.top().until < now) {
    Extent* extent = resting_.top().extent;
    resting_.pop();
    TryFree(*extent, now);
  }
}

bool ExtentCache::Finish(Extent& extent, std::uint32_t valid, TimePoint now,
                         std::vector<Waiter>* waiters) {
  *waiters = std::move(extent.waiters);
  extent.waiters.clear();
  extent.filling = false;
  extent.valid = valid;
  extent.filled_at = now;
  if (extent.state == Extent::State::kResting) {
    TryFree(extent, now);
    return false;
  }
  extent.state = Extent::State::kReady;
  return true;
}

void ExtentCache::Abort(Extent& extent, TimePoint now, std::vector<Waiter>* waiters) {
  *waiters = std::move(extent.waiters);
  extent.waiters.clear();
  extent.filling = false;
  if (extent.state == Extent::State::kResting) {
    TryFree(extent, now);
  } else {
    Detach(extent, now);
  }
}

void ExtentCache::Unpin(Extent& extent, TimePoint now) {
  --extent.pins;
  TryFree(extent, now);
}

void ExtentCache::Touch(Extent& extent, TimePoint now) {
  if (!extent.referenced && now - extent.filled_at >= kCorrelated) extent.referenced = true;
}

bool ExtentCache::Grant(const Extent& extent, std::uint64_t session, TimePoint now,
                        std::chrono::nanoseconds lease) {
  return extent.state == Extent::State::kReady &&
         grants_.Grant(session, extent.number, extent.block.bytes(), now, lease);
}

std::optional<Block> ExtentCache::AllocateBlock(unsigned order, TimePoint now) {
  Sweep(now);
  std::optional<Block> block = pool_.Allocate(order);
  if (block) return block;
  wants_arena_ = true;
  if (pool_.MayGrow()) return std::nullopt;
  for (int i = 0; i < kMaxEvictions && !block && EvictOne(now); ++i) {
    block = pool_.Allocate(order);
  }
  return block;
}

bool ExtentCache::EvictOne(TimePoint now) {
  int looked_at = 0;
  const bool probation_first =
      probation_bytes_ > (probation_bytes_ + protected_bytes_) / 4 || protected_.empty();
  std::list<Extent*>& first = probation_first ? probation_ : protected_;
  std::list<Extent*>& second = probation_first ? protected_ : probation_;
  return EvictFrom(first, now, &looked_at) || EvictFrom(second, now, &looked_at);
}

bool ExtentCache::EvictFrom(std::list<Extent*>& queue, TimePoint now, int* looked_at) {
  while (!queue.empty() && (*looked_at)++ < kMaxLookedAt) {
    Extent& extent = *queue.front();
    const bool busy =
        extent.pins > 0 || extent.filling || grants_.LeasedUntil(extent.number) >= now;
    if (!busy && !extent.referenced) {
      ++evicted_;
      Detach(extent, now);
      return true;
    }
    if (extent.referenced && !extent.in_protected) {
      extent.in_protected = true;
      probation_bytes_ -= extent.block.bytes();
      protected_bytes_ += extent.block.bytes();
      protected_.splice(protected_.end(), queue, extent.place);
    } else {
      queue.splice(queue.end(), queue, extent.place);
    }
    if (!busy) extent.referenced = false;
  }
  return false;
}

}  // namespace rdfs::server
