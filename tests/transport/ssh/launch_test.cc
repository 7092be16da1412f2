// The opening lines between rdfs and a server that ssh starts, and the launch itself with shell
// scripts in the place of ssh: what they print and how they end is what a far host can do to us.
#include "transport/ssh/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stop_token>
#include <string>
#include <thread>

#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/ssh/bootstrap.h"
#include "transport/ssh/error_relay.h"

namespace rdfs::transport::ssh {
namespace {

constexpr std::string_view kMagic = "RDFS1";
const std::string kKey(64, 'a');
constexpr Program kProgram{.name = "rdfsd",
                           .arguments = "--stdio",
                           .magic = kMagic,
                           .path_option = "-o rdfsd_path=PATH",
                           .ssh_option = "-o ssh_command=CMD",
                           .deadline_option = "-o deadline"};

Launch LaunchOf(std::vector<std::string> command, std::string destination) {
  return {.program = kProgram,
          .ssh_command = std::move(command),
          .destination = std::move(destination),
          .path = "rdfsd",
          .text = "/d d"};
}

TEST(BootstrapLines, PercentCodingIsReversible) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(PercentDecode(PercentEncode(all)), all);
  EXPECT_EQ(PercentEncode("/srv/a b%~\n"), "/srv/a%20b%25~%0A");
  EXPECT_EQ(PercentDecode("%2f%2F"), "//");
  for (const char* bad : {"%", "%2", "%2g", "%-1", "a b", "a\n", "\"", "%%41"}) {
    EXPECT_FALSE(PercentDecode(bad)) << bad;
  }
}

TEST(BootstrapLines, TheRequest) {
  const std::string line = EncodeBootstrapRequest(kMagic, {.key = kKey, .text = "/a b\n"});
  EXPECT_EQ(line, "RDFS1 " + kKey + " /a%20b%0A\n");
  const Result<BootstrapRequest> parsed =
      ParseBootstrapRequest(kMagic, std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->key, kKey);
  EXPECT_EQ(parsed->text, "/a b\n");
}

TEST(BootstrapLines, HostileRequests) {
  const std::string start = "RDFS1 " + kKey + " ";
  for (const std::string& line :
       {std::string(), std::string("RDFS1"), std::string("RDFS1 "), "RDFS2 " + kKey + " /",
        "RDFS1 " + kKey, start, start + "%00", start + "a b", start + std::string(4096, 'x'),
        start + std::string(20'000, 'x'), "RDFS1 " + kKey + "a /",
        "RDFS1 " + std::string(63, 'a') + " /", "RDFS1 " + std::string(63, 'a') + "g /",
        "RDFS1  " + kKey + " /", " " + start + "/"}) {
    const Result<BootstrapRequest> parsed = ParseBootstrapRequest(kMagic, line);
    EXPECT_FALSE(parsed.ok()) << line;
    EXPECT_EQ(parsed.status().message().find("aaaa"), std::string::npos) << "shows the key";
  }
}

TEST(BootstrapLines, TheReply) {
  EXPECT_EQ(EncodeBootstrapReply(kMagic, Status()), "\nRDFS1 OK\n");
  const std::string error =
      EncodeBootstrapReply(kMagic, Status(Code::kNotFound, "there is no /x; make it\x1b[31m"));
  ASSERT_EQ(error.front(), '\n');
  const std::optional<Status> parsed =
      ParseBootstrapReply(kMagic, std::string_view(error).substr(1, error.size() - 2));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->message(), "there is no /x; make it?[31m");
  ASSERT_TRUE(ParseBootstrapReply(kMagic, "RDFS1 OK\r"));
  EXPECT_TRUE(ParseBootstrapReply(kMagic, "RDFS1 OK")->ok());
  for (const char* noise : {"", "RDFS1", "RDFS1 ", "RDFS1 OKAY", "RDFS1 ERROR", "RDFS1 ERROR %",
                            "OK", "Welcome to RDFS1 OK", "RDFS2 OK"}) {
    EXPECT_FALSE(ParseBootstrapReply(kMagic, noise)) << noise;
  }
}

TEST(SshArguments, NoShellOfOursAndOneOfTheirsThatCannotBeFooled) {
  Launch launch = LaunchOf({"ssh", "-p", "22"}, "me@node");
  launch.path = "/o p/it's;rm";
  launch.ask = false;
  const std::vector<std::string> arguments = SshArguments(launch);
  EXPECT_EQ(arguments.front(), "ssh");
  EXPECT_EQ(arguments[arguments.size() - 2], "me@node");
  EXPECT_EQ(arguments.back(), "exec '/o p/it'\\''s;rm' --stdio");
  EXPECT_NE(std::find(arguments.begin(), arguments.end(), "-oBatchMode=yes"), arguments.end());
  EXPECT_NE(std::find(arguments.begin(), arguments.end(), "-oRemoteCommand=none"), arguments.end())
      << "ssh takes no command beside one of ssh_config's";
  for (const std::string& argument : arguments) {
    EXPECT_EQ(argument.find("/d"), std::string::npos) << "the directory travels through stdin";
  }
  EXPECT_EQ(FarCommand("~/bin/rdfsd", "--stdio"), "exec ~/'bin/rdfsd' --stdio");
  EXPECT_EQ(ParseSshHostname("user me\nhostname 10.0.0.7\nport 22\n"), "10.0.0.7");
  EXPECT_EQ(ParseSshHostname("hostname x"), "x");
  EXPECT_EQ(ParseSshHostname("nothing\n"), "");
}

TEST(SplitWords, AsAShellWould) {
  const auto split = [](std::string_view text) {
    Result<std::vector<std::string>> words = SplitWords(text);
    return words.ok() ? *words : std::vector<std::string>{"<refused>"};
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(split(""), Words{});
  EXPECT_EQ(split("  a\tb  "), (Words{"a", "b"}));
  EXPECT_EQ(split("a'b c'd \"e \\\" f\" '' \\ g"), (Words{"ab cd", "e \" f", "", " g"}));
  EXPECT_EQ(split("$(x) `y` ; > *"), (Words{"$(x)", "`y`", ";", ">", "*"}));
  EXPECT_EQ(split("'a"), Words{"<refused>"});
  EXPECT_EQ(split("a\\"), Words{"a\\"});
}

// A script that is run instead of ssh.
class SshLaunch : public testing::Test {
 protected:
  void SetUp() override {
    (void)std::signal(SIGPIPE, SIG_IGN);  // as the command does
    std::string name = testing::TempDir() + "rdfs-launch-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Result<Started> Run(const std::string& script,
                      std::chrono::milliseconds limit = std::chrono::seconds(20),
                      bool relay_errors = false) {
    const std::string path = directory_ + "/ssh";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    Launch launch = LaunchOf({path}, "node");
    launch.relay_errors = relay_errors;
    return Start(launch, DeadlineAfter(limit));
  }
  void ExpectFailure(const std::string& script, const std::string& words,
                     std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const Result<Started> launched = Run(script, limit);
    ASSERT_FALSE(launched.ok()) << script;
    EXPECT_NE(launched.status().message().find(words), std::string::npos)
        << launched.status().message();
  }

  std::string directory_;
};

TEST_F(SshLaunch, TheKeyTravelsInStdinAndTheRestIsTheSessions) {
  Result<Started> launched =
      Run("read magic key dir; printf 'motd\\nprompt> '; "
          "printf '\\nRDFS1 OK\\n%s %s %s' \"$magic\" \"$key\" \"$dir\"; "
          "printf ' %s' \"$*\"; exec cat");
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  const std::string key(launched->key.text());
  EXPECT_EQ(key.size(), kBootstrapKeyDigits);
  std::string got;
  std::array<std::byte, 512> piece{};
  const Deadline deadline = DeadlineAfter(std::chrono::seconds(20));
  while (got.find("--stdio") == std::string::npos && BootClock::now() < deadline) {
    Result<std::size_t> read = launched->stream->Read(piece);
    ASSERT_TRUE(read.ok()) << read.status().message();
    got += AsText(ByteSpan(piece).first(*read));
  }
  EXPECT_EQ(got.rfind("RDFS1 " + key + " /d%20d ", 0), 0U) << got;
  EXPECT_EQ(got.find(key, 70), std::string::npos) << "the key must not be an argument";
}

// A pipe that is our standard error until it is taken away, or another one is.
class StandardErrorPipe {
 public:
  StandardErrorPipe() : before_(dup(STDERR_FILENO)) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read_end_ = Fd(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  StandardErrorPipe(const StandardErrorPipe&) = delete;
  StandardErrorPipe& operator=(const StandardErrorPipe&) = delete;
  ~StandardErrorPipe() { TakeAway(); }

  void TakeAway() {
    if (before_.valid()) dup2(before_.get(), STDERR_FILENO);
    before_.Reset();
  }
  // What is said next, "" when nobody has the other end any more, or "late".
  std::string Read(int limit_ms = 20'000) {
    pollfd entry{.fd = read_end_.get(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, limit_ms) <= 0) return "late";
    std::array<char, 512> piece{};
    const ssize_t got = read(read_end_.get(), piece.data(), piece.size());
    return {piece.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  Fd before_;
  Fd read_end_;
};

TEST_F(SshLaunch, WhatItSaysGoesToWhereStandardErrorIsThen) {
  StandardErrorPipe terminal;
  Result<Started> launched =
      Run("read x; echo early >&2; printf '\nRDFS1 OK\n'; read y; echo late >&2; exec cat",
          std::chrono::seconds(20), true);
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  EXPECT_EQ(terminal.Read(), "early\n");
  terminal.TakeAway();
  EXPECT_EQ(terminal.Read(), "") << "ssh holds it";
  StandardErrorPipe log;
  std::string line = "go on\n";
  const iovec part{.iov_base = line.data(), .iov_len = line.size()};
  const Result<std::size_t> wrote = launched->stream->Write(std::span(&part, 1));
  ASSERT_TRUE(wrote.ok()) << wrote.status().message();
  EXPECT_EQ(log.Read(), "late\n");
}

TEST_F(SshLaunch, WhatItSaysStandsAboveWhatItsEndMeans) {
  StandardErrorPipe terminal;
  const Result<Started> launched =
      Run("read x; echo why >&2; exit 255", std::chrono::seconds(20), true);
  EXPECT_FALSE(launched.ok());
  EXPECT_EQ(terminal.Read(0), "why\n");
}

// There seems to be room, as where another one takes it between the look and the write.
TEST(ErrorRelayTest, StandardErrorThatTakesNothingHoldsNobodyUpInTheEnd) {
  const Fd before(dup(STDERR_FILENO));
  const Fd full(eventfd(0, EFD_CLOEXEC));
  std::uint64_t count = UINT64_MAX - 2;  // room for 1, and any text says more
  ASSERT_EQ(write(full.get(), &count, sizeof count), 8);
  auto relay = ErrorRelay::Create();
  ASSERT_TRUE(relay.ok());
  std::atomic<bool> let_go{false};
  dup2(full.get(), STDERR_FILENO);
  const ssize_t said = write((*relay)->child_end(), "eight ch", 8);
  (*relay)->CloseChildEnd();
  {
    std::jthread last_resort([&](const std::stop_token& stop) {
      const Deadline deadline = DeadlineAfter(std::chrono::seconds(20));
      while (!stop.stop_requested() && BootClock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      let_go = !stop.stop_requested();
      (void)!read(full.get(), &count, sizeof count);
    });
    relay->reset();
  }
  dup2(before.get(), STDERR_FILENO);
  EXPECT_EQ(said, 8);
  EXPECT_FALSE(let_go);
}

TEST_F(SshLaunch, EachEndOfSshHasItsSentence) {
  ExpectFailure("exit 255", "ssh could not reach 'node'");
  ExpectFailure("read x; exit 127", "-o rdfsd_path=PATH");
  ExpectFailure("read x; echo hello; exit 126", "-o rdfsd_path=PATH");
  ExpectFailure("read x; exit 3", "ended with status 3");
  ExpectFailure("read x; kill -9 $$", "signal 9");
  ExpectFailure("read x; printf '\\nRDFS1 ERROR no%%20such%%20directory\\n'",
                "node: no such directory");
}

TEST_F(SshLaunch, AnEndThatNobodyIsToldOfIsNoGoodOne) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  ExpectFailure("read x; exit 255", "closed its output before rdfsd answered");
  (void)std::signal(SIGCHLD, before);
}

TEST_F(SshLaunch, NoiseAndSilenceAreBounded) {
  ExpectFailure("read x; yes", "prints a lot");
  ExpectFailure("read x; exec sleep 60", "no answer from rdfsd", std::chrono::milliseconds(300));
}

TEST_F(SshLaunch, AMissingSshSaysWhatToInstall) {
  const Result<Started> launched =
      Start(LaunchOf({directory_ + "/none"}, "n"), DeadlineAfter(std::chrono::seconds(20)));
  ASSERT_FALSE(launched.ok());
  EXPECT_NE(launched.status().message().find("openssh-client"), std::string::npos)
      << launched.status().message();
}

TEST_F(SshLaunch, WhatSshWouldTakeForAnOptionIsNoDestination) {
  const std::string ran = directory_ + "/ran", path = directory_ + "/ssh";
  std::ofstream(path) << "#!/bin/sh\n: >" << ran << "\necho hostname far\n";
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  for (const char* destination : {"", "-oProxyCommand=true", "-l"}) {
    const Launch launch = LaunchOf({path}, destination);
    const Result<Started> launched = Start(launch, DeadlineAfter(std::chrono::seconds(20)));
    ASSERT_FALSE(launched.ok()) << destination;
    EXPECT_EQ(launched.status().code(), Code::kInvalidArgument) << launched.status().message();
    EXPECT_EQ(ResolveHost(launch, DeadlineAfter(std::chrono::seconds(20))), destination);
    EXPECT_FALSE(std::filesystem::exists(ran)) << destination;
  }
}

TEST_F(SshLaunch, TheHostIsWhatSshResolves) {
  std::ofstream(directory_ + "/ssh")
      << "#!/bin/sh\n[ \"$*\" = '-T -G me@node' ] && echo hostname far\n";
  ASSERT_EQ(chmod((directory_ + "/ssh").c_str(), 0755), 0);
  Launch launch = LaunchOf({directory_ + "/ssh"}, "me@node");
  EXPECT_EQ(ResolveHost(launch, DeadlineAfter(std::chrono::seconds(20))), "far");
  launch.ssh_command = {"/bin/false"};
  EXPECT_EQ(ResolveHost(launch, DeadlineAfter(std::chrono::seconds(20))), "node");
}

}  // namespace
}  // namespace rdfs::transport::ssh
