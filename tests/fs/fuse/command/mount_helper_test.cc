// The command line that mount(8) gives to mount.rdfs.
#include "fs/fuse/command/mount_helper.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

using Arguments = std::vector<std::string>;

Options Accepted(const Arguments& arguments) {
  auto parsed = ParseHelperCommandLine(arguments);
  if (const auto* answer = std::get_if<Answer>(&parsed)) {
    ADD_FAILURE() << answer->text;
    return {};
  }
  return std::get<Options>(parsed);
}

Answer Refused(const Arguments& arguments) {
  auto parsed = ParseHelperCommandLine(arguments);
  if (const auto* answer = std::get_if<Answer>(&parsed)) return *answer;
  ADD_FAILURE() << "it was accepted";
  return {};
}

TEST(MountHelper, IsKnownByTheNameOfTheProgram) {
  EXPECT_TRUE(IsMountHelper("/sbin/mount.rdfs"));
  EXPECT_TRUE(IsMountHelper("mount.rdfs"));
  EXPECT_FALSE(IsMountHelper("/usr/bin/rdfs"));
  EXPECT_FALSE(IsMountHelper("/srv/mount.rdfs/rdfs"));
}

TEST(MountHelper, TakesWhatMountPasses) {
  const Options options = Accepted({"rdfs://node/data", "/mnt", "-n", "-v", "-t", "rdfs", "-o",
                                    "ro,nosuid,nodev,noexec,key_file=/etc/rdfs/key,workers=2"});
  EXPECT_EQ(options.source_text, "rdfs://node/data");
  EXPECT_EQ(options.mount_point, "/mnt");
  EXPECT_TRUE(options.read_only);
  EXPECT_TRUE(options.no_exec);
  EXPECT_FALSE(options.set_uid);
  EXPECT_FALSE(options.devices);
  EXPECT_EQ(options.key_file, "/etc/rdfs/key");
  EXPECT_EQ(options.workers, 2U);
  EXPECT_EQ(options.verbosity, 1);
  EXPECT_FALSE(options.foreground);
}

TEST(MountHelper, TakesBundledFlagsAndOptionsAnywhere) {
  const Options options = Accepted({"-nvo", "ro", "node:/data", "-o", "allow_other", "/mnt"});
  EXPECT_TRUE(options.read_only);
  EXPECT_TRUE(options.allow_other);
  EXPECT_EQ(options.verbosity, 1);
  EXPECT_TRUE(Accepted({"node:/data", "/mnt"}).key_file.empty());
}

TEST(MountHelper, LeavesOutWhatOnlyTheSystemUses) {
  const Options options = Accepted(
      {"node:/data", "/mnt", "-o",
       "defaults,rw,_netdev,nofail,noauto,x-systemd.automount,x-systemd.idle-timeout=60,"
       "user=alice,users,owner,group,comment=systemd.mount,relatime,nodiratime,strictatime,"
       "nostrictatime,iversion,noiversion,lazytime,nolazytime,mand,nomand,silent,loud,deadline=9"});
  EXPECT_EQ(options.deadline.count(), 9);
}

TEST(MountHelper, RefusesWhatAMountDoesNotKeep) {
  const auto refused = [](const Arguments& flags, const std::string& word) {
    Arguments arguments = {"node:/data", "/mnt", "-o", "rw," + word};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Answer answer = Refused(arguments);
    EXPECT_EQ(answer.exit_code, kHelperUsage);
    return answer.text;
  };
  for (const Arguments& flags : {Arguments{}, Arguments{"-s"}}) {
    EXPECT_EQ(refused(flags, "dirsync"),
              "mount.rdfs: -o dirsync: a name that was made or removed is at the server when its "
              "call returns, and on the server's disk after an fsync of its directory; leave it "
              "out");
    EXPECT_EQ(refused(flags, "nosymfollow"),
              "mount.rdfs: -o nosymfollow: the kernel keeps that by itself, of what is mounted "
              "already; leave it out, and then run as root 'mount -o remount,bind,nosymfollow "
              "MNT'");
    EXPECT_EQ(refused(flags, "user_id=0,remount,ro"),
              "mount.rdfs: -o remount: what a mount is like is settled when it begins; unmount "
              "it, and mount it again");
  }
}

TEST(MountHelper, KeepsCommasInsideAValue) {
  EXPECT_EQ(Accepted({"rdfs://n/d", "/mnt", "-o", R"(comment=a\,b,key_file=/a\,b,ro)"}).key_file,
            "/a,b");
}

TEST(MountHelper, RefusesWhatNobodyKnows) {
  const Answer answer = Refused({"node:/data", "/mnt", "-o", "rw,nonsense=1"});
  EXPECT_EQ(answer.exit_code, kHelperUsage);
  EXPECT_TRUE(
      answer.text.starts_with("mount.rdfs: -o nonsense: there is no such option; there are "))
      << answer.text;
  EXPECT_EQ(answer.text.find('\n'), std::string::npos);
}

TEST(MountHelper, LeavesOutWhatNobodyKnowsIfAsked) {
  const Options options = Accepted({"node:/data", "/mnt", "-s", "-o", "nonsense=1,ro,more"});
  EXPECT_TRUE(options.read_only);
  // A value that is wrong is not an option that is unknown.
  EXPECT_EQ(Refused({"node:/data", "/mnt", "-s", "-o", "require=ib"}).exit_code, kHelperUsage);
}

TEST(MountHelper, RefusesWhatItCannotDo) {
  for (const Arguments& arguments : {
           Arguments{},
           Arguments{"node:/data"},
           Arguments{"node:/data", "/mnt", "/more"},
           Arguments{"node:/data", "/mnt", "-o"},
           Arguments{"node:/data", "/mnt", "-ot", "ro"},
           Arguments{"node:/data", "/mnt", "-q"},
           Arguments{"node:/data", "/mnt", "--verbose"},
           Arguments{"node:/data", "/mnt", "-N", "/proc/1/ns/mnt"},
           Arguments{"node:/data", "/mnt", "-o", "ro,remount"},
       }) {
    const Answer answer = Refused(arguments);
    EXPECT_EQ(answer.exit_code, kHelperUsage) << answer.text;
    EXPECT_TRUE(answer.text.starts_with("mount.rdfs: ")) << answer.text;
  }
  EXPECT_EQ(Refused({"nosource", "/mnt"}).exit_code, kHelperFailure);
}

TEST(MountHelper, OnlyChecksWithF) {
  const Answer checked = Refused({"node:/data", "/mnt", "-f", "-o", "ro"});
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_TRUE(checked.text.empty());
  EXPECT_EQ(Refused({"node:/data", "/mnt", "-f", "-o", "nonsense"}).exit_code, kHelperUsage);
}

TEST(MountHelper, HasTheExitStatusesOfMount) {
  EXPECT_EQ(HelperExitCode(0), 0);
  EXPECT_EQ(HelperExitCode(kExitUsage), 1);
  EXPECT_EQ(HelperExitCode(kExitFailure), 32);
}

}  // namespace
}  // namespace rdfs::fs::fuse
