#include "transport/session/key.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "transport/base/fd.h"

namespace rdfs::transport {
namespace {

class KeyFileTest : public testing::Test {
 protected:
  KeyFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rdfs-key-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~KeyFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(std::string_view content, mode_t mode = 0600) {
    const std::string path = folder_ + "/key";
    const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    EXPECT_EQ(write(fd.get(), content.data(), content.size()),
              static_cast<ssize_t>(content.size()));
    EXPECT_EQ(fchmod(fd.get(), mode), 0);
    return path;
  }
  std::string folder_;
};

TEST(Key, RandomKeysAre64HexadecimalDigitsAndDiffer) {
  const Key key = Key::Random();
  EXPECT_EQ(key.text().size(), 64U);
  EXPECT_EQ(key.text().find_first_not_of("0123456789abcdef"), std::string_view::npos);
  EXPECT_NE(key.text(), Key::Random().text());
}

TEST(Key, AssignmentReplacesWhatWasThere) {
  Key key("long secret, a long one");
  key = Key("short");
  EXPECT_EQ(key.text(), "short");
  const Key copy = key;
  EXPECT_EQ(copy.text(), "short");
}

TEST_F(KeyFileTest, ReadsTheFirstLineWithoutItsEnd) {
  EXPECT_EQ(Key::FromFile(Write("secret\nsecond\n"))->text(), "secret");
  EXPECT_EQ(Key::FromFile(Write("secret"))->text(), "secret");
  EXPECT_EQ(Key::FromFile(Write("secret with spaces \r\n"))->text(), "secret with spaces ");
}

TEST_F(KeyFileTest, RefusesFilesThatOthersMayRead) {
  for (const mode_t mode : {0640U, 0604U, 0660U, 0644U}) {
    const std::string path = Write("secret\n", mode);
    const auto key = Key::FromFile(path);
    ASSERT_FALSE(key.ok()) << std::oct << mode;
    EXPECT_NE(key.status().message().find("chmod 600 " + path), std::string::npos)
        << key.status().message();
  }
}

TEST_F(KeyFileTest, RefusesEmptyAndEndlessOnes) {
  EXPECT_EQ(Key::FromFile(Write("")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Key::FromFile(Write("\nsecret\n")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Key::FromFile(Write(std::string(1025, 'k'))).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(Key::FromFile(Write(std::string(1024, 'k') + "\n")).ok());
}

TEST_F(KeyFileTest, NamesTheFileThatIsNotThere) {
  const auto key = Key::FromFile(folder_ + "/none");
  EXPECT_EQ(key.status().errno_value(), ENOENT);
  EXPECT_NE(key.status().message().find(folder_ + "/none"), std::string::npos);
}

// As behind "--key-file=", where no shell does it.
TEST_F(KeyFileTest, IsLookedForInTheHomeDirectory) {
  Write("secret\n");
  std::optional<std::string> before;
  if (const char* home = std::getenv("HOME")) before = home;
  setenv("HOME", folder_.c_str(), 1);
  const auto key = Key::FromFile("~/key");
  const auto none = Key::FromFile("~/none");
  before ? setenv("HOME", before->c_str(), 1) : unsetenv("HOME");
  ASSERT_TRUE(key.ok()) << key.status().message();
  EXPECT_EQ(key->text(), "secret");
  EXPECT_NE(none.status().message().find(folder_ + "/none"), std::string::npos);
}

TEST_F(KeyFileTest, SaysWhatToDoAboutADirectory) {
  const auto key = Key::FromFile(folder_);
  EXPECT_EQ(key.status().errno_value(), EISDIR);
  EXPECT_EQ(key.status().message(),
            "the key file " + folder_ + " is a directory; name the file in it");
}

TEST(Key, FromADescriptorLeavesWhatFollowsTheLine) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  ASSERT_EQ(write(writer.get(), "secret\nmore", 11), 11);
  writer.Reset();
  EXPECT_EQ(Key::FromFd(reader.get())->text(), "secret");
  char rest[8] = {};
  EXPECT_EQ(read(reader.get(), rest, sizeof(rest)), 4);
  EXPECT_STREQ(rest, "more");
  EXPECT_FALSE(Key::FromFd(reader.get()).ok());
}

}  // namespace
}  // namespace rdfs::transport
