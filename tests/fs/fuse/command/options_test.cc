// The command line: what is accepted, what is refused and how, and hostile input.
#include "fs/fuse/command/options.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace rdfs::fs::fuse {
namespace {

ExportSource ExportOf(std::string_view text) {
  Result<Source> source = ParseSource(text);
  EXPECT_TRUE(source.ok()) << text << ": " << source.status().message();
  if (!source.ok()) return {};
  EXPECT_TRUE(std::holds_alternative<ExportSource>(*source)) << text;
  return std::get<ExportSource>(*source);
}

SshSource SshOf(std::string_view text) {
  Result<Source> source = ParseSource(text);
  EXPECT_TRUE(source.ok()) << text << ": " << source.status().message();
  if (!source.ok()) return {};
  EXPECT_TRUE(std::holds_alternative<SshSource>(*source)) << text;
  return std::get<SshSource>(*source);
}

// A variable of the environment, for a test's time.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* before = getenv(name);
    if (before != nullptr) before_ = before;
    Set(value);
  }
  ~Variable() { Set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  void Set(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(MountOptions, TheHomeDirectoryOfAFile) {
  const Variable home("HOME", "/home/me");
  const auto key_file = [](const std::string& value) {
    Options options;
    EXPECT_TRUE(ApplyMountOptions("key_file=" + value, options).ok());
    return options.key_file;
  };
  EXPECT_EQ(key_file("~/.config/rdfs/key"), "/home/me/.config/rdfs/key");
  EXPECT_EQ(key_file("/a/~/key"), "/a/~/key");
  EXPECT_EQ(key_file("~other/key"), "~other/key");
  Options options;
  ASSERT_TRUE(ApplyMountOptions("log=~/log", options).ok());
  EXPECT_EQ(options.log_file, "/home/me/log");
  home.Set(nullptr);
  const passwd* const user = getpwuid(geteuid());
  EXPECT_EQ(key_file("~/key"), user != nullptr ? user->pw_dir + std::string("/key") : "~/key");
}

TEST(ParseSource, Exports) {
  EXPECT_EQ(ExportOf("rdfs://node/data").host, "node");
  EXPECT_EQ(ExportOf("rdfs://node/data").port, 7337);
  EXPECT_EQ(ExportOf("rdfs://node/data").name, "data");
  EXPECT_EQ(ExportOf("rdfs://node:99/data/").port, 99);
  EXPECT_EQ(ExportOf("rdfs://node:99/data/").name, "data");
  EXPECT_EQ(ExportOf("rdfs://[fe80::1%eth0]:1234/a b").host, "fe80::1%eth0");
  EXPECT_EQ(ExportOf("rdfs://[::1]/x").port, 7337);
}

TEST(ParseSource, DirectoriesThroughSsh) {
  EXPECT_EQ(SshOf("node:/data").destination, "node");
  EXPECT_EQ(SshOf("node:/data").directory, "/data");
  EXPECT_EQ(SshOf("me@node:data:x@y").destination, "me@node");
  EXPECT_EQ(SshOf("me@node:data:x@y").directory, "data:x@y");
  EXPECT_EQ(SshOf("me@corp@node:").destination, "me@corp@node");
  EXPECT_EQ(SshOf("me@corp@node:").directory, ".");
  EXPECT_EQ(SshOf("me@[::1]:/d").destination, "me@::1");
  EXPECT_EQ(SshOf("node:\xff\n'").directory, "\xff\n'");
}

TEST(ParseSource, TheHomeDirectoryThroughSsh) {
  EXPECT_EQ(SshOf("node:~").directory, ".");
  EXPECT_EQ(SshOf("node:~/").directory, ".");
  EXPECT_EQ(SshOf("node:~/data").directory, "data");
  EXPECT_EQ(SshOf("node:~//data/~").directory, "data/~");
  EXPECT_EQ(SshOf("node:./~data").directory, "./~data");
  EXPECT_EQ(SshOf("node:/~/data").directory, "/~/data");
}

TEST(ParseSource, AHostIsNoScheme) {
  EXPECT_EQ(SshOf("me@node://data").directory, "//data");
  EXPECT_EQ(SshOf("node://data").directory, "//data");
}

TEST(ParseSource, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "status",
                           "/data",
                           ":",
                           ":/data",
                           "@node:/d",
                           "@:/d",
                           "-oProxyCommand=x:/d",
                           "me@-oProxyCommand=x:/d",
                           "-l@node:/d",
                           "a/b:/d",
                           "no de:/d",
                           "no\nde:/d",
                           "[::1:/d",
                           "[::1]x:/d",
                           "[]:/d",
                           "node:~other",
                           "node:~other/data",
                           "http://node/data",
                           "RDFS://node/data",
                           "rdfs://",
                           "rdfs:///data",
                           "rdfs://node",
                           "rdfs://node/",
                           "rdfs://node:/d",
                           "rdfs://node:0/d",
                           "rdfs://node:65536/d",
                           "rdfs://node:7x/d",
                           "rdfs://node:-1/d",
                           "rdfs://[::1/d",
                           "rdfs://[::1]7/d",
                           "rdfs://node/a/b",
                           "rdfs://node/a\nb",
                           "rdfs://no de/d"}) {
    const Result<Source> source = ParseSource(text);
    EXPECT_FALSE(source.ok()) << text;
    if (source.ok()) continue;
    EXPECT_NE(source.status().message().find("rdfs://HOST[:PORT]/NAME"), std::string::npos) << text;
  }
  EXPECT_FALSE(ParseSource("rdfs://node/" + std::string(256, 'x')).ok());
  EXPECT_FALSE(ParseSource("node:/" + std::string(4096, 'x')).ok());
}

