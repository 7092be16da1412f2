// Clones: between which file systems reflinks (FICLONE) are worth a try.
//
// Any thread; does no I/O.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

namespace rdfs::copy {

class Clones {
 public:
  // `from`, `to`: device numbers.
  [[nodiscard]] bool MayBe(std::uint64_t from, std::uint64_t to);
  // It failed with that errno.
  void Failed(std::uint64_t from, std::uint64_t to, int error);

 private:
  std::mutex mutex_;  // guards what follows
  std::set<std::pair<std::uint64_t, std::uint64_t>> none_;
};

}  // namespace rdfs::copy
