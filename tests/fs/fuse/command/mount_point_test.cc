// The checks before a mount: each cause gets its own sentence, with what to do about it.
#include "fs/fuse/command/mount_point.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace rdfs::fs::fuse {
namespace {

class MountPoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "rdfs-mount-point-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = std::filesystem::canonical(name);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void ExpectRefused(const std::string& path, const std::string& cause, const std::string& remedy,
                     const std::string& mounts = "/proc/self/mountinfo") {
    const Result<std::string> checked = CheckMountPoint(path, mounts);
    ASSERT_FALSE(checked.ok()) << *checked;
    const std::string& sentence = checked.status().message();
    EXPECT_NE(sentence.find(cause), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(remedy), std::string::npos) << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }

  std::string directory_;
};

TEST_F(MountPoint, AnEmptyDirectoryIsFineAndComesBackAbsolute) {
  std::filesystem::create_directory(Path("a b"));
  std::filesystem::create_symlink("a b", Path("link"));
  const Result<std::string> checked = CheckMountPoint(Path("link/../a b/."));
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(*checked, Path("a b"));
}

TEST_F(MountPoint, RefusesWhatCannotBeMountedOn) {
  Write("file", "x");
  std::filesystem::create_directory(Path("full"));
  Write("full/.hidden", "x");
  std::filesystem::create_directory(Path("taken"));
  Write("mounts", "36 25 0:31 / " + Path("taken") + " rw - tmpfs none rw\n");
  ExpectRefused("", "empty", "name a directory");
  ExpectRefused(Path("none"), "is not there", "mkdir " + Path("none"));
  std::filesystem::create_symlink("nowhere", Path("dangling"));
  ExpectRefused(Path("dangling"), "symlink that leads nowhere", "remove it");
  ExpectRefused(Path("dangling/"), "symlink that leads nowhere", "remove it");
  ExpectRefused(Path("file"), "is not a directory", "name one");
  ExpectRefused(Path("file/x"), "is not a directory", "name one");
  ExpectRefused(Path("full"), "is not empty", "name an empty directory");
  ExpectRefused(Path("taken"), "is mounted on", "fusermount3 -u " + Path("taken"), Path("mounts"));
  ExpectRefused(Path(std::string(5000, 'x')), "cannot be used", "");
}

TEST_F(MountPoint, TheTrapOfAnAutomountIsWhereItsMountGoesAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts for systemd";
  std::filesystem::create_directory(Path("trap"));
  Write("trap/file", "whoever looked for it would wait for the mount");
  Write("mounts", "36 25 0:31 / " + Path("trap") + " rw - autofs systemd-1 rw\n");
  const Result<std::string> checked = CheckMountPoint(Path("trap"), Path("mounts"));
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(*checked, Path("trap"));
}

TEST_F(MountPoint, FindsMountsByTheKernelsOwnWriting) {
  const std::string text =
      "36 35 98:0 /r /mnt rw,noatime master:1 - ext3 /dev/root rw\n"
      "37 35 0:44 / /a\\040b\\134c rw - tmpfs none rw\n"
      "short line\n"
      "38 35 0:45 / /mnt rw,nosuid shared:2 - fuse.rdfs node:/x rw\n"
      "39 35 98:1 / /last rw - tmpfs none rw";
  const auto is_mounted = [&](std::string_view path) { return FindMount(text, path).has_value(); };
  EXPECT_TRUE(is_mounted("/a b\\c"));
  EXPECT_TRUE(is_mounted("/last"));
  EXPECT_FALSE(is_mounted("/r"));
  EXPECT_FALSE(is_mounted("/mn"));
  EXPECT_FALSE(is_mounted(""));
  EXPECT_FALSE(FindMount("", "/mnt"));
  EXPECT_FALSE(FindMount("1 2 3 4 /x\\0", "/x"));
  EXPECT_FALSE(FindMount("1 2 3:4 / /x rw tmpfs none rw", "/x"));
  const auto on_top = FindMount(text, "/mnt");
  ASSERT_TRUE(on_top);
  EXPECT_EQ(on_top->type, "fuse.rdfs");
  EXPECT_EQ(on_top->device, "0:45");
  EXPECT_TRUE(IsDeviceMounted(text, "0:45"));
  EXPECT_FALSE(IsDeviceMounted(text, "0:4"));
  EXPECT_FALSE(IsDeviceMounted("", "0:45"));
}

