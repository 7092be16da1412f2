#include "tools/copy/destination/clones.h"

#include <cerrno>

namespace rdfs::copy {
namespace {

// What holds for all their files. Others are one file's: EINVAL is for one whose layout is another,
// EPERM and ETXTBSY for one that is immutable or swapped to, ENOSPC and EIO for what happens once.
bool IsOfTheFileSystems(int error) {
  return error == ENOTTY || error == EOPNOTSUPP || error == ENOSYS || error == EXDEV;
}

}  // namespace

bool Clones::MayBe(std::uint64_t from, std::uint64_t to) {
  const std::lock_guard lock(mutex_);
  return !none_.contains({from, to});
}

void Clones::Failed(std::uint64_t from, std::uint64_t to, int error) {
  if (!IsOfTheFileSystems(error)) return;
  const std::lock_guard lock(mutex_);
  none_.emplace(from, to);
}

}  // namespace rdfs::copy
