// Which kernels a mount may rely on for what.
#include <gtest/gtest.h>

#include "fs/fuse/filesystem.h"

namespace rdfs::fs::fuse {
namespace {

TEST(KernelDropsPagesAfterWrites, FromTheReleaseThatMendedIt) {
  for (const char* release :
       {"6.19.0", "6.18.10", "6.18.44-fc-v509", "7.0.1", "6.19", "6.20-rc1"}) {
    EXPECT_TRUE(KernelDropsPagesAfterWrites(release)) << release;
  }
  for (const char* release :
       {"6.18.9", "6.18", "6.18-rc3", "6.17.13", "6.1.0-41-amd64", "5.15.0-generic", "", "Linux"}) {
    EXPECT_FALSE(KernelDropsPagesAfterWrites(release)) << release;
  }
}

}  // namespace
}  // namespace rdfs::fs::fuse
