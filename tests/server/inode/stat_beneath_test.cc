#include "server/inode/stat_beneath.h"

#include <gtest/gtest.h>

namespace rdfs::server {
namespace {

constexpr std::string_view kMounts =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "36 22 0:45 / /srv/in rw,nosuid - fuse.rdfs rdfs://node/data rw,user_id=0\n"
    "37 22 0:46 / /srv/other rw,nosuid shared:7 master:1 - fuse.sshfs node: rw\n"
    "38 22 0:47 / /srv/0:48 rw - fuse.rdfs2 x rw\n"
    "39 22 0:145 / /tmp rw - tmpfs none rw";

TEST(IsOurMount, OnlyWhatIsOfOurType) {
  EXPECT_TRUE(IsOurMount(kMounts, 0, 45));
  EXPECT_FALSE(IsOurMount(kMounts, 0, 46));
  EXPECT_FALSE(IsOurMount(kMounts, 0, 47));
  EXPECT_FALSE(IsOurMount(kMounts, 254, 0));
}

TEST(IsOurMount, NothingElseIsTakenForADevice) {
  EXPECT_FALSE(IsOurMount(kMounts, 0, 4));
  EXPECT_FALSE(IsOurMount(kMounts, 0, 5));
  EXPECT_FALSE(IsOurMount(kMounts, 0, 48));
  EXPECT_FALSE(IsOurMount(kMounts, 0, 145));
  EXPECT_FALSE(IsOurMount("", 0, 45));
  EXPECT_FALSE(IsOurMount("\n36\n36 22\n36 22 0:45 \n36 22 0:45 / / - ", 0, 45));
}

}  // namespace
}  // namespace rdfs::server
