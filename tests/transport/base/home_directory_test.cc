#include "transport/base/home_directory.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace rdfs {
namespace {

// Puts HOME back.
class HomeDirectoryTest : public testing::Test {
 protected:
  HomeDirectoryTest() {
    if (const char* home = std::getenv("HOME")) before_ = home;
  }
  ~HomeDirectoryTest() override {
    before_ ? setenv("HOME", before_->c_str(), 1) : unsetenv("HOME");
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(HomeDirectoryTest, IsWhatTheEnvironmentSays) {
  setenv("HOME", "/somewhere/else", 1);
  EXPECT_EQ(HomeDirectory(), "/somewhere/else");
}

TEST_F(HomeDirectoryTest, IsWhatTheSystemKnowsWhereTheEnvironmentIsSilentOrRelative) {
  const passwd* user = getpwuid(geteuid());
  ASSERT_NE(user, nullptr);
  const std::string known = user->pw_dir;
  unsetenv("HOME");
  EXPECT_EQ(HomeDirectory(), known);
  setenv("HOME", "", 1);
  EXPECT_EQ(HomeDirectory(), known);
  setenv("HOME", "somewhere", 1);
  EXPECT_EQ(HomeDirectory(), known);
}

TEST_F(HomeDirectoryTest, StandsForATildeInFront) {
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(WithHomeDirectory("~/a/~/b"), "/home/me/a/~/b");
  for (const char* path : {"", "~", "~other/a", "/a/~/b", "./~/a"}) {
    EXPECT_EQ(WithHomeDirectory(path), path);
  }
}

}  // namespace
}  // namespace rdfs
