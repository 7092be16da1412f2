#include "fs/client/open_file.h"

namespace rdfs::fs::client {

void OpenFile::SetHint(const Handle& parent, std::string_view name) {
  const std::lock_guard lock(mutex_);
  hint_.parent = parent;
  hint_.name = name;
}

OpenFile::Hint OpenFile::hint() const {
  const std::lock_guard lock(mutex_);
  return hint_;
}

void OpenFile::Wrote(std::uint64_t verifier) {
  const std::lock_guard lock(mutex_);
  inode_->unsynced.Wrote(verifier, told_);
}

void OpenFile::WriteFailed(int errno_value) {
  const std::lock_guard lock(mutex_);
  inode_->unsynced.Failed(errno_value, told_);
}

int OpenFile::TakeLoss() {
  const std::lock_guard lock(mutex_);
  return inode_->unsynced.TakeLoss(told_);
}

int OpenFile::LossSince() const {
  const std::lock_guard lock(mutex_);
  return inode_->unsynced.LossSince(told_);
}

}  // namespace rdfs::fs::client
