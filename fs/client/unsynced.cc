#include "fs/client/unsynced.h"

#include <cerrno>
#include <utility>

namespace rdfs::fs::client {

UnsyncedWrites::Told UnsyncedWrites::Opened() const {
  const std::lock_guard lock(mutex_);
  return {.by_fsync = told_};
}

void UnsyncedWrites::Wrote(std::uint64_t verifier, Told& through) {
  const std::lock_guard lock(mutex_);
  ServerHasLocked(verifier);
  verifier_ = verifier;
  ++noted_;
  if (!through.by_close) through.by_close = losses_;
}

void UnsyncedWrites::Failed(int errno_value, Told& through) {
  const std::lock_guard lock(mutex_);
  if (!through.by_close) through.by_close = losses_;
  ++losses_;
  errno_ = errno_value;
}

void UnsyncedWrites::ServerHas(std::uint64_t verifier) {
  const std::lock_guard lock(mutex_);
  ServerHasLocked(verifier);
}

void UnsyncedWrites::ServerHasLocked(std::uint64_t verifier) {
  if (!verifier_ || *verifier_ == verifier) return;
  ++losses_;
  errno_ = EIO;
  verifier_.reset();
}

std::uint64_t UnsyncedWrites::noted() const {
  const std::lock_guard lock(mutex_);
  return noted_;
}

void UnsyncedWrites::Synced(std::uint64_t verifier, std::uint64_t noted_when_sent) {
  const std::lock_guard lock(mutex_);
  ServerHasLocked(verifier);
  if (noted_ == noted_when_sent) verifier_.reset();
}

int UnsyncedWrites::TakeLoss(Told& told) {
  const std::lock_guard lock(mutex_);
  told_ = losses_;
  if (told.by_close) told.by_close = losses_;
  return std::exchange(told.by_fsync, losses_) != losses_ ? errno_ : 0;
}

int UnsyncedWrites::LossSince(const Told& told) const {
  const std::lock_guard lock(mutex_);
  return told.by_close && *told.by_close != losses_ ? errno_ : 0;
}

}  // namespace rdfs::fs::client