TEST_F(MountPoint, ThePathOfAStaleMountIsThatOfItsParentAndItsName) {
  std::filesystem::create_directory(Path("a"));
  std::filesystem::create_symlink("a", Path("link"));
  EXPECT_EQ(PathOfStaleMount(Path("link/mnt")), Path("a/mnt"));
  EXPECT_EQ(PathOfStaleMount(Path("link/mnt//")), Path("a/mnt"));
  EXPECT_EQ(PathOfStaleMount("mnt"), std::filesystem::current_path().string() + "/mnt");
  EXPECT_EQ(PathOfStaleMount("/mnt"), "/mnt");
  EXPECT_EQ(PathOfStaleMount(Path("none/mnt")), Path("none/mnt"));
}

TEST_F(MountPoint, TheDeviceMustBeThere) {
  const Status missing = CheckFuse(Path("fuse"));
  EXPECT_NE(missing.message().find("modprobe fuse"), std::string::npos) << missing.message();
  if (geteuid() != 0) {
    Write("device", "");
    ASSERT_EQ(chmod(Path("device").c_str(), 0), 0);
    const Status closed = CheckFuse(Path("device"));
    EXPECT_NE(closed.message().find("chmod 666"), std::string::npos) << closed.message();
  }
}

TEST_F(MountPoint, FusermountMustBeThereAndMayBeRun) {
  const Status missing = CheckFusermount(directory_);
  EXPECT_NE(missing.message().find("install the package fuse3"), std::string::npos)
      << missing.message();
  const std::string program = Path("fusermount3");
  Write("fusermount3", "");
  ASSERT_EQ(chmod(program.c_str(), 0600), 0);
  const Status closed = CheckFusermount("/nonexistent:" + directory_);
  EXPECT_NE(closed.message().find("you may not run " + program), std::string::npos)
      << closed.message();
  EXPECT_NE(closed.message().find("chmod 4755 " + program), std::string::npos) << closed.message();
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  EXPECT_TRUE(CheckFusermount(directory_).ok());
}

// Asked by somebody who is in no such group, in a process of its own.
TEST_F(MountPoint, WhereAGroupMayItIsJoinedAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  const passwd* const user = getpwnam("nobody");
  const group* const closed_to = getgrnam("daemon");
  ASSERT_TRUE(user != nullptr && closed_to != nullptr);
  const std::string remedy = "usermod -aG daemon nobody, and log in again";
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  Write("fusermount3", "");
  Write("device", "");
  for (const auto& [name, mode] : {std::pair("fusermount3", 04750), std::pair("device", 0660)}) {
    ASSERT_EQ(chown(Path(name).c_str(), 0, closed_to->gr_gid), 0);
    ASSERT_EQ(chmod(Path(name).c_str(), static_cast<mode_t>(mode)), 0);
  }
  const auto check_both = [&] {
    if (setgroups(0, nullptr) != 0 || setresgid(user->pw_gid, user->pw_gid, user->pw_gid) != 0 ||
        setresuid(user->pw_uid, user->pw_uid, user->pw_uid) != 0) {
      return 1;
    }
    const auto says_so = [&](const Status& status) {
      return status.message().find(remedy) != std::string::npos;
    };
    if (!says_so(CheckFusermount(directory_))) return 2;
    return says_so(CheckFuse(Path("device"))) ? 0 : 3;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(check_both());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(MountPoint, WhoMayAllowOthers) {
  EXPECT_TRUE(AllowsOthers("user_allow_other\n"));
  EXPECT_TRUE(AllowsOthers("# x\n  user_allow_other \r\nmount_max = 10"));
  EXPECT_FALSE(AllowsOthers("#user_allow_other\n"));
  EXPECT_FALSE(AllowsOthers("user_allow_other = no\n"));
  EXPECT_FALSE(AllowsOthers(""));
  const Status status = CheckAllowOther(Path("none"));
  EXPECT_EQ(status.ok(), geteuid() == 0);
  if (!status.ok()) {
    EXPECT_NE(status.message().find("user_allow_other"), std::string::npos);
  }
}

TEST_F(MountPoint, RdmaNeedsMemlock) {
  EXPECT_TRUE(CheckMemlock(8U << 20U).ok());
  const Status status = CheckMemlock(64U << 10U);
  EXPECT_NE(status.message().find("64 KiB"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("put the line '* - memlock unlimited' into "
                                  "/etc/security/limits.d/rdfs.conf and log in again"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace rdfs::fs::fuse
