// Staging: where a lane's client WRITEs bytes before it commits them by message.
//
// One region a lane, writable by that lane's peer alone, cut into slots. The peer may write at any
// time, also while the server reads: a commit copies the bytes from the slot into the file, once,
// and nothing else is ever decided by what a slot holds.
//
// Owned by the lane; the lane's loop only, except the budget, which all lanes share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "fs/protocol.h"
#include "server/loop/file_io.h"
#include "transport/domain.h"
#include "transport/transport.h"

namespace rdfs::server {

// Bytes of staging that all lanes together may have, or those of one session, which are taken out
// of `whole` as well. Any thread.
class StagingBudget {
 public:
  explicit StagingBudget(std::size_t bytes, std::shared_ptr<StagingBudget> whole = nullptr)
      : free_(bytes), whole_(std::move(whole)) {}
  // Up to `wanted` bytes, a multiple of `unit`; 0 when there is less than one unit left.
  std::size_t Take(std::size_t wanted, std::size_t unit);
  void GiveBack(std::size_t bytes) {
    free_.fetch_add(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->GiveBack(bytes);
  }
  [[nodiscard]] std::size_t free_bytes() const { return free_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> free_;
  const std::shared_ptr<StagingBudget> whole_;
};
// Half of what may be pinned (MemlockLimit), at most 1 GiB.
std::size_t DefaultStagingBytes(std::size_t pinnable_bytes);

class Staging {
 public:
  // Of slots of fs::kMaxTransferBytes as many as `wished` and the budget have; when not even one
  // fits, smaller slots down to 64 KiB; else none, which is no error: the client then writes by
  // message. The same when the transport cannot register the memory.
  static std::unique_ptr<Staging> Create(const std::shared_ptr<transport::Domain>& domain,
                                         transport::Connection& connection, std::size_t wished,
                                         const std::shared_ptr<StagingBudget>& budget);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // What AttachLane answers.
  [[nodiscard]] fs::AttachLaneReply reply() const;
  // The bytes that a commit names, or nothing when they are not all within one slot. Keep the
  // Staging alive (it is shared by the commits in progress) until the write is done.
  [[nodiscard]] std::optional<ByteSpan> Range(std::uint64_t offset, std::uint64_t length) const;

 private:
  explicit Staging(std::shared_ptr<StagingBudget> budget) : budget_(std::move(budget)) {}

  Status Register(const std::shared_ptr<transport::Domain>& domain,
                  transport::Connection& connection, std::size_t bytes);

  std::shared_ptr<StagingBudget> budget_;
  std::size_t taken_ = 0;
  std::unique_ptr<transport::MemoryRegion> region_;
  transport::RemoteRegion remote_;
  std::uint32_t slot_bytes_ = 0;
  std::uint32_t slots_ = 0;
};

// FileWriter: one pwrite for each commit or inline write, on the loop when that does not block.
//
// Kernels cannot say beforehand whether a buffered write will wait on every file system (ext4 has
// no RWF_NOWAIT for them). A write into the page cache takes microseconds until the device is
// saturated and the writer is throttled, for up to 200 ms a call. So: RWF_NOWAIT where the file
// system has it; else at once, and after a write that took longer than kSlowWrite everything goes
// through FileIo for kBackOff. Memory file systems are always written at once. One for each loop;
// its thread only.
class FileWriter {
 public:
  // The clock tells how long a write takes: a TurnClock does not.
  FileWriter(FileIo& io, const Clock& clock) : io_(io), clock_(clock) {}

  static constexpr std::chrono::milliseconds kSlowWrite{2};
  static constexpr std::chrono::milliseconds kBackOff{2000};

  // Writes all of `from` (or up to an error behind the first byte, then the short count) and calls
  // done(bytes or -errno): before it returns, or from io.Poll(). `from` stays valid until then.
  // `device`: any number that tells the file's file system from others.
  // `flags` as pwritev2(2); RWF_DSYNC and RWF_SYNC always go through FileIo.
  void Write(FileIo::SharedFd fd, std::uint64_t device, ByteSpan from, std::uint64_t offset,
             int flags, FileIo::Done done);

 private:
  enum class Nowait : std::uint8_t { kUnknown, kWorks, kRefused, kMemory };
  struct Pending;
  Nowait ModeOf(int fd, std::uint64_t device);
  std::int64_t WriteNow(int fd, std::uint64_t device, ByteSpan from, std::uint64_t offset,
                        int flags);
  void Continue(const std::shared_ptr<Pending>& pending);

  FileIo& io_;
  const Clock& clock_;
  TimePoint slow_until_{};
  std::uint64_t mode_device_ = 0;  // the device asked about last, and its answer
  Nowait mode_ = Nowait::kUnknown;
};

}  // namespace rdfs::server
