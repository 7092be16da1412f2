// For tests that root runs: what an ordinary user may do and not do.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/tools/copy/temp_tree.h"

namespace rdfs::copy {

inline constexpr uid_t kOrdinary = 65534;

// Makes the whole tree his.
inline void GiveAway(const TempTree& tree) {
  if (geteuid() != 0) return;
  EXPECT_EQ(chown(tree.path().c_str(), kOrdinary, kOrdinary), 0);
  for (const auto& each : std::filesystem::recursive_directory_iterator(tree.path())) {
    EXPECT_EQ(lchown(each.path().c_str(), kOrdinary, kOrdinary), 0);
  }
}

// The process is his as long as this lives; whose it is anyway but root's.
class AsOrdinary {
 public:
  AsOrdinary() : was_root_(geteuid() == 0) {
    if (!was_root_) return;
    EXPECT_EQ(setegid(kOrdinary), 0);
    EXPECT_EQ(seteuid(kOrdinary), 0);
  }
  ~AsOrdinary() {
    if (!was_root_) return;
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
  }
  AsOrdinary(const AsOrdinary&) = delete;
  AsOrdinary& operator=(const AsOrdinary&) = delete;

 private:
  const bool was_root_;
};

}  // namespace rdfs::copy