TEST(MountOptions, AllWords) {
  Options options;
  const Status status = ApplyMountOptions(
      "key_file=/"
      "k,require=shm,address=10.0.0.2,deadline=5,address=[fd00::2],address=fd00::3,workers=2,allow_"
      "other,ro,"
      "plaintext,idmap=none,strict,sync,"
      "rdfsd_path=/opt/rdfsd,ssh_command=ssh -p 22 -o 'User=a "
      "b',log=/l,read_ahead=0,prefetch=512,metrics=[::1]:9464,suid,dev,noexec,"
      "noatime,,_netdev,x-systemd.automount,defaults,user,auto",
      options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(options.key_file, "/k");
  EXPECT_EQ(options.require, transport::Kind::kShm);
  EXPECT_EQ(options.other_addresses, (std::vector<std::string>{"10.0.0.2", "fd00::2", "fd00::3"}));
  EXPECT_EQ(options.deadline, std::chrono::seconds(5));
  EXPECT_EQ(options.workers, 2U);
  EXPECT_TRUE(options.allow_other && options.read_only && options.plaintext && options.raw_ids);
  EXPECT_TRUE(options.strict && options.sync && options.set_uid && options.devices &&
              options.no_exec);
  EXPECT_TRUE(options.no_atime);
  EXPECT_EQ(options.rdfsd_path, "/opt/rdfsd");
  EXPECT_EQ(options.ssh_command, (std::vector<std::string>{"ssh", "-p", "22", "-o", "User=a b"}));
  EXPECT_EQ(options.log_file, "/l");
  EXPECT_EQ(options.read_ahead_kib, 0U);
  EXPECT_EQ(options.prefetch_kib, 512U);
  ASSERT_TRUE(options.metrics);
  EXPECT_EQ(ToString(*options.metrics), "[::1]:9464");
}

TEST(MountOptions, TheDeadlineIsThirtySecondsWhereNoneIsGiven) {
  Options options;
  ASSERT_TRUE(ApplyMountOptions("ro", options).ok());
  EXPECT_EQ(options.deadline, std::chrono::seconds(30));
}

TEST(MountOptions, TheLastWordCountsAndCommasCanBeKept) {
  Options options;
  ASSERT_TRUE(ApplyMountOptions("ro,rw,suid,nosuid,key_file=/a\\,b\\\\c\\d", options).ok());
  EXPECT_FALSE(options.read_only);
  EXPECT_FALSE(options.set_uid);
  EXPECT_EQ(options.key_file, "/a,b\\c\\d");
}

TEST(MountOptions, SayWhoTheFarUserIs) {
  Options options;
  ASSERT_TRUE(ApplyMountOptions("uid=1000,gid=0", options).ok());
  EXPECT_EQ(options.uid, 1000U);
  EXPECT_EQ(options.gid, 0U);
  for (const char* text : {"uid=", "uid=joe", "uid=-1", "gid=4294967295", "gid=4294967296"}) {
    EXPECT_FALSE(ApplyMountOptions(text, options).ok()) << text;
  }
}

TEST(MountOptions, AreSplitWhereABackslashDoesNotKeepTheComma) {
  using Words = std::vector<std::string_view>;
  EXPECT_EQ(SplitMountOptions(R"(,a=b\,c,,d\\,e\)"), (Words{R"(a=b\,c)", R"(d\\)", "e\\"}));
  EXPECT_EQ(SplitMountOptions(""), Words{});
}

TEST(MountOptions, UnknownOnesAreRefusedByNameWithTheKnownOnes) {
  Options options;
  const Status status = ApplyMountOptions("ro,requires=verbs", options);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("requires"), std::string::npos);
  EXPECT_NE(status.message().find("require=verbs|shm|tcp"), std::string::npos);
}

TEST(MountOptions, ARemountIsRefusedWhateverIsBesideIt) {
  for (const char* list : {"remount", "remount,ro", "rw,user_id=0,group_id=0,remount"}) {
    Options options;
    EXPECT_EQ(ApplyMountOptions(list, options).message(),
              "-o remount: what a mount is like is settled when it begins; unmount it, and mount "
              "it again");
  }
}

