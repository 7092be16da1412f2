// What lines of the log look like, and that a program writes them so.
#include "transport/base/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "transport/base/log_format.h"

namespace rdfs {
namespace {

using std::chrono::microseconds;
using std::chrono::system_clock;

constexpr system_clock::time_point kTime{microseconds(1'700'000'000'000'042)};

TEST(LogFormat, ForAPerson) {
  EXPECT_EQ(FormatLogLine({}, kTime, LogLevel::kWarn, "rdfsd", "a line"), "rdfsd: warning: a line");
  EXPECT_EQ(FormatLogLine({}, kTime, LogLevel::kError, "rdfs", "{}"), "rdfs: error: {}");
}

TEST(LogFormat, ForTheJournal) {
  const LogStyle style{.journal = true};
  EXPECT_EQ(FormatLogLine(style, kTime, LogLevel::kError, "rdfsd", "x"), "<3>rdfsd: error: x");
  EXPECT_EQ(FormatLogLine(style, kTime, LogLevel::kWarn, "rdfsd", "x"), "<4>rdfsd: warning: x");
  EXPECT_EQ(FormatLogLine(style, kTime, LogLevel::kInfo, "rdfsd", "x"), "<6>rdfsd: info: x");
  EXPECT_EQ(FormatLogLine(style, kTime, LogLevel::kDebug, "rdfsd", "x"), "<7>rdfsd: debug: x");
}

TEST(LogFormat, ForAProgram) {
  const std::string_view line = "'a\"\\\n\xff' is missing";
  EXPECT_EQ(FormatLogLine({.json = true}, kTime, LogLevel::kInfo, "rdfsd", line),
            R"({"time": "2023-11-14T22:13:20.000042Z", "level": "info", "program": "rdfsd", )"
            R"("message": "'a\"\\??' is missing"})");
  EXPECT_TRUE(FormatLogLine({.json = true, .journal = true}, kTime, LogLevel::kError, "r", "")
                  .starts_with("<3>{"));
}

TEST(LogFormat, TheJournalIsKnownByItsSocket) {
  EXPECT_TRUE(IsJournal("8:1234", 8, 1234));
  for (const char* other : {"", "8:123", "8:12345", "9:1234", "8", ":", "8:1234:"}) {
    EXPECT_FALSE(IsJournal(other, 8, 1234)) << other;
  }
}

// In a child, whose standard error is a pipe; what it has written.
template <typename Prepare>
std::string Written(Prepare prepare) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    prepare();
    SetLogName("test");
    SetLogLevel(LogLevel::kInfo);
    LogInfo("one {}", 1);
    LogDebug("nothing");
    _exit(0);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0; size += static_cast<std::size_t>(std::max<ssize_t>(got, 0))) {
    got = read(ends[0], text.data() + size, text.size() - size);
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  text.resize(size);
  return text;
}

// The process that runs the tests has not logged before: a logger decides once how it writes.
TEST(Log, IsWrittenAsTheEnvironmentSays) {
  unsetenv("JOURNAL_STREAM");
  unsetenv("RDFS_LOG");
  EXPECT_EQ(Written([] {}), "test: info: one 1\n");
  EXPECT_EQ(Written([] { setenv("JOURNAL_STREAM", "1:1", 1); }), "test: info: one 1\n");
  const auto journal = [] {
    struct stat about {};
    fstat(STDERR_FILENO, &about);
    setenv("JOURNAL_STREAM",
           (std::to_string(about.st_dev) + ":" + std::to_string(about.st_ino)).c_str(), 1);
  };
  EXPECT_EQ(Written(journal), "<6>test: info: one 1\n");
  const std::string json = Written([] { setenv("RDFS_LOG", "json", 1); });
  EXPECT_TRUE(json.starts_with("{\"time\": \"20")) << json;
  EXPECT_TRUE(
      json.ends_with("\", \"level\": \"info\", \"program\": \"test\", \"message\": \"one 1\"}\n"))
      << json;
  EXPECT_EQ(Written([] { setenv("RDFS_LOG", "xml", 1); }),
            "test: warning: RDFS_LOG=xml is not known; give text or json\n"
            "test: info: one 1\n");
}

// As a mount does that goes on in the background, or with -o log=FILE.
TEST(Log, LinesForTheJournalEndWhereStandardErrorIsAnother) {
  const auto elsewhere = [] {
    setenv("JOURNAL_STREAM", "1:1", 1);  // which standard error is not, from here on
    SetLogName("test");
    struct stat about {};
    fstat(STDERR_FILENO, &about);
    setenv("JOURNAL_STREAM",
           (std::to_string(about.st_dev) + ":" + std::to_string(about.st_ino)).c_str(), 1);
    LogToWhereStandardErrorIs();
    SetLogLevel(LogLevel::kInfo);
    LogInfo("to the journal");
    setenv("JOURNAL_STREAM", "1:1", 1);
    LogToWhereStandardErrorIs();
  };
  EXPECT_EQ(Written(elsewhere), "<6>test: info: to the journal\ntest: info: one 1\n");
}

}  // namespace
}  // namespace rdfs
