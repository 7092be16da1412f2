// Golden bytes of what rdping's ends say. The fields are 1, 2, 3 ... in their order. A change here
// is a change of the wire, and needs another major version of the meeting (CONTRIBUTING.md,
// Versions).
#include "tools/rdping/protocol.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "tests/hex.h"

namespace rdfs::rdping {
namespace {

template <typename T>
std::string HexOf(const T& value) {
  return ToHex(std::as_bytes(std::span<const T, 1>(&value, 1)));
}

TEST(RdpingProtocol, GoldenBytes) {
  EXPECT_EQ(HexOf(PingMessage{.op = 1, .size = 2}), "0100000002000000");
  EXPECT_EQ(HexOf(RegionsReply{.header = {.op = 1, .size = 2},
                               .readable = {.address = 3, .length = 4, .key = 5},
                               .writable = {.address = 6, .length = 7, .key = 8}}),
            "0100000002000000"
            "030000000000000004000000000000000500000000000000"
            "060000000000000007000000000000000800000000000000");
  const std::array<std::uint8_t, 16> pass{1, 2, 3};
  const std::string pass_hex = "01020300000000000000000000000000";
  EXPECT_EQ(HexOf(GrantWords{.tcp_port = 0x0102, .pass = pass}), "0201" + pass_hex);
  EXPECT_EQ(HexOf(TcpHello{.op = 1, .size = 2, .pass = pass}), "0100000002000000" + pass_hex);
}

TEST(RdpingProtocol, TheNumbersOfTheOperationsStay) {
  EXPECT_EQ(static_cast<int>(Op::kEcho), 1);
  EXPECT_EQ(static_cast<int>(Op::kStream), 2);
  EXPECT_EQ(static_cast<int>(Op::kStreamEnd), 3);
  EXPECT_EQ(static_cast<int>(Op::kRegions), 4);
}

}  // namespace
}  // namespace rdfs::rdping