TEST(MountOptions, AQuoteThatIsNotClosedIsToldWithItsOption) {
  Options options;
  EXPECT_EQ(ApplyMountOptions("ssh_command='ssh", options).message(),
            "-o ssh_command='ssh: the quote (') is not closed");
}

TEST(MountOptions, BadValuesAreRefused) {
  for (const char* text : {"require=ib",
                           "require=",
                           "require",
                           "address=",
                           "address=a b",
                           "address=[fd00::2]:7337",
                           "address=10.0.0.2:7337",
                           "address=10.0.0.2/24",
                           "deadline=0",
                           "deadline=-1",
                           "deadline=1e9",
                           "deadline= 1",
                           "deadline=99999999999999999999",
                           "workers=0",
                           "workers=17",
                           "idmap=root",
                           "ro=1",
                           "key_file",
                           "key_file=",
                           "rdfsd_path=-x",
                           "rdfsd_path=a\nb",
                           "ssh_command=",
                           "ssh_command=ssh 'x",
                           "log=",
                           "metrics=",
                           "metrics=there",
                           "read_ahead=1048577",
                           "prefetch=8193",
                           "prefetch=-1",
                           "allow_other=yes",
                           "=",
                           "=x"}) {
    Options options;
    const Status status = ApplyMountOptions(text, options);
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_FALSE(status.message().empty()) << text;
  }
}

Answer AnswerOf(const std::vector<std::string>& arguments) {
  auto parsed = ParseCommandLine(arguments);
  EXPECT_TRUE(std::holds_alternative<Answer>(parsed));
  return std::holds_alternative<Answer>(parsed) ? std::get<Answer>(parsed) : Answer{};
}

TEST(CommandLine, AMount) {
  const auto parsed = ParseCommandLine(
      {"me@node:/d", "/mnt", "-o", "ro,workers=3", "-vv", "-o", "deadline=7", "-f"});
  ASSERT_TRUE(std::holds_alternative<Options>(parsed)) << std::get<Answer>(parsed).text;
  const auto& options = std::get<Options>(parsed);
  EXPECT_EQ(options.source_text, "me@node:/d");
  EXPECT_EQ(options.mount_point, "/mnt");
  EXPECT_TRUE(options.read_only && options.foreground);
  EXPECT_EQ(options.verbosity, 2);
  EXPECT_EQ(options.workers, 3U);
  EXPECT_EQ(options.deadline, std::chrono::seconds(7));
}

TEST(CommandLine, AsMountFuseCallsIt) {
  const auto parsed = ParseCommandLine({"rdfs://h/n", "/mnt", "-o", "rw,nosuid,nodev,noatime"});
  ASSERT_TRUE(std::holds_alternative<Options>(parsed)) << std::get<Answer>(parsed).text;
}

TEST(CommandLine, OfSyncAndAsyncTheLastCounts) {
  const auto parsed = ParseCommandLine({"rdfs://h/n", "/mnt", "-o", "sync,writeback,async"});
  ASSERT_TRUE(std::holds_alternative<Options>(parsed)) << std::get<Answer>(parsed).text;
  EXPECT_FALSE(std::get<Options>(parsed).sync);
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(AnswerOf({"--version"}).exit_code, 0);
  EXPECT_EQ(AnswerOf({"--version"}).text.rfind("rdfs ", 0), 0U);
  const Answer help = AnswerOf({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* word : {"key_file=FILE", "require=verbs|shm|tcp", "rdfsd_path=PATH", "syslog"}) {
    EXPECT_NE(help.text.find(word), std::string::npos) << word;
  }
}

TEST(CommandLine, WrongUsageIsTwoAndOneLine) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"node:/d"},
      {"node:/d", "/mnt", "more"},
      {"node:/d", "/mnt", "--no-such"},
      {"node:/d", "/mnt", "-o"},
      {"node:/d", "/mnt", "-o", "nonsense"},
      {"node:/d", "/mnt", "-o", "key_file=/k"},
      {"rdfs://h/n", "/mnt", "-o", "plaintext,require_encryption"},
      {"rdfs://h/n", "/mnt", "-o", "writeback,strict"},
      {"rdfs://h/n", "/mnt", "-o", "writeback,sync"},
      {"rdfs://h/n", "/mnt", "-o", "require=verbs,require_encryption"}};
  for (const auto& arguments : cases) {
    const Answer answer = AnswerOf(arguments);
    EXPECT_EQ(answer.exit_code, kExitUsage) << answer.text;
    EXPECT_EQ(answer.text.find('\n'), std::string::npos) << answer.text;
    EXPECT_EQ(answer.text.rfind("rdfs: ", 0), 0U) << answer.text;
  }
}

TEST(CommandLine, AMalformedSourceIsAFailure) {
  const Answer answer = AnswerOf({"node", "/mnt"});
  EXPECT_EQ(answer.exit_code, kExitFailure);
  EXPECT_NE(answer.text.find("'node' is not a source"), std::string::npos) << answer.text;
}

}  // namespace
}  // namespace rdfs::fs::fuse
