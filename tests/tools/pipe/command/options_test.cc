// The command lines, where the key comes from, and that it does not stay visible.
#include "tools/pipe/command/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace rdfs::pipe {
namespace {

// Arguments as a process has them: one after the other, to be written to.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  int count() const { return static_cast<int>(words_.size()); }
  char** pointers() { return pointers_.data(); }
  bool Show(const std::string& text) const {
    for (const std::string& word : words_) {
      if (word.find(text) != std::string::npos) return true;
    }
    return false;
  }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

template <typename Options>
std::optional<Exit> Parse(std::vector<std::string> words, Options& out) {
  Arguments arguments(std::move(words));
  testing::internal::CaptureStderr();
  std::optional<Exit> exit;
  if constexpr (std::is_same_v<Options, SendOptions>) {
    exit = ParseSend(arguments.count(), arguments.pointers(), out);
  } else {
    exit = ParseReceive(arguments.count(), arguments.pointers(), out);
  }
  (void)testing::internal::GetCapturedStderr();
  return exit;
}

TEST(PipeOptions, ThePlainCommandLines) {
  SendOptions send;
  ASSERT_FALSE(Parse({"rdsend", "-v", "host", "12345", "key"}, send));
  EXPECT_EQ(send.hosts.at(0).host, "host");
  EXPECT_EQ(send.port, 12345);
  EXPECT_EQ(send.key.text(), "key");
  EXPECT_EQ(send.file, "");
  EXPECT_EQ(send.verbosity, 1);
  EXPECT_FALSE(send.level);
  ReceiveOptions receive;
  ASSERT_FALSE(Parse({"rdrecv", "12345", "key", "file"}, receive));
  EXPECT_EQ(receive.file, "file");
  EXPECT_EQ(receive.key.text(), "key");
  EXPECT_FALSE(receive.wait);
}

TEST(PipeOptions, SeveralHosts) {
  SendOptions send;
  ASSERT_FALSE(Parse({"rdsend", "a,b:2,[::1]:3,fe80::1", "12345", "key"}, send));
  std::vector<std::string> names;
  for (const auto& hop : send.hosts) names.push_back(HopName(hop));
  EXPECT_EQ(names, (std::vector<std::string>{"a:12345", "b:2", "[::1]:3", "[fe80::1]:12345"}));
  ReceiveOptions receive;
  ASSERT_FALSE(Parse({"rdrecv", "--forward", "a,b:2", "12345", "key"}, receive));
  EXPECT_EQ(receive.forward.size(), 2U);
  for (const std::string wrong : {"a,", ",a", "a,,b", "a:0", "a:x"}) {
    EXPECT_EQ(Parse({"rdsend", wrong, "1", "k"}, send)->code, 2) << wrong;
  }
  // Any free port is for who listens.
  EXPECT_FALSE(ParseHosts("a", 0).ok());
  EXPECT_FALSE(ParseHosts("a:2,b", 0).ok());
  EXPECT_TRUE(ParseHosts("a:2,b:3", 0).ok());
  ReceiveOptions any;
  ASSERT_FALSE(Parse({"rdrecv", "--forward", "a:2", "0", "key"}, any));
  EXPECT_EQ(any.port, 0);
  std::string many = "a";
  for (std::size_t i = 0; i < kMaxHops; ++i) many += ",a";
  EXPECT_EQ(Parse({"rdsend", many, "1", "k"}, send)->code, 2);
}

TEST(PipeOptions, Options) {
  SendOptions send;
  ASSERT_FALSE(
      Parse({"rdsend", "--compress", "--require=shm", "--encrypt", "[::1]", "1", "k", "f"}, send));
  EXPECT_EQ(send.level, 3);
  EXPECT_EQ(send.require, transport::Kind::kShm);
  EXPECT_TRUE(send.encrypt);
  EXPECT_EQ(send.hosts.at(0).host, "::1");
  EXPECT_EQ(send.file, "f");
  SendOptions level;
  ASSERT_FALSE(Parse({"rdsend", "--compress=19", "h", "1", "k"}, level));
  EXPECT_EQ(level.level, 19);
}

TEST(PipeOptions, AKeyFromElsewhereIsNotOnTheCommandLine) {
  setenv("RDFS_KEY", "from the environment", 1);
  SendOptions send;
  ASSERT_FALSE(Parse({"rdsend", "host", "1", "file"}, send));
  EXPECT_EQ(send.key.text(), "from the environment");
  EXPECT_EQ(send.file, "file");
  EXPECT_EQ(getenv("RDFS_KEY"), nullptr);
}

TEST(PipeOptions, TheSameKeyTwiceIsNoFile) {
  setenv("RDFS_KEY", "sesame", 1);
  Arguments arguments({"rdrecv", "1", "sesame"});
  ReceiveOptions receive;
  ASSERT_FALSE(ParseReceive(arguments.count(), arguments.pointers(), receive));
  EXPECT_EQ(receive.key.text(), "sesame");
  EXPECT_EQ(receive.file, "");
  EXPECT_FALSE(arguments.Show("sesame"));
}

TEST(PipeOptions, TheKeyDoesNotStayVisible) {
  for (const bool wrong : {false, true}) {
    std::vector<std::string> words{"rdsend", "host", wrong ? "no port" : "1", "sesame", "file"};
    Arguments arguments(words);
    SendOptions send;
    testing::internal::CaptureStderr();
    EXPECT_EQ(ParseSend(arguments.count(), arguments.pointers(), send).has_value(), wrong);
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("sesame"), std::string::npos);
    EXPECT_FALSE(arguments.Show("sesame"));
    EXPECT_TRUE(arguments.Show("file"));
  }
}

