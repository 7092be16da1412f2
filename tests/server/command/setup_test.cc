// What rdfsd makes at its first start and needs at every other one: the key, and the handles'
// secret.
#include "server/command/setup.h"

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/inode/handle.h"
#include "tests/server/temp_dir.h"
#include "transport/base/fd.h"

namespace rdfs::server {
namespace {

// As on a disk that has room for `bytes` more. Returns the exit code.
int WithRoomFor(rlim_t bytes, const std::function<int()>& steps) {
  const pid_t child = fork();
  if (child == 0) {
    (void)signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    _exit(setrlimit(RLIMIT_FSIZE, &limit) == 0 ? steps() : 100);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::size_t NamesIn(const std::string& folder) {
  const std::filesystem::directory_iterator names(folder);
  return static_cast<std::size_t>(std::distance(begin(names), end(names)));
}

TEST(Setup, APoolThatTheMachineCannotHoldIsWarnedOf) {
  const auto said = [](std::optional<std::size_t> pool) {
    Options options;
    options.pool_bytes = pool;
    testing::internal::CaptureStderr();
    WarnOfLargePool(options);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(std::nullopt), "");
  EXPECT_EQ(said(1 << 20), "");
  EXPECT_NE(said(std::size_t{1} << 60U).find("the pool may grow to"), std::string::npos);
}

TEST(Setup, NoHalfAKeyIsLeftWhereTheDiskIsFull) {
  const TempDir dir;
  ASSERT_EQ(setenv("XDG_CONFIG_HOME", dir.path().c_str(), 1), 0);
  for (const rlim_t room : {0U, 5U}) {
    EXPECT_EQ(WithRoomFor(room, [] { return SetUpKey({}).ok() ? 1 : 0; }), 0);
    EXPECT_EQ(NamesIn(dir / "rdfs"), 0U) << room;
  }
  const auto made = SetUpKey({});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_TRUE(made->made);
  const auto again = SetUpKey({});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_FALSE(again->made);
  EXPECT_EQ(again->key.text(), made->key.text());
  EXPECT_EQ(NamesIn(dir / "rdfs"), 1U);
}

TEST(Setup, AKeyFileMayBeInTheHomeDirectory) {
  const TempDir dir;
  std::optional<std::string> before;
  if (const char* home = std::getenv("HOME")) before = home;
  setenv("HOME", dir.path().c_str(), 1);
  Options options;
  options.key_file = "~/none";
  const auto setup = SetUpKey(options);
  before ? setenv("HOME", before->c_str(), 1) : unsetenv("HOME");
  ASSERT_FALSE(setup.ok());
  EXPECT_NE(setup.status().message().find("no key file " + (dir / "none")), std::string::npos)
      << setup.status().message();
}

TEST(Setup, NoHalfASecretIsLeftWhereTheDiskIsFull) {
  const TempDir dir;
  const std::string path = dir / "secret";
  for (const rlim_t room : {0U, 5U}) {
    EXPECT_EQ(WithRoomFor(room, [&] { return HandleSecret::LoadOrCreate(path).ok() ? 1 : 0; }), 0);
    EXPECT_EQ(NamesIn(dir.path()), 0U) << room;
  }
  EXPECT_TRUE(HandleSecret::LoadOrCreate(path).ok());
}

// Else a second server, which starts at the same time, could read it half.
TEST(Setup, ASecretIsNeverWrittenUnderItsName) {
  const TempDir dir;
  const Fd events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(
      inotify_add_watch(events.get(), dir.path().c_str(), IN_CREATE | IN_MOVED_TO | IN_MODIFY), 0);
  ASSERT_TRUE(HandleSecret::LoadOrCreate(dir / "secret").ok());
  alignas(inotify_event) std::array<char, 4096> buffer{};
  const ssize_t size = read(events.get(), buffer.data(), buffer.size());
  bool appeared = false;
  for (ssize_t at = 0; at < size;) {
    const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    if (std::string_view(event->name) != "secret") continue;
    EXPECT_EQ(event->mask & IN_MODIFY, 0U);
    appeared = true;
  }
  EXPECT_TRUE(appeared);
}

TEST(Setup, TheMountCommandIsOneThatMounts) {
  std::array<char, 256> own{};
  ASSERT_EQ(gethostname(own.data(), own.size() - 1), 0);
  const std::string host = own.data();
  const auto command = [](const std::vector<std::string>& listen, bool no_auth = false,
                          const std::string& name = "x", const std::string& key = "") {
    Options options;
    options.listen = listen;
    options.no_auth = no_auth;
    return MountCommand(options, name, transport::kDefaultPort, key);
  };
  EXPECT_EQ(command({"10.0.0.1"}), "rdfs rdfs://10.0.0.1/x MOUNTPOINT");
  EXPECT_EQ(command({}, true), "rdfs rdfs://localhost/x MOUNTPOINT");
  for (const bool no_auth : {false, true}) {
    for (const char* every : {"0.0.0.0", "::", "0:0:0:0:0:0:0:0"}) {
      EXPECT_EQ(command({every}, no_auth), "rdfs rdfs://" + host + "/x MOUNTPOINT");
    }
  }
  EXPECT_EQ(command({"fd00::1"}), "rdfs 'rdfs://[fd00::1]/x' MOUNTPOINT");
  EXPECT_EQ(command({"h"}, false, "Bob's files", "/etc/a key,b\\c"),
            R"(rdfs 'rdfs://h/Bob'\''s files' MOUNTPOINT -o 'key_file=/etc/a key\,b\\c')");
  EXPECT_EQ(command({"h"}, false, "größe", "/home/u/.config/rdfs/key"),
            "rdfs rdfs://h/größe MOUNTPOINT -o key_file=/home/u/.config/rdfs/key");
}

}  // namespace
}  // namespace rdfs::server
