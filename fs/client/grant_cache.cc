#include "fs/client/grant_cache.h"

#include <algorithm>

#include "fs/client/types.h"

namespace rdfs::fs::client {
namespace {

// A READ that starts this close to the end of a lease would come too late.
constexpr std::chrono::milliseconds kLeastLease{2};

bool Usable(const CachedGrant& grant, TimePoint now) { return now + kLeastLease < grant.expires; }

// The first grant that ends behind `offset`.
auto FirstBehind(std::vector<CachedGrant>& grants, std::uint64_t offset) {
  return std::partition_point(grants.begin(), grants.end(),
                              [offset](const CachedGrant& g) { return g.end() <= offset; });
}

}  // namespace

CachedGrant CachedGrant::From(const GrantWire& wire, TimePoint asked) {
  return {.file_offset = wire.file_offset,
          .length = wire.length,
          .arena = wire.arena,
          .arena_offset = wire.arena_offset,
          .generation_arena = wire.generation_arena,
          .generation_offset = wire.generation_offset,
          .generation = wire.generation,
          .expires = LeaseEnd(asked, wire.lease_ms)};
}

GrantCache::File* GrantCache::Valid(const InodeState& inode) {
  const auto found = index_.find(&inode);
  if (found == index_.end()) return nullptr;
  File& file = *found->second;
  if (file.own_changes != inode.own_changes.load(std::memory_order_acquire)) {
    DropFile(inode);
    return nullptr;
  }
  files_.splice(files_.begin(), files_, found->second);
  return &file;
}

void GrantCache::Insert(const std::shared_ptr<InodeState>& inode, std::uint64_t own_changes,
                        std::uint64_t change, std::uint64_t file_size,
                        std::span<const CachedGrant> grants) {
  if (own_changes != inode->own_changes.load(std::memory_order_acquire)) return;
  File* file = Valid(*inode);
  if (file != nullptr && file->change != change) file->grants.clear();
  if (file == nullptr) {
    if (grants.empty()) return;
    files_.push_front({.inode = inode});
    index_[inode.get()] = files_.begin();
    file = &files_.front();
  }
  file->own_changes = own_changes;
  file->change = change;
  file->file_size = file_size;
  for (const CachedGrant& grant : grants) InsertOne(*file, grant);
  // A sequential reader leaves the low end behind.
  if (file->grants.size() > limits_.grants_per_file) {
    const auto surplus = file->grants.size() - limits_.grants_per_file;
    file->grants.erase(file->grants.begin(),
                       file->grants.begin() + static_cast<std::ptrdiff_t>(surplus));
  }
  if (files_.size() > limits_.files) DropFile(*files_.back().inode);
}

void GrantCache::InsertOne(File& file, const CachedGrant& grant) {
  auto at = FirstBehind(file.grants, grant.file_offset);
  auto end = at;
  while (end != file.grants.end() && end->file_offset < grant.end()) ++end;
  if (at != end) {
    *at = grant;
    file.grants.erase(at + 1, end);
  } else {
    file.grants.insert(at, grant);
  }
}

GrantCache::Cover GrantCache::Find(const InodeState& inode, std::uint64_t offset,
                                   std::uint32_t length, TimePoint now, std::span<GrantPiece> out) {
  Cover cover;
  File* file = Valid(inode);
  if (file == nullptr || offset >= file->file_size) return cover;
  cover.file_size = file->file_size;
  const std::uint64_t end = std::min(offset + length, file->file_size);
  auto at = FirstBehind(file->grants, offset);
  while (offset < end && cover.pieces < out.size() && at != file->grants.end() &&
         at->file_offset <= offset && Usable(*at, now)) {
    const std::uint64_t piece_end = std::min(end, at->end());
    const auto taken = static_cast<std::uint32_t>(piece_end - offset);
    out[cover.pieces++] = {.grant = *at,
                           .skip = static_cast<std::uint32_t>(offset - at->file_offset),
                           .length = taken};
    cover.length += taken;
    offset = piece_end;
    ++at;
  }
  cover.to_end_of_file = offset == file->file_size;
  return cover;
}

GrantCache::Reach GrantCache::ReachFrom(const InodeState& inode, std::uint64_t offset,
                                        TimePoint now) {
  File* file = Valid(inode);
  if (file == nullptr) return {.end = offset};
  auto at = FirstBehind(file->grants, offset);
  while (at != file->grants.end() && at->file_offset <= offset && Usable(*at, now)) {
    offset = at->end();
    ++at;
  }
  return {.end = offset, .to_end_of_file = offset >= file->file_size};
}

void GrantCache::OwnChange(InodeState& inode, std::uint64_t from, std::uint64_t end) {
  const std::uint64_t before = inode.own_changes.fetch_add(1, std::memory_order_acq_rel);
  const auto found = index_.find(&inode);
  if (found == index_.end()) return;
  File& file = *found->second;
  // What reaches the end of the file says where it ends: not true any more when it grows.
  if (file.own_changes != before || end > file.file_size) {
    DropFile(inode);
    return;
  }
  file.own_changes = before + 1;
  std::erase_if(file.grants, [&](const CachedGrant& grant) {
    return grant.file_offset < end && from < grant.end();
  });
}

void GrantCache::DropFile(const InodeState& inode) {
  const auto found = index_.find(&inode);
  if (found == index_.end()) return;
  const Files::iterator file = found->second;
  index_.erase(found);
  files_.erase(file);  // last: it may hold the last reference to the inode
}

void GrantCache::DropArena(std::uint32_t arena) {
  for (File& file : files_) {
    std::erase_if(file.grants, [arena](const CachedGrant& grant) {
      return grant.arena == arena || grant.generation_arena == arena;
    });
  }
}

void GrantCache::Clear() {
  index_.clear();
  files_.clear();
}

std::size_t GrantCache::grants() const {
  std::size_t count = 0;
  for (const File& file : files_) count += file.grants.size();
  return count;
}

}  // namespace rdfs::fs::client