TEST(PipeOptions, BracketsAreAsGiven) {
  Arguments arguments({"rdsend", "[::1]", "1", "[ses,ame]", "[file]"});
  SendOptions send;
  ASSERT_FALSE(ParseSend(arguments.count(), arguments.pointers(), send));
  EXPECT_EQ(send.hosts.at(0).host, "::1");
  EXPECT_EQ(send.key.text(), "[ses,ame]");
  EXPECT_EQ(send.file, "[file]");
  EXPECT_FALSE(arguments.Show("ame")) << "the key stays visible";
  ReceiveOptions receive;
  ASSERT_FALSE(Parse({"rdrecv", "--listen", "[::1]", "1", "[]", "[a,b]"}, receive));
  EXPECT_EQ(receive.listen, "[::1]");
  EXPECT_EQ(receive.key.text(), "[]");
  EXPECT_EQ(receive.file, "[a,b]");
  ReceiveOptions forward;
  ASSERT_FALSE(Parse({"rdrecv", "--listen=[::1]", "--forward", "[::1]", "1", "k"}, forward));
  EXPECT_EQ(forward.listen, "[::1]");
  EXPECT_EQ(forward.forward.at(0).host, "::1");
}

TEST(PipeOptions, WrongUsage) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"rdsend"},
                                             {"rdsend", "h", "1"},
                                             {"rdsend", "h", "x", "k"},
                                             {"rdsend", "h", "70000", "k"},
                                             {"rdsend", "h", "0", "k"},
                                             {"rdsend", "h", "1", "k", "f", "g"},
                                             {"rdsend", "--compress=0", "h", "1", "k"},
                                             {"rdsend", "--require=carrier-pigeon", "h", "1", "k"},
                                             {"rdsend", "--nonsense", "h", "1", "k"}}) {
    SendOptions send;
    const auto exit = Parse(words, send);
    ASSERT_TRUE(exit);
    EXPECT_EQ(exit->code, 2);
  }
  ReceiveOptions receive;
  const auto exit = Parse({"rdrecv", "1", ""}, receive);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 1);
  EXPECT_EQ(Parse({"rdrecv", "--forward", "h", "0", "k"}, receive)->code, 2);
  for (const std::string size : {"4 M", " 4M", "4M ", "x"}) {
    EXPECT_EQ(Parse({"rdrecv", "--piece", size, "1", "k"}, receive)->code, 2) << size;
  }
  ASSERT_FALSE(Parse({"rdrecv", "--piece", "4M", "1", "k"}, receive));
  EXPECT_EQ(receive.piece_bytes, 4U << 20U);
}

TEST(PipeOptions, WhatANumberMayBeIsSaid) {
  const auto says = [](const std::string& option, const std::string& value) {
    Arguments arguments({"rdrecv", option, value, "1", "k"});
    ReceiveOptions receive;
    testing::internal::CaptureStderr();
    const auto exit = ParseReceive(arguments.count(), arguments.pointers(), receive);
    EXPECT_TRUE(exit && exit->code == 2);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(says("--key-fd", "x").find("2147483647"), std::string::npos);
  EXPECT_NE(says("--piece", "1K").find(" bytes; see"), std::string::npos);
}

}  // namespace
}  // namespace rdfs::pipe
