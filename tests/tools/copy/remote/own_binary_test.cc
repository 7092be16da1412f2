// What comes back when this program is sent to another machine.
#include "tools/copy/remote/own_binary.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdfs::copy {
namespace {

Result<std::string> Parse(std::string_view said) { return ParseSent("host", "Linux x86_64", said); }

TEST(CopyOwnBinary, TakesThePathBehindWhateverAShellPrints) {
  EXPECT_EQ(*Parse("RDCP-THERE /tmp/rdcp-12345678\n"), "/tmp/rdcp-12345678");
  EXPECT_EQ(*Parse("Welcome\nRDCP-\nRDCP-THERE /a b/rdcp-1\r\nmore\n"), "/a b/rdcp-1");
  EXPECT_FALSE(Parse("RDCP-THERE relative\n").ok());
  EXPECT_FALSE(Parse("prompt> RDCP-THERE /x\n").ok());
  EXPECT_FALSE(Parse("").ok());
}

TEST(CopyOwnBinary, SaysWhyNot) {
  const auto said = [](std::string_view text) {
    const Status status = Parse(text).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.errno_value(), ENOENT) << "that would be exit status 127";
    EXPECT_NE(status.message().find("host"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\x1b'), std::string::npos);
    return status.message();
  };
  EXPECT_NE(said("RDCP-OTHER Linux pdp11\n").find("pdp11"), std::string::npos);
  EXPECT_NE(said("RDCP-CANNOT no \x1b[31mlibfmt.so\n").find("libfmt.so"), std::string::npos);
  EXPECT_NE(said("RDCP-ROOM /tmp\n").find("/tmp"), std::string::npos);
  EXPECT_NE(said("Sorry\n").find("POSIX shell"), std::string::npos);
}

}  // namespace
}  // namespace rdfs::copy
