#include "server/pool/extent_store.h"

#include <algorithm>
#include <utility>

#include "server/pool/extent_fill.h"
#include "server/pool/extent_read.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// Less than half an arena left: time to make another one.
constexpr std::size_t kGrowBelow = 32 << 20;

GrantTable::Options GrantBounds(const StoreOptions& options, std::size_t capacity) {
  const std::size_t never = capacity / 100 * std::min(options.never_granted_percent, 100U);
  return {.session_bytes = options.session_bytes != 0 ? options.session_bytes : capacity / 4 * 3,
          .total_bytes = capacity - never};
}

}  // namespace

ExtentStore::ExtentStore(std::shared_ptr<transport::Domain> domain, const StoreOptions& options,
                         const Clock& clock)
    : options_(options),
      clock_(clock),
      pool_(BlockPool::Create(std::move(domain), options.pool)),
      cache_(*pool_, GrantBounds(options, pool_->capacity_bytes())) {}

ExtentStore::~ExtentStore() = default;

void ExtentStore::Read(FileIo& io, StoreRead read, StoreReadDone done) {
  std::make_shared<ExtentStoreRead>(*this, io, std::move(read), std::move(done))->Run();
}

void ExtentStore::Changed(const FileId& file, std::uint64_t offset, std::uint64_t length,
                          const FileVersion* after) {
  const std::lock_guard lock(mutex_);
  if (CachedFile* known = cache_.FindFile(file); known != nullptr) {
    cache_.Change(*known, offset, length, after, clock_.Now());
  }
}

void ExtentStore::NoteVersion(const FileId& file, const FileVersion& version, Racy racy) {
  const std::lock_guard lock(mutex_);
  CachedFile* known = cache_.FindFile(file);
  if (known == nullptr) return;
  const bool proves = !known->racy || racy == Racy::kProves;
  if (known->version == version && proves) return;
  known->known = false;
}

void ExtentStore::GrowPool(FileIo& io) {
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!pool_->MayGrow()) return;
    index = pool_->TakeIndex();
  }
  Result<std::unique_ptr<Arena>> arena = pool_->MakeArena(index);
  if (arena.ok()) {
    const std::shared_ptr<SharedMemory> memory = (*arena)->memory().memory();
    io.Offload(
        [memory] {
          BlockPool::Populate(*memory);
          return std::int64_t{0};
        },
        [](std::int64_t) {});
  }
  const std::lock_guard lock(mutex_);
  AddArena(std::move(arena));
}

void ExtentStore::GrowAhead(FileIo& io) {
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (growing_ || !pool_->MayGrow() || pool_->free_bytes() > kGrowBelow) return;
    growing_ = true;
    index = pool_->TakeIndex();
  }
  using Made = Result<std::unique_ptr<Arena>>;
  auto made = std::make_shared<Made>(Status(Code::kInternal, "not made yet"));
  io.Offload(
      [this, index, made] {
        *made = pool_->MakeArena(index);
        if (made->ok()) BlockPool::Populate(*(**made)->memory().memory());
        return std::int64_t{0};
      },
      [this, made](std::int64_t) {
        const std::lock_guard lock(mutex_);
        growing_ = false;
        AddArena(std::move(*made));
      });
}

// With the lock.
void ExtentStore::AddArena(Result<std::unique_ptr<Arena>> arena) {
  cache_.ArenaComes();
  if (arena.ok()) {
    pool_->Add(*std::move(arena));
  } else {
    pool_->GiveUpIndex();
    LogWarn("the block pool stays smaller than it may be: {}", arena.status().message());
  }
}

void ExtentStore::FillAhead(FileIo& io, const FileId& file, FileIo::SharedFd fd, std::uint64_t from,
                            std::uint64_t to) {
  // One extent a task: between two of them the loop serves whoever waits.
  io.Defer([this, &io, file, fd = std::move(fd), from, to] {
    const std::uint64_t next = FillOneAhead(io, file, fd, from, to);
    if (next < to) FillAhead(io, file, fd, next, to);
  });
}

// Returns where to go on; `to` to stop.
std::uint64_t ExtentStore::FillOneAhead(FileIo& io, const FileId& id, const FileIo::SharedFd& fd,
                                        std::uint64_t from, std::uint64_t to) {
  Extent* extent = nullptr;
  CachedFile* file = nullptr;
  std::uint64_t size = 0;
  std::uint64_t position = from;
  bool wants_arena = false;
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.Now();
    file = cache_.FindFile(id);
    if (file == nullptr || !ExtentCache::Fresh(*file, now, options_.attr_lease)) return to;
    size = file->version.size;
    to = std::min(to, size);
    while (const Extent* there = position < to ? ExtentCache::Find(*file, position) : nullptr) {
      position = there->end();
    }
    if (position >= to) return kToEnd;
    file = &cache_.UseFile(id);
    extent =
        cache_.Begin(*file, position, ExtentCache::ClipOrder(size, position, kMaxExtentOrder), now);
    if (extent == nullptr) {
      cache_.LeaveFile(*file);
      wants_arena = cache_.WantsArena();
    } else {
      position = extent->end();
    }
  }
  if (extent == nullptr) {
    if (!wants_arena) return kToEnd;  // nothing to spare for guesses
    GrowPool(io);
    return position;
  }
  const auto filled = [this, &io, extent, file](std::int64_t result) {
    std::vector<Waiter> waiters;
    {
      const std::lock_guard lock(mutex_);
      const TimePoint now = clock_.Now();
      if (result < 0) {
        cache_.Abort(*extent, now, &waiters);
      } else {
        cache_.Finish(*extent, static_cast<std::uint32_t>(result), now, &waiters);
      }
      cache_.Unpin(*extent, now);
      cache_.LeaveFile(*file);
    }
    for (const Waiter& waiter : waiters) waiter(&io);
  };
  if (!ExtentFill::Start(io, fd, *file, extent->start, extent->block.memory(), size, filled)) {
    io.Submit();
  }
  return position;
}

StoreStats ExtentStore::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.dropped = cache_.dropped();
  stats.evicted = cache_.evicted();
  stats.cached_bytes = pool_->allocated_bytes();
  stats.leased_bytes = cache_.grants().leased_bytes();
  stats.capacity_bytes = pool_->capacity_bytes();
  return stats;
}

void ExtentStores::Add(std::shared_ptr<ExtentStore> store) {
  const std::lock_guard lock(mutex_);
  stores_.push_back(std::move(store));
}

void ExtentStores::Remove(const ExtentStore* store) {
  const std::lock_guard lock(mutex_);
  std::erase_if(stores_, [store](const auto& held) { return held.get() == store; });
}

void ExtentStores::Changed(const FileId& file, std::uint64_t offset, std::uint64_t length,
                           const FileVersion* after) const {
  const std::lock_guard lock(mutex_);
  for (const auto& store : stores_) store->Changed(file, offset, length, after);
}

void ExtentStores::NoteVersion(const FileId& file, const FileVersion& version,
                               ExtentStore::Racy racy) const {
  const std::lock_guard lock(mutex_);
  for (const auto& store : stores_) store->NoteVersion(file, version, racy);
}

}  // namespace rdfs::server
