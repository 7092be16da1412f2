// The bytes between carriers, and what is refused.
#include "tools/sock/far/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/hex.h"
#include "tools/sock/far/ask.h"

namespace rdfs::sock::far {
namespace {

std::string Encoded(const Record& record) {
  std::array<std::byte, 256> buffer;
  ByteWriter out(buffer);
  EXPECT_TRUE(Append(record, out));
  ByteReader in(out.written());
  const auto decoded = DecodeRecord(in);
  EXPECT_TRUE(decoded.ok());
  EXPECT_EQ(in.remaining(), 0U);
  if (decoded.ok()) {
    std::array<std::byte, 256> again;
    ByteWriter second(again);
    EXPECT_TRUE(Append(*decoded, second));
    EXPECT_EQ(ToHex(second.written()), ToHex(out.written()));
  }
  return ToHex(out.written());
}

TcpPlaces Places() {
  TcpPlaces places;
  places.here = {.address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, .port = 5432};
  places.there = {.address = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, .port = 51342};
  return places;
}

TEST(Wire, Bytes) {
  EXPECT_EQ(Encoded({0, Beat{}}), "0100000000000000");
  const std::string places =
      "00000000000000000000ffff0a000001fd000000000000000000000000000002"
      "38158ec8";
  EXPECT_EQ(Encoded({0, Wanted{Places(), 1, 65536}}),
            "0200000000000000" + places + "0100000000000100");
  EXPECT_EQ(Encoded({7, Open{Places(), 2, 65536, {0x1122334455667788, 65536, 9}}}),
            "0300000007000000" + places +
                "0200000000000100"
                "8877665544332211"
                "0000010000000000"
                "0900000000000000");
  EXPECT_EQ(Encoded({7, Opened{{1, 2, 3}}}),
            "0400000007000000"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000");
  EXPECT_EQ(Encoded({7, Refused{5}}), "050000000700000005000000");
  EXPECT_EQ(Encoded({7, Word{Type::kPhase, 0x0102, 4096}}),
            "1000000007000000020100000000000000100000");
  EXPECT_EQ(Encoded({7, Word{Type::kCursor, 5}}), "11000000070000000500000000000000");
  EXPECT_EQ(Encoded({7, Word{Type::kShut}}), "1200000007000000");
  EXPECT_EQ(Encoded({7, Word{Type::kFlushed}}), "1300000007000000");
  EXPECT_EQ(Encoded({7, Word{Type::kReturned}}), "1400000007000000");
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  const ByteSpan all(bytes);
  EXPECT_EQ(Encoded({7, Bytes{{all.first(2), all.last(1)}}}), "150000000700000003000000010203");
  EXPECT_EQ(Encoded({7, Word{Type::kConsumed, 5}}), "18000000070000000500000000000000");
  EXPECT_EQ(Encoded({7, Word{Type::kPassed, 5}}), "19000000070000000500000000000000");
  EXPECT_EQ(Encoded({7, Word{Type::kQuiet, 5}}), "1a000000070000000500000000000000");
  EXPECT_EQ(Encoded({7, Word{Type::kWish}}), "1b00000007000000");
  EXPECT_EQ(Encoded({7, Word{Type::kFollow}}), "1c00000007000000");
  EXPECT_EQ(Encoded({7, Word{Type::kFlush}}), "1d00000007000000");
  EXPECT_EQ(Encoded({7, Word{Type::kAbandoned, 5}}), "1e000000070000000500000000000000");
  EXPECT_EQ(Encoded({7, Word{Type::kGone, 1}}), "20000000070000000100000000000000");
}

TEST(Wire, RefusesNonsense) {
  const auto refused = [](std::initializer_list<unsigned> values) {
    std::vector<std::byte> bytes;
    for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
    ByteReader in(bytes);
    return !DecodeRecord(in).ok();
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({1, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(refused({1, 0, 1, 0, 0, 0, 0, 0}));                  // not zero
  EXPECT_TRUE(refused({1, 0, 0, 0, 1, 0, 0, 0}));                  // a lane's, of a connection
  EXPECT_TRUE(refused({18, 0, 0, 0, 0, 0, 0, 0}));                 // a connection's, of none
  EXPECT_TRUE(refused({99, 0, 0, 0, 1, 0, 0, 0}));                 // no such type
  EXPECT_TRUE(refused({17, 0, 0, 0, 1, 0, 0, 0, 1}));              // short
  EXPECT_TRUE(refused({21, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}));     // no bytes
  EXPECT_TRUE(refused({21, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7}));  // fewer than it says
  EXPECT_FALSE(refused({21, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7}));
  EXPECT_FALSE(refused({18, 0, 0, 0, 1, 0, 0, 0}));
}

TEST(Wire, RefusesMoreBytesThanARecordHas) {
  const std::vector<std::byte> bytes(kMostInRecord + 1);
  std::vector<std::byte> buffer(kMostMessageBytes);
  const auto taken = [&](std::size_t count) {
    ByteWriter out(buffer);
    EXPECT_TRUE(Append({1, Bytes{{ByteSpan(bytes).first(count), ByteSpan()}}}, out));
    ByteReader in(out.written());
    return DecodeRecord(in).ok();
  };
  EXPECT_TRUE(taken(kMostInRecord));
  EXPECT_FALSE(taken(kMostInRecord + 1));
}

TEST(Wire, DoesNotAppendHalfARecord) {
  std::array<std::byte, 20> buffer;
  ByteWriter out(buffer);
  EXPECT_TRUE(Append({1, Word{Type::kShut}}, out));
  EXPECT_FALSE(Append({1, Word{Type::kCursor, 4}}, out));
  EXPECT_EQ(out.size(), 8U);
  EXPECT_TRUE(Append({1, Word{Type::kWish}}, out));
}

TEST(AskWire, Bytes) {
  const AskWire wire = Encode(Ask{.cookie = 0x0807060504030201, .flags = 1, .places = Places()});
  const ByteSpan bytes = std::as_bytes(std::span(&wire, 1));
  EXPECT_EQ(ToHex(bytes),
            "10000000010000000102030405060708"
            "0100000000000000000000000000ffff0a000001"
            "fd00000000000000000000000000000238158ec8");
  const auto decoded = DecodeAsk(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->cookie, 0x0807060504030201U);
  EXPECT_EQ(decoded->places, Places());
  EXPECT_FALSE(DecodeAsk(bytes.first(55)).has_value());
  AskWire other = wire;
  other.version = 2;
  EXPECT_FALSE(DecodeAsk(std::as_bytes(std::span(&other, 1))).has_value());
  EXPECT_EQ(CarrierName(1000), "rdsock1-carrier-1000");
}

}  // namespace
}  // namespace rdfs::sock::far
