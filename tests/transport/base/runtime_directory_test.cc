#include "transport/base/runtime_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace rdfs {
namespace {

using Paths = std::vector<std::string>;

TEST(RuntimeDirectories, AreFoundWithTheVariableAndWithout) {
  EXPECT_EQ(RuntimeDirectoriesOf(1000, "/run/user/1000"),
            (Paths{"/run/user/1000/rdfs", "/tmp/rdfs-1000"}));
  EXPECT_EQ(RuntimeDirectoriesOf(1000, ""), (Paths{"/tmp/rdfs-1000", "/run/user/1000/rdfs"}));
  EXPECT_EQ(RuntimeDirectoriesOf(1000, "/run/user/1000/"),
            (Paths{"/run/user/1000/rdfs", "/tmp/rdfs-1000"}));
}

TEST(RuntimeDirectories, OfRootOutliveItsLogin) {
  EXPECT_EQ(RuntimeDirectoriesOf(0, ""), Paths{"/run/rdfs"});
  EXPECT_EQ(RuntimeDirectoriesOf(0, "/run/user/0"), Paths{"/run/rdfs"});
}

TEST(RuntimeDirectories, AreWhereTheVariableNamesAnotherPlaceThanALogins) {
  EXPECT_EQ(RuntimeDirectoriesOf(0, "/tmp/mine"), Paths{"/tmp/mine/rdfs"});
  EXPECT_EQ(RuntimeDirectoriesOf(1000, "/tmp/mine"), Paths{"/tmp/mine/rdfs"});
  EXPECT_EQ(RuntimeDirectoriesOf(1000, "/run/user/10"), Paths{"/run/user/10/rdfs"});
}

// $XDG_RUNTIME_DIR is a directory of this test.
class OwnPlace : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "rdfs-runtime-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    place_ = name;
    setenv("XDG_RUNTIME_DIR", name.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(place_);
  }
  std::filesystem::path place_;
};

TEST_F(OwnPlace, IsMadeForItsUserAlone) {
  const auto made = MakeRuntimeDirectory();
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(*made, place_ / "rdfs");
  struct stat about {};
  ASSERT_EQ(stat(made->c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777U, 0700U);
  EXPECT_TRUE(MakeRuntimeDirectory().ok()) << "it is there";
}

TEST_F(OwnPlace, WhatOthersMayEnterIsRefused) {
  ASSERT_EQ(mkdir((place_ / "rdfs").c_str(), 0700), 0);
  ASSERT_EQ(chmod((place_ / "rdfs").c_str(), 0710), 0);
  EXPECT_EQ(MakeRuntimeDirectory().status().code(), Code::kInvalidArgument);
}

TEST_F(OwnPlace, ALinkIsRefused) {
  ASSERT_EQ(mkdir((place_ / "mine").c_str(), 0700), 0);
  std::filesystem::create_symlink("mine", place_ / "rdfs");
  EXPECT_EQ(MakeRuntimeDirectory().status().code(), Code::kInvalidArgument);
}

TEST_F(OwnPlace, AVariableOfAnotherUserIsNone) {
  std::string others = "/";
  if (geteuid() == 0) {  // whose that is
    others = place_;
    ASSERT_EQ(chown(others.c_str(), 1, 1), 0);
  }
  for (const std::string& other : {std::string("/nowhere"), std::string("relative"), others}) {
    setenv("XDG_RUNTIME_DIR", other.c_str(), 1);
    EXPECT_EQ(RuntimeDirectories(), RuntimeDirectoriesOf(geteuid(), "")) << other;
  }
}

// Named after another user in both places, below `root`.
Paths NamedAfter(uid_t user, const std::filesystem::path& root) {
  const std::string name = std::to_string(user);
  Paths paths = {root / "tmp" / ("rdfs-" + name), root / "run/user" / name / "rdfs"};
  for (const std::string& path : paths) {
    std::filesystem::create_directories(path);
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
  }
  unsetenv("XDG_RUNTIME_DIR");
  return paths;
}

TEST_F(OwnPlace, ForeignOnesBelongToWhomTheyAreNamedAfter) {
  NamedAfter(geteuid() + 1, place_);
  EXPECT_TRUE(ForeignRuntimeDirectories(place_).empty()) << "they are ours";
}

TEST_F(OwnPlace, ForeignOnesAreFoundAsRoot) {
  const Paths paths = NamedAfter(1, place_);
  for (const std::string& path : paths) ASSERT_EQ(chown(path.c_str(), 1, 1), 0);
  EXPECT_EQ(ForeignRuntimeDirectories(place_).size(), 2U);
  ASSERT_EQ(chmod(paths[0].c_str(), 0750), 0);
  std::filesystem::remove(paths[1]);
  std::filesystem::create_symlink(paths[0], paths[1]);
  EXPECT_TRUE(ForeignRuntimeDirectories(place_).empty()) << "open to others, and a link";
}

}  // namespace
}  // namespace rdfs
