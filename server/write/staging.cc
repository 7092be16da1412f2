#include "server/write/staging.h"

#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

constexpr std::size_t kLeastSlotBytes = 64 * 1024;
// More slots do not make a lane faster: a write of 1 MiB takes longer than its commit's way.
constexpr std::size_t kMaxSlots = 64;

}  // namespace

std::size_t StagingBudget::Take(std::size_t wanted, std::size_t unit) {
  std::size_t free = free_.load(std::memory_order_relaxed);
  while (true) {
    const std::size_t take = std::min(wanted, free) / unit * unit;
    if (take == 0) return 0;
    if (!free_.compare_exchange_weak(free, free - take, std::memory_order_relaxed)) continue;
    if (whole_ == nullptr) return take;
    const std::size_t had = whole_->Take(take, unit);
    free_.fetch_add(take - had, std::memory_order_relaxed);
    return had;
  }
}

std::size_t DefaultStagingBytes(std::size_t pinnable_bytes) {
  return std::min<std::size_t>(pinnable_bytes / 2, std::size_t{1} << 30);
}

std::unique_ptr<Staging> Staging::Create(const std::shared_ptr<transport::Domain>& domain,
                                         transport::Connection& connection, std::size_t wished,
                                         const std::shared_ptr<StagingBudget>& budget) {
  std::unique_ptr<Staging> staging(new Staging(budget));
  wished = std::min(wished, kMaxSlots * fs::kMaxTransferBytes);
  Status refused;
  for (std::size_t slot = fs::kMaxTransferBytes; slot >= kLeastSlotBytes; slot /= 2) {
    const std::size_t bytes = budget->Take(wished, slot);
    if (bytes == 0) continue;
    staging->taken_ = bytes;
    const Status status = staging->Register(domain, connection, bytes);
    if (status.ok()) {
      staging->slot_bytes_ = static_cast<std::uint32_t>(slot);
      staging->slots_ = static_cast<std::uint32_t>(bytes / slot);
      return staging;
    }
    LogDebug("no staging of {} bytes on {}: {}", bytes, connection.Describe(), status.message());
    refused = status;
    staging->region_ = nullptr;
    budget->GiveBack(std::exchange(staging->taken_, 0));
    // Registration may have failed for want of pinned memory: less may work.
    wished = bytes / 2;
  }
  if (!refused.ok() && refused.scope() != Scope::kConnection) {
    LogWarn("what is written over {} has to go inside messages: {}", connection.Describe(),
            refused.message());
  }
  return staging;
}

Status Staging::Register(const std::shared_ptr<transport::Domain>& domain,
                         transport::Connection& connection, std::size_t bytes) {
  RDFS_ASSIGN_OR_RETURN(
      std::shared_ptr<SharedMemory> memory,
      SharedMemory::Create("rdfs-staging", bytes, SharedMemory::Peers::kMayWrite));
  RDFS_ASSIGN_OR_RETURN(region_, domain->Register(memory, transport::Access::kRemoteWrite));
  RDFS_ASSIGN_OR_RETURN(remote_, connection.Share(*region_));
  return Status::Ok();
}

Staging::~Staging() {
  region_ = nullptr;  // no peer reaches the memory before its bytes are given to another lane
  if (taken_ > 0) budget_->GiveBack(taken_);
}

fs::AttachLaneReply Staging::reply() const {
  if (slots_ == 0) return {};
  return {.staging = transport::RemoteRegionWire::From(remote_),
          .slot_bytes = slot_bytes_,
          .slots = slots_};
}

std::optional<ByteSpan> Staging::Range(std::uint64_t offset, std::uint64_t length) const {
  const std::uint64_t size = std::uint64_t{slots_} * slot_bytes_;
  if (offset >= size || length == 0) return std::nullopt;
  if (length > slot_bytes_ - offset % slot_bytes_) return std::nullopt;
  return ByteSpan(region_->bytes()).subspan(offset, length);
}

struct FileWriter::Pending {
  FileIo::SharedFd fd;
  ByteSpan from;
  std::uint64_t offset;
  int flags;
  FileIo::Done done;
  std::size_t written = 0;

  // The result so far, or the error when nothing was written.
  [[nodiscard]] std::int64_t Result(std::int64_t last) const {
    return written > 0 ? static_cast<std::int64_t>(written) : last;
  }
};

FileWriter::Nowait FileWriter::ModeOf(int fd, std::uint64_t device) {
  if (mode_ != Nowait::kUnknown && device == mode_device_) return mode_;
  struct statfs fs {};
  mode_device_ = device;
  mode_ = Nowait::kWorks;  // until it says otherwise
  if (fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)) {
    mode_ = Nowait::kMemory;
  }
  return mode_;
}

std::int64_t FileWriter::WriteNow(int fd, std::uint64_t device, ByteSpan from, std::uint64_t offset,
                                  int flags) {
  iovec buffer{.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};
  const auto at = static_cast<off_t>(offset);
  Nowait mode = ModeOf(fd, device);
  if (mode == Nowait::kWorks) {
    const ssize_t count = pwritev2(fd, &buffer, 1, at, flags | RWF_NOWAIT);
    if (count >= 0) return count;
    if (errno != EOPNOTSUPP) return -errno;
    mode = mode_ = Nowait::kRefused;
  }
  const bool may_wait = mode == Nowait::kRefused;
  const TimePoint before = may_wait ? clock_.Now() : TimePoint{};
  if (may_wait && before < slow_until_) return -EAGAIN;
  const ssize_t count = pwritev2(fd, &buffer, 1, at, flags);
  const int error = errno;
  if (may_wait) {
    const TimePoint after = clock_.Now();
    if (after - before > kSlowWrite) slow_until_ = after + kBackOff;
  }
  return count >= 0 ? count : -error;
}

void FileWriter::Write(FileIo::SharedFd fd, std::uint64_t device, ByteSpan from,
                       std::uint64_t offset, int flags, FileIo::Done done) {
  std::size_t written = 0;
  while ((flags & (RWF_SYNC | RWF_DSYNC)) == 0 && written < from.size()) {
    const std::int64_t count =
        WriteNow(fd->get(), device, from.subspan(written), offset + written, flags);
    if (count == -EINTR) continue;
    if (count == -EAGAIN) break;
    if (count > 0) written += static_cast<std::size_t>(count);
    if (count <= 0 || written == from.size()) {
      done(written > 0 ? static_cast<std::int64_t>(written) : count);
      return;
    }
  }
  Continue(std::make_shared<Pending>(
      Pending{std::move(fd), from, offset, flags, std::move(done), written}));
}

void FileWriter::Continue(const std::shared_ptr<Pending>& pending) {
  io_.Write(pending->fd, pending->from.subspan(pending->written),
            pending->offset + pending->written, pending->flags,
            [this, pending](std::int64_t count) {
              if (count > 0) pending->written += static_cast<std::size_t>(count);
              const bool again = count == -EINTR || count == -EAGAIN;
              if (!again && (count <= 0 || pending->written == pending->from.size())) {
                pending->done(pending->Result(count));
              } else {
                Continue(pending);
              }
            });
  io_.Submit();
}

}  // namespace rdfs::server
