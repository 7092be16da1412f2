#include "server/pool/extent_read.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "server/pool/extent_fill.h"

namespace rdfs::server {
namespace {

// A file that keeps changing under a read: after this many tries it is read past the pool.
constexpr int kMaxAttempts = 4;
// An extent this small is replaced when a long read comes by: a reply has room for few grants.
constexpr unsigned kSmallOrder = 3;
// Extents from 64 KiB on are worth a grant for a read of a few of their bytes.
constexpr unsigned kWorthGranting = 4;
constexpr std::chrono::seconds kUnreadable{60};

std::chrono::nanoseconds RealTime() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

ExtentStoreRead::ExtentStoreRead(ExtentStore& store, FileIo& io, StoreRead read, StoreReadDone done)
    : store_(store), io_(io), read_(std::move(read)), done_(std::move(done)) {
  read_.length = std::min<std::uint32_t>(read_.length, fs::kMaxTransferBytes);
  read_.want_ahead = std::min(read_.want_ahead, ExtentStore::kMaxAheadBytes);
  const std::lock_guard lock(store_.mutex_);
  file_ = &store_.cache_.UseFile(read_.file);
}

void ExtentStoreRead::Run() {
  if (!LearnVersion()) return;
  end_ = std::min(read_.offset + read_.length, size_);
  if (read_.offset >= end_) {
    Reply({.covered = read_.offset, .file_size = size_, .version = version_});
    return;
  }
  if (!Collect()) {
    ReadPast();
    return;
  }
  StartFills();
  // Fills that were done at once have taken themselves off already; this one is Run's own.
  PieceArrived();
}

bool ExtentStoreRead::LearnVersion() {
  while (attempts_ <= kMaxAttempts) {
    std::uint64_t changes = 0;
    const TimePoint now = store_.clock_.Now();
    {
      const std::lock_guard lock(store_.mutex_);
      if (ExtentCache::Fresh(*file_, now, store_.options_.attr_lease)) {
        version_ = file_->version;
        size_ = version_.size;
        return true;
      }
      changes = file_->changes;
    }
    struct stat st {};
    if (fstat(read_.fd->get(), &st) != 0) {
      Fail(errno);
      return false;
    }
    const std::lock_guard lock(store_.mutex_);
    if (store_.cache_.Observe(*file_, FileVersion::From(st), changes, now, RealTime())) {
      version_ = file_->version;
      size_ = version_.size;
      return true;
    }
    ++attempts_;
  }
  ReadPast();
  return false;
}

bool ExtentStoreRead::Collect() {
  std::unique_lock lock(store_.mutex_);
  const unsigned order =
      ExtentCache::ChooseOrder(*file_, read_.offset, read_.length, read_.want_ahead);
  pending_ = 1;  // Run's
  bool grown = false;
  std::uint64_t position = read_.offset;
  const bool all_readable = store_.clock_.Now() >= file_->unreadable_until;
  while (position < end_ && (all_readable || position / kMaxExtentBytes != file_->unreadable)) {
    Extent* extent = TakePiece(position, ExtentCache::ClipOrder(size_, position, order));
    if (extent == nullptr && !grown && store_.cache_.WantsArena()) {
      grown = true;
      lock.unlock();
      store_.GrowPool(io_);
      lock.lock();
      continue;
    }
    if (extent == nullptr) break;
    grown = false;
    position = extent->end();
  }
  wanted_ = pieces_.size();
  end_ = std::min(end_, position);
  return !pieces_.empty();
}

// With the lock: the extent at `position`, pinned. One that is being filled by somebody else, or by
// this read from now on, is counted in pending_.
Extent* ExtentStoreRead::TakePiece(std::uint64_t position, unsigned order) {
  const TimePoint now = store_.clock_.Now();
  Extent* extent = ExtentCache::Find(*file_, position);
  if (extent != nullptr && extent->state == Extent::State::kReady) {
    if (!ExtentCache::Complete(*extent)) {
      store_.cache_.Drop(*extent, now);
      extent = nullptr;
    } else if (extent->block.order < kSmallOrder && order == kMaxExtentOrder &&
               extent->end() < size_) {
      ExtentCache::Pin(*extent);
      if (Extent* larger = store_.cache_.Begin(*file_, position, order, now); larger != nullptr) {
        store_.cache_.Unpin(*extent, now);
        ++store_.stats_.misses;
        pieces_.push_back(larger);
        mine_.push_back(larger);
        ++pending_;
        return larger;
      }
      store_.cache_.Unpin(*extent, now);
    }
  }
  if (extent == nullptr) {
    extent = store_.cache_.Begin(*file_, position, order, now);
    if (extent == nullptr) return nullptr;
    ++store_.stats_.misses;
    pieces_.push_back(extent);
    mine_.push_back(extent);
    ++pending_;
    return extent;
  }
  ExtentCache::Pin(*extent);
  pieces_.push_back(extent);
  if (extent->state == Extent::State::kFilling) {
    ++store_.stats_.misses;
    ++pending_;
    extent->waiters.push_back([self = shared_from_this()](const void* loop) {
      if (loop == &self->io_) {
        self->PieceArrived();
      } else {
        self->io_.Post([self] { self->PieceArrived(); });
      }
    });
  } else {
    ++store_.stats_.hits;
    ExtentCache::Touch(*extent, now);
  }
  return extent;
}

void ExtentStoreRead::StartFills() {
  std::vector<Extent*> fills;
  fills.swap(mine_);
  bool waits = false;
  for (Extent* extent : fills) {
    // The fill may outlive this read's answer only through `self`.
    const bool at_once =
        ExtentFill::Start(io_, read_.fd, *file_, extent->start, extent->block.memory(), size_,
                          [self = shared_from_this(), extent](std::int64_t filled) {
                            self->Filled(*extent, filled);
                          });
    waits = waits || !at_once;
  }
  if (waits) io_.Submit();
  if (!fills.empty()) store_.GrowAhead(io_);
  const std::lock_guard lock(store_.mutex_);
  (waits ? store_.stats_.fills_waited : store_.stats_.fills_at_once) += fills.size();
}

void ExtentStoreRead::Filled(Extent& extent, std::int64_t filled) {
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(store_.mutex_);
    const TimePoint now = store_.clock_.Now();
    if (filled < 0) {
      store_.cache_.Abort(extent, now, &waiters);
      file_->unreadable = extent.start / kMaxExtentBytes;
      file_->unreadable_until = now + kUnreadable;
      failed_ = true;
    } else {
      store_.cache_.Finish(extent, static_cast<std::uint32_t>(filled), now, &waiters);
    }
  }
  for (const Waiter& waiter : waiters) waiter(&io_);
  PieceArrived();
}

void ExtentStoreRead::PieceArrived() {
  if (--pending_ == 0) Answered();
}

void ExtentStoreRead::Answered() {
  if (failed_) {
    // What cannot be read may lie in another part of the extent than what is asked for.
    DropPieces();
    ReadPast();
    return;
  }
  if (!PiecesHold()) {
    Again();
    return;
  }
  Answer answer{.covered = read_.offset, .file_size = size_, .version = version_};
  GrantPieces(answer);
  AddBytes(answer);
  Reply(answer);
}

// Whether every piece is ready and holds all that this read needs of it.
bool ExtentStoreRead::PiecesHold() {
  const std::lock_guard lock(store_.mutex_);
  for (std::size_t i = 0; i < wanted_; ++i) {
    const Extent& extent = *pieces_[i];
    if (extent.state != Extent::State::kReady) return false;
    if (extent.valid_end() >= std::min(extent.end(), end_)) continue;
    // The file is shorter than its version said.
    file_->known = false;
    return false;
  }
  if (read_.want_ahead > 0 && end_ == std::min(read_.offset + read_.length, size_)) PinAhead();
  return true;
}

// With the lock: what is ready behind the read, without a gap.
void ExtentStoreRead::PinAhead() {
  const std::uint64_t limit = std::min(end_ + read_.want_ahead, size_);
  std::uint64_t position = pieces_[wanted_ - 1]->end();
  while (position < limit && pieces_.size() < fs::kMaxGrantsPerReply) {
    Extent* extent = ExtentCache::Find(*file_, position);
    if (extent == nullptr || extent->state != Extent::State::kReady ||
        !ExtentCache::Complete(*extent)) {
      break;
    }
    ExtentCache::Pin(*extent);
    ExtentCache::Touch(*extent, store_.clock_.Now());
    pieces_.push_back(extent);
    position = extent->end();
  }
}

void ExtentStoreRead::GrantPieces(Answer& answer) {
  GrantLane* lane = read_.lane.get();
  if (lane == nullptr || !lane->open() || read_.no_grants) return;
  std::size_t first = CarriesBytes(*lane) ? wanted_ : 0;
  std::size_t usable = first;
  while (usable < pieces_.size() && usable - first < fs::kMaxGrantsPerReply &&
         lane->Announce(*pieces_[usable]->block.arena)) {
    ++usable;
  }
  if (usable == first) return;
  const std::lock_guard lock(store_.mutex_);
  const TimePoint now = store_.clock_.Now();
  const std::chrono::milliseconds lease =
      store_.cache_.grants().SuggestLease(read_.session, store_.options_.lease);
  for (std::size_t i = first; i < usable; ++i) {
    if (!GrantPiece(*pieces_[i], now, lease, answer)) {
      ++store_.stats_.refused_grants;
      break;
    }
    if (i < wanted_) answer.covered = std::min(pieces_[i]->valid_end(), end_);
  }
}

// Whether the reply takes the bytes along, and grants at most what lies ahead. Large extents are
// granted for short reads too where a READ is one-sided: the next ones then ask nobody.
bool ExtentStoreRead::CarriesBytes(const GrantLane& lane) const {
  if (end_ - read_.offset > lane.inline_bytes()) return false;
  const auto small = [](const Extent* extent) { return extent->block.order < kWorthGranting; };
  return lane.passive() ||
         std::any_of(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(wanted_),
                     small);
}

// With the lock. The whole extent: what stands before the asked range may be read next.
bool ExtentStoreRead::GrantPiece(const Extent& extent, TimePoint now,
                                 std::chrono::milliseconds lease, Answer& answer) {
  if (extent.valid == 0) return false;
  if (!store_.cache_.Grant(extent, read_.session, now, lease)) return false;
  ++store_.stats_.grants;
  const Arena& arena = *extent.block.arena;
  fs::GrantWire& grant = answer.grants[answer.grant_count++];
  grant.file_offset = extent.start;
  grant.length = extent.valid;
  grant.arena = arena.number();
  grant.arena_offset = extent.block.offset();
  grant.generation_arena = arena.generation_number();
  grant.lease_ms = static_cast<std::uint32_t>(lease.count());
  grant.generation_offset = extent.block.generation_offset();
  grant.generation = extent.generation;
  return true;
}

void ExtentStoreRead::AddBytes(Answer& answer) {
  for (std::size_t i = 0; i < wanted_; ++i) {
    const Extent& extent = *pieces_[i];
    const std::uint64_t end = std::min(extent.valid_end(), end_);
    if (answer.covered < extent.start || answer.covered >= end) continue;
    const std::uint64_t room = fs::kMaxInlineDataBytes - answer.bytes_length;
    const std::uint64_t length = std::min(end - answer.covered, room);
    if (length == 0) break;
    answer.bytes.push_back(extent.block.memory().subspan(answer.covered - extent.start, length));
    answer.bytes_length += static_cast<std::uint32_t>(length);
    answer.covered += length;
  }
}

void ExtentStoreRead::DropPieces() {
  const std::lock_guard lock(store_.mutex_);
  const TimePoint now = store_.clock_.Now();
  for (Extent* extent : pieces_) store_.cache_.Unpin(*extent, now);
  pieces_.clear();
  wanted_ = 0;
}

void ExtentStoreRead::Again() {
  DropPieces();
  if (++attempts_ <= kMaxAttempts) {
    Run();
  } else {
    ReadPast();
  }
}

// Whether so much may wait, more than which each request takes anyway. Until it is answered.
bool ExtentStoreRead::KeepPast(std::size_t length) {
  if (length <= kExtentPageBytes) return true;
  const std::lock_guard lock(store_.mutex_);
  if (length > store_.options_.past_bytes - store_.past_bytes_) return false;
  store_.past_bytes_ += length;
  kept_past_ = length;
  return true;
}

void ExtentStoreRead::ReadPast() {
  const std::size_t length = std::min<std::size_t>(read_.length, fs::kMaxInlineDataBytes);
  auto buffer = std::make_shared<std::vector<std::byte>>(length);
  const std::int64_t at_once =
      ReadWithoutWaiting(read_.fd->get(), file_->nowait, *buffer, read_.offset);
  if (at_once != -EAGAIN && at_once != -EINTR) {
    ReadPastDone(at_once, *buffer);
    return;
  }
  if (!KeepPast(length)) buffer = std::make_shared<std::vector<std::byte>>(kExtentPageBytes);
  io_.Read(read_.fd, *buffer, read_.offset,
           [self = shared_from_this(), buffer](std::int64_t result) {
             self->ReadPastDone(result, *buffer);
           });
  io_.Submit();
}

void ExtentStoreRead::ReadPastDone(std::int64_t result, std::vector<std::byte>& buffer) {
  if (result < 0) {
    Fail(static_cast<int>(-result));
    return;
  }
  struct stat st {};
  if (fstat(read_.fd->get(), &st) != 0) {
    Fail(errno);
    return;
  }
  const auto length = static_cast<std::uint32_t>(result);
  Answer answer{.bytes = {ByteSpan(buffer).first(length)},
                .bytes_length = length,
                .covered = read_.offset + length,
                .version = FileVersion::From(st)};
  answer.file_size = answer.version.size;
  // The client takes a short answer for the end of the file; nothing there says that it is.
  if (length == 0) answer.file_size = std::min(answer.file_size, read_.offset);
  Reply(answer);
}

void ExtentStoreRead::Reply(const Answer& answer) {
  {
    const std::lock_guard lock(store_.mutex_);
    store_.stats_.inline_bytes += answer.bytes_length;
  }
  done_({.file_size = answer.file_size,
         .version = answer.version,
         .grants = std::span(answer.grants).first(answer.grant_count),
         .bytes = answer.bytes,
         .bytes_length = answer.bytes_length});
  ScheduleAhead();
  Release();
}

void ExtentStoreRead::Fail(int error) {
  done_({.error = error});
  Release();
}

void ExtentStoreRead::Release() {
  const std::lock_guard lock(store_.mutex_);
  const TimePoint now = store_.clock_.Now();
  for (Extent* extent : pieces_) store_.cache_.Unpin(*extent, now);
  pieces_.clear();
  store_.past_bytes_ -= kept_past_;
  store_.cache_.LeaveFile(*file_);
  done_ = nullptr;
}

void ExtentStoreRead::ScheduleAhead() {
  if (read_.want_ahead == 0 || pieces_.empty()) return;
  const std::uint64_t from = pieces_.back()->end();
  const std::uint64_t to = std::min(read_.offset + read_.length + read_.want_ahead, size_);
  if (from < to) store_.FillAhead(io_, read_.file, read_.fd, from, to);
}

}  // namespace rdfs::server
