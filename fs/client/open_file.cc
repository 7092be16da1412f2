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

void OpenFile::NoteWritten(std::uint64_t verifier) {
  const std::lock_guard lock(mutex_);
  if (write_verifier_ != 0 && write_verifier_ != verifier) lost_writes_ = true;
  write_verifier_ = verifier;
}

bool OpenFile::LostWritesAt(std::uint64_t verifier) {
  const std::lock_guard lock(mutex_);
  const bool lost = lost_writes_ || (write_verifier_ != 0 && write_verifier_ != verifier);
  lost_writes_ = false;
  write_verifier_ = 0;
  return lost;
}

}  // namespace rdfs::fs::client
