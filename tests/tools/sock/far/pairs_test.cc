// The file of pairings: what it may say, and who may have written it.
#include "tools/sock/far/pairs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace rdfs::sock::far {
namespace {

constexpr std::string_view kText =
    "rdsock-pairs 1\n"
    "# made by hand\n"
    "listen 7342 10.0.0.1 fd00::1\n"
    "over tcp\n"
    "\n"
    "pair a-1 0123abcd 7340 10.0.0.2 fd00::2\n"
    "pair b secret 7350 10.0.0.3\n";

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/rdsock-pairs.XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Pairs, AreFoundByAddressAndName) {
  const auto pairs = ParsePairs(kText);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  EXPECT_EQ(pairs->listen, 7342);
  ASSERT_EQ(pairs->listen_at.size(), 2U);
  EXPECT_EQ(ToString(pairs->listen_at[1]), "fd00::1");
  EXPECT_TRUE(pairs->over_tcp);
  ASSERT_EQ(pairs->pairs.size(), 2U);
  const auto address = ParseAddress("fd00::2");
  ASSERT_TRUE(address.ok());
  const Pair* const pair = pairs->WithAddress(*address);
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->name, "a-1");
  EXPECT_EQ(pair->key.text(), "0123abcd");
  EXPECT_EQ(pair->port, 7340);
  EXPECT_EQ(ToString(pair->addresses[0]), "10.0.0.2");
  EXPECT_EQ(pairs->Named("b")->addresses.size(), 1U);
  EXPECT_EQ(pairs->Named("c"), nullptr);
  EXPECT_EQ(pairs->WithAddress(Address{}), nullptr);
  const auto again = ParsePairs(Format(*pairs));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Format(*again), Format(*pairs));
}

TEST(Pairs, WhatIsWrongIsSaid) {
  for (const std::string_view line :
       {"listen", "listen 70000", "listen 1x", "listen 1 x", "over udp", "pair a", "pear",
        "pair a key 7340", "pair a key port 10.0.0.1", "pair a/b key 7340 10.0.0.1",
        "pair a key 7340 host", "pair a key 7340 10.0.0.1\npair a key 7340 10.0.0.2"}) {
    const auto pairs = ParsePairs("rdsock-pairs 1\n" + std::string(line) + "\n");
    EXPECT_FALSE(pairs.ok()) << line;
    EXPECT_NE(pairs.status().message().find("line "), std::string::npos) << line;
  }
  EXPECT_FALSE(ParsePairs("rdsock-pairs 2\n").ok());
}

TEST(Pairs, TheFileIsOnesOwn) {
  const Folder folder;
  const std::string path = folder.path() + "/deep/rdsock/pairs";
  EXPECT_EQ(ReadPairs(path).status().code(), Code::kNotFound);
  auto pairs = ParsePairs(kText);
  ASSERT_TRUE(WritePairs(path, *pairs).ok());
  ASSERT_TRUE(ReadPairs(path).ok());
  pairs->pairs.pop_back();
  ASSERT_TRUE(WritePairs(path, *pairs).ok());
  EXPECT_EQ(ReadPairs(path)->pairs.size(), 1U);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  const auto open = ReadPairs(path);
  EXPECT_FALSE(open.ok());
  EXPECT_NE(open.status().message().find("chmod 600"), std::string::npos);
}

}  // namespace
}  // namespace rdfs::sock::far
