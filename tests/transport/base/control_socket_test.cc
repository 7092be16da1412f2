#include "transport/base/control_socket.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "transport/base/local_filesystem.h"
#include "transport/base/snapshot.h"

namespace rdfs {
namespace {

using std::chrono::seconds;

// A runtime directory of its own.
class ControlSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "rdfs-control-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    runtime_ = name;
    setenv("XDG_RUNTIME_DIR", runtime_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(runtime_);
  }
  static Fd Connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  // What comes back for these bytes, up to the end of the stream.
  static std::string Ask(const Fd& socket, std::string_view bytes) {
    EXPECT_GE(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    std::string out(4096, '\0');
    const ssize_t got = recv(socket.get(), out.data(), out.size(), 0);
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
  }
  static std::string Raw(const std::string& path, std::string_view bytes) {
    return Ask(Connect(path), bytes);
  }

  std::string runtime_;
};

TEST_F(ControlSocketTest, AnswersItsUserAndLeavesNothingBehind) {
  {
    auto control = ControlSocket::Listen(
        "test", [](std::string_view request) { return "you said " + std::string(request); });
    ASSERT_TRUE(control.ok()) << control.status().ToString();
    ASSERT_EQ(FindControlSockets("test"), std::vector<std::string>{(*control)->path()});
    EXPECT_TRUE(FindControlSockets("tes").empty());
    const auto answer = AskControl((*control)->path(), "hello", DeadlineAfter(seconds(10)));
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    EXPECT_EQ(*answer, "you said hello");
    struct stat about {};
    ASSERT_EQ(stat((runtime_ + "/rdfs").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777U, 0700U);
    ASSERT_EQ(stat((*control)->path().c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777U, 0600U);
  }
  EXPECT_TRUE(FindControlSockets("test").empty());
}

TEST_F(ControlSocketTest, HostilePeersAreDroppedAndTheNextOneIsServed) {
  auto control = ControlSocket::Listen("test", [](std::string_view) { return "yes"; });
  ASSERT_TRUE(control.ok());
  EXPECT_EQ(Raw((*control)->path(), std::string(100'000, 'x')), "") << "too long";
  EXPECT_EQ(Raw((*control)->path(), "no end"), "") << "silent: dropped after a second";
  EXPECT_EQ(Raw((*control)->path(), std::string_view("\0\xff\n", 3)), "yes");
  const auto answer = AskControl((*control)->path(), "again", DeadlineAfter(seconds(10)));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(*answer, "yes");
}

// The time that this process has had from its processors.
std::chrono::nanoseconds ProcessorTime() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

TEST_F(ControlSocketTest, WithoutADescriptorItSleepsAndServesLater) {
  auto control = ControlSocket::Listen("test", [](std::string_view) { return "yes"; });
  ASSERT_TRUE(control.ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = dup(0);  // the lowest: our own socket
  ASSERT_GE(free, 0);
  close(free);
  const rlimit one_more{static_cast<rlim_t>(free) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const auto spent = ProcessorTime();
  const Fd socket = Connect((*control)->path());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto since = ProcessorTime() - spent;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(since, std::chrono::milliseconds(150)) << "it tried all the time";
  EXPECT_EQ(Ask(socket, "hello\n"), "yes");
}

TEST_F(ControlSocketTest, ADirectoryThatOthersMayEnterIsRefused) {
  ASSERT_EQ(mkdir((runtime_ + "/rdfs").c_str(), 0755), 0);
  ASSERT_EQ(chmod((runtime_ + "/rdfs").c_str(), 0755), 0);
  auto control = ControlSocket::Listen("test", [](std::string_view) { return ""; });
  ASSERT_FALSE(control.ok());
  EXPECT_NE(control.status().message().find("0700"), std::string::npos);
  EXPECT_TRUE(FindControlSockets("test").empty());
}

// Nothing is removed where the directory is not this host's alone.
bool RemovesHere(const std::string& directory) {
  struct statfs about {};
  return statfs(directory.c_str(), &about) == 0 &&
         (IsOfThisHost(about) || about.f_type == OVERLAYFS_SUPER_MAGIC);
}

TEST_F(ControlSocketTest, WhatAKilledProgramLeftIsRemoved) {
  if (!RemovesHere(runtime_)) GTEST_SKIP() << "another kernel's programs may have sockets here";
  std::string left;
  {
    auto control = ControlSocket::Listen("test", [](std::string_view) { return ""; });
    ASSERT_TRUE(control.ok());
    left = (*control)->path() + ".kept";
    ASSERT_EQ(link((*control)->path().c_str(), left.c_str()), 0);
  }
  EXPECT_EQ(AskControl(left, "hello", DeadlineAfter(seconds(10))).status().code(),
            Code::kDisconnected);
  EXPECT_NE(access(left.c_str(), F_OK), 0);
}

// A socket that is bound there, whether or not anybody listens on it.
Fd Bound(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

TEST_F(ControlSocketTest, WhoStartsRemovesWhatKilledProgramsOfItsNameLeft) {
  if (!RemovesHere(runtime_)) GTEST_SKIP() << "another kernel's programs may have sockets here";
  const std::string directory = runtime_ + "/rdfs";
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  const auto at = [&directory](const std::string& name) { return directory + "/" + name; };
  Bound(at("test-1.sock"));
  Bound(at("tester-1.sock"));
  Bound(at("test-3.sock.new"));  // one that is about to listen
  const Fd lives = Bound(at("test-2.sock"));
  ASSERT_EQ(listen(lives.get(), 1), 0);
  // The living one has no room for all who look: it is not dead for that.
  for (int i = 0; i < 4; ++i) {
    auto control = ControlSocket::Listen("test", [](std::string_view) { return "yes"; });
    ASSERT_TRUE(control.ok()) << control.status().ToString();
    EXPECT_NE(access(at("test-1.sock").c_str(), F_OK), 0);
    EXPECT_EQ(access(at("tester-1.sock").c_str(), F_OK), 0) << "another program's";
    EXPECT_EQ(access(at("test-2.sock").c_str(), F_OK), 0) << "it is listened on";
    EXPECT_EQ(access(at("test-3.sock.new").c_str(), F_OK), 0);
  }
}

Snapshot Example() {
  Snapshot out;
  out.words = {{"mount", "/a\"b\n"}, {"server", "connected"}};
  out.info = {{"transport", "tcp"}, {"version", "1\"2"}};
  out.lines = {{"session", "one"}};
  out.Gauge("open_files", "Files that are open.", 3);
  out.Count("trips", "Round trips.", 1, "read");
  out.Count("trips", "Round trips.", 2, "write");
  LatencyRecorder times;
  times.Record(std::chrono::microseconds(3));
  times.Record(std::chrono::microseconds(5));
  LatencyHistogram sum;
  out.Latency("never", sum);
  times.AddTo(sum);
  out.Latency("read", sum);
  return out;
}

TEST(Snapshot, IsTheSameInEveryFormat) {
  EXPECT_EQ(ToJson(Example()),
            "{\"mount\": \"/a\\\"b?\", \"server\": \"connected\", \"info\": "
            "{\"transport\": \"tcp\", \"version\": \"1\\\"2\"}, \"lines\": [[\"session\", "
            "\"one\"]], \"figures\": {\"open_files\": 3, \"trips\": {\"read\": 1, \"write\": "
            "2}}, \"latencies\": {\"read\": {\"count\": 2, \"sum_ns\": 8000, \"p50_ns\": 4000, "
            "\"p99_ns\": 5000, \"max_ns\": 5000}}}\n");
  const std::string metrics = ToPrometheus(Example());
  const std::size_t histogram = metrics.find("# HELP rdfs_operation_seconds");
  EXPECT_EQ(metrics.substr(0, histogram),
            "# HELP rdfs_info What it is: always 1, the labels say it.\n"
            "# TYPE rdfs_info gauge\n"
            "rdfs_info{mount=\"/a\\\"b\\\\x0a\",transport=\"tcp\",version=\"1\\\"2\"} 1\n"
            "# HELP rdfs_open_files Files that are open.\n"
            "# TYPE rdfs_open_files gauge\n"
            "rdfs_open_files{mount=\"/a\\\"b\\\\x0a\"} 3\n"
            "# HELP rdfs_trips_total Round trips.\n"
            "# TYPE rdfs_trips_total counter\n"
            "rdfs_trips_total{mount=\"/a\\\"b\\\\x0a\",op=\"read\"} 1\n"
            "rdfs_trips_total{mount=\"/a\\\"b\\\\x0a\",op=\"write\"} 2\n");
  EXPECT_TRUE(metrics.substr(histogram).starts_with(
      "# HELP rdfs_operation_seconds How long operations took, from the request to its answer.\n"
      "# TYPE rdfs_operation_seconds histogram\n"
      "rdfs_operation_seconds_bucket{mount=\"/a\\\"b\\\\x0a\",op=\"read\",le=\"1e-06\"} 0\n"
      "rdfs_operation_seconds_bucket{mount=\"/a\\\"b\\\\x0a\",op=\"read\",le=\"2e-06\"} 0\n"
      "rdfs_operation_seconds_bucket{mount=\"/a\\\"b\\\\x0a\",op=\"read\",le=\"4e-06\"} 1\n"
      "rdfs_operation_seconds_bucket{mount=\"/a\\\"b\\\\x0a\",op=\"read\",le=\"8e-06\"} 2\n"))
      << metrics;
  EXPECT_TRUE(metrics.ends_with(
      "rdfs_operation_seconds_bucket{mount=\"/a\\\"b\\\\x0a\",op=\"read\",le=\"33.554432\"} 2\n"
      "rdfs_operation_seconds_bucket{mount=\"/a\\\"b\\\\x0a\",op=\"read\",le=\"+Inf\"} 2\n"
      "rdfs_operation_seconds_sum{mount=\"/a\\\"b\\\\x0a\",op=\"read\"} 8e-06\n"
      "rdfs_operation_seconds_count{mount=\"/a\\\"b\\\\x0a\",op=\"read\"} 2\n"))
      << metrics;
  EXPECT_NE(ToText(Example()).find("trips write"), std::string::npos);
  EXPECT_NE(ToText(Example()).find("latency read                   2, p50 4.0 us, p99 5.0 us, "
                                   "longest 5.0 us\n"),
            std::string::npos)
      << ToText(Example());
  EXPECT_EQ(ToText(Example()).find("/a\"b\n"), std::string::npos) << "nothing steers a terminal";
  EXPECT_EQ(AnswerRequest("name", Example()), "/a\"b\n");
  EXPECT_NE(AnswerRequest("nonsense", Example()).find("no such request"), std::string::npos);
}

TEST(Snapshot, NamesInLettersOfAnyScriptAreKeptApart) {
  const auto named = [](std::string_view name) {
    Snapshot out;
    out.words = {{"mount", std::string(name)}};
    out.Gauge("open_files", "Files that are open.", 3);
    return out;
  };
  for (const std::string_view name : {"/ü", "/ö", "/日本", "/𝄞", "/¡~"}) {
    EXPECT_NE(ToPrometheus(named(name)).find(fmt::format("{{mount=\"{}\"}} 3\n", name)),
              std::string::npos)
        << ToPrometheus(named(name));
    EXPECT_NE(ToJson(named(name)).find(fmt::format("\"mount\": \"{}\"", name)), std::string::npos)
        << ToJson(named(name));
  }
  // No UTF-8, or none that may be shown: half a letter, too long, a surrogate, beyond, a C1
  // control.
  using Pair = std::pair<std::string_view, std::string_view>;
  for (const auto& [name, label] :
       {Pair{"\xc3", "\\\\xc3"}, Pair{"\xfc/", "\\\\xfc/"}, Pair{"\xc0\xaf", "\\\\xc0\\\\xaf"},
        Pair{"\xed\xa0\x80", "\\\\xed\\\\xa0\\\\x80"},
        Pair{"\xe0\x9f\xbf", "\\\\xe0\\\\x9f\\\\xbf"},
        Pair{"\xf4\x90\x80\x80", "\\\\xf4\\\\x90\\\\x80\\\\x80"},
        Pair{"\xc2\x9b", "\\\\xc2\\\\x9b"}, Pair{"\x1b\x7f", "\\\\x1b\\\\x7f"}}) {
    EXPECT_NE(ToPrometheus(named(name)).find(fmt::format("{{mount=\"{}\"}} 3\n", label)),
              std::string::npos)
        << ToPrometheus(named(name));
    EXPECT_EQ(ToJson(named(name)).find(name), std::string::npos);
  }
}

TEST(Snapshot, ProgramsAreToldNumbersWherePeopleReadSentences) {
  Snapshot out;
  out.words = {{"port", "7"}};
  out.rates = {.read_bytes_per_second = 1'250'000,
               .written_bytes_per_second = 0,
               .requests_per_second = 12.5,
               .over_seconds = 4};
  out.sessions.emplace();
  EXPECT_NE(ToJson(out).find("\"sessions\": []"), std::string::npos) << ToJson(out);
  out.lines = {{"session", "a of b"}};
  out.sessions = {{{"client", "a\"\n"}, {"open_files", std::uint64_t{3}}, {"read_only", true}},
                  {{"client", "b"}}};
  EXPECT_EQ(ToJson(out),
            "{\"port\": \"7\", \"info\": {}, \"rates\": {\"read_bytes_per_second\": 1250000.0, "
            "\"written_bytes_per_second\": 0.0, \"requests_per_second\": 12.500, "
            "\"over_seconds\": 4.000}, \"sessions\": [{\"client\": \"a\\\"?\", \"open_files\": 3, "
            "\"read_only\": true}, {\"client\": \"b\"}], \"lines\": [[\"session\", \"a of b\"]], "
            "\"figures\": {}, \"latencies\": {}}\n");
  EXPECT_EQ(
      ToText(out),
      "port                     7\n"
      "rates                    read 1.2 MB/s, written 0 B/s, 12 requests/s, over the last 4 s\n"
      "  session                a of b\n");
}

TEST(Snapshot, SeveralProgramsSayWhatAMetricIsOnce) {
  EXPECT_EQ(MergeMetrics({"# HELP a b c\n# TYPE a counter\na{m=\"1\"} 1\n# TYPE b gauge\nb 2\n",
                          "# HELP a b c\n# TYPE a counter\na{m=\"2\"} 3\n# TYPE c gauge\nc 4\n", "",
                          "# TYPE b gauge\nb 5"}),
            "# HELP a b c\n# TYPE a counter\na{m=\"1\"} 1\na{m=\"2\"} 3\n"
            "# TYPE b gauge\nb 2\nb 5\n# TYPE c gauge\nc 4\n");
}

}  // namespace
}  // namespace rdfs
