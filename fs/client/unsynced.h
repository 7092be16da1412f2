// UnsyncedWrites: the writes to one inode that may not be on the server's disk yet, and which open
// descriptors still have to be told by fsync or close that some of them are lost.
//
// Each answer to a write or an fsync carries a verifier: the same as long as the server's host has
// its page cache. Another one than the unsynced writes had means that a crash of the host may have
// lost them. So has one that failed when its program had been told that it is done (kWriteEarly).
// A loss is counted, and each descriptor remembers which it has told, as Linux does with
// errseq_t: fsync tells it once by each descriptor that was open, and where nobody was told yet,
// also by the next one that is opened.
//
// One an inode, whatever descriptor was written through. Any thread; one short lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace rdfs::fs::client {

class UnsyncedWrites {
 public:
  // Counts of losses: those that one descriptor need not tell any more.
  struct Told {
    std::uint64_t by_fsync = 0;
    std::optional<std::uint64_t> by_close{};  // nothing was written through it: nothing to tell
  };
  [[nodiscard]] Told Opened() const;

  // The server has acknowledged a write through this descriptor, and it is not durable yet.
  void Wrote(std::uint64_t verifier, Told& through);
  // One through this descriptor was said to be done, and failed.
  void Failed(int errno_value, Told& through);
  // The server's verifier is this one now.
  void ServerHas(std::uint64_t verifier);

  // Writes that were acknowledged so far. What is acknowledged while an fsync is under way, that
  // one may not have seen.
  [[nodiscard]] std::uint64_t noted() const;
  // An fsync has succeeded that was sent at this noted().
  void Synced(std::uint64_t verifier, std::uint64_t noted_when_sent);

  // The errno of this descriptor's fsync, or 0; the next one is 0.
  [[nodiscard]] int TakeLoss(Told& told);
  // That of its close. Each close of it, after a fork or dup(2), until an fsync has told it.
  [[nodiscard]] int LossSince(const Told& told) const;

 private:
  void ServerHasLocked(std::uint64_t verifier);

  mutable std::mutex mutex_;
  std::optional<std::uint64_t> verifier_;  // of what is unsynced; none: nothing is
  std::uint64_t noted_ = 0;
  std::uint64_t losses_ = 0;
  int errno_ = 0;           // of the last one
  std::uint64_t told_ = 0;  // of these, to anybody
};

}  // namespace rdfs::fs::client
