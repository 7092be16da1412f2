// The bytes of every message as PROTOCOL.md says, and what no correct peer sends.
#include "tools/pipe/wire/protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/hex.h"
#include "tools/pipe/wire/digest.h"

namespace rdfs::pipe {
namespace {

Digest Pattern(std::uint8_t first) {
  Digest out{};
  for (std::byte& byte : out) byte = static_cast<std::byte>(first++);
  return out;
}

RecordWire SomeRecord() {
  RecordWire record{};
  record.type = 3;
  record.kind = 1;
  record.flags = 1;
  record.wire_bytes = 0x11223344;
  record.sequence = 7;
  record.offset = 0x0102030405060708;
  record.length = 0x11223345;
  record.digest = Pattern(0x10);
  record.tag = Pattern(0x80);
  return record;
}

TEST(PipeProtocol, GoldenHello) {
  const Hello hello{.size_known = true, .sealed = true, .seekable = false, .size = 0x1122334455};
  EXPECT_EQ(ToHex(hello.Encode()),
            "52445053"
            "0100"
            "0000"
            "03000000"
            "00000000"
            "5544332211000000");
  const auto decoded = Hello::Decode(hello.Encode());
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded->size_known && decoded->sealed && !decoded->seekable);
  EXPECT_EQ(decoded->size, 0x1122334455U);
}

TEST(PipeProtocol, GoldenHelloOfAChain) {
  const Hello hello{.forward = {"b:2", "[::1]:3"}};
  EXPECT_EQ(ToHex(hello.Encode()),
            "52445053"
            "0100"
            "0000"
            "08000000"
            "00000000"
            "0000000000000000"
            "0200"
            "0300"
            "623a32"
            "0700"
            "5b3a3a315d3a33");
  const auto decoded = Hello::Decode(hello.Encode());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->forward, hello.forward);
}

TEST(PipeProtocol, AChainThatMakesNoSense) {
  const auto refused = [](const std::vector<std::string>& names) {
    return !Hello::Decode(Hello{.forward = names}.Encode()).ok();
  };
  EXPECT_FALSE(refused(std::vector<std::string>(kMaxHops, "host:1")));
  EXPECT_TRUE(refused(std::vector<std::string>(kMaxHops + 1, "host:1")));
  EXPECT_TRUE(refused({""}));
  EXPECT_TRUE(refused({"host:"}));
  EXPECT_TRUE(refused({"host:99999"}));
  Bytes bytes = Hello{.forward = {"host:1"}}.Encode();
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(Hello::Decode(bytes).ok());
  for (int i = 0; i < 2; ++i) bytes.pop_back();
  EXPECT_FALSE(Hello::Decode(bytes).ok());
  bytes = Hello{}.Encode();
  bytes[8] = std::byte{Hello::kForward};  // and nothing behind it
  EXPECT_FALSE(Hello::Decode(bytes).ok());
}

TEST(PipeProtocol, ReportsAreSafeForATerminal) {
  const auto report = DecodeReport(EncodeReport({"a\nb", Status(Code::kBusy, "x\x1b[1m")}));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->name, "a?b");
  EXPECT_EQ(report->why.message(), "x?[1m");
  EXPECT_FALSE(DecodeReport(EncodeReport({"a", Status()}))->why.ok());  // never success
  const Bytes bytes = EncodeReport({std::string(900, 'n'), Status(Code::kBusy, "x")});
  EXPECT_EQ(DecodeReport(bytes)->name.size(), kMaxHopName);
  EXPECT_FALSE(DecodeReport(ByteSpan(bytes).first(100)).ok());
}

TEST(PipeProtocol, GoldenWelcome) {
  Welcome welcome;
  welcome.ring = {.address = 0x1000, .length = 0x800000, .key = 0x99};
  welcome.slot_bytes = 0x100000;
  welcome.slots = 8;
  welcome.block_bytes = 0x100000;
  welcome.have_bytes = 0x100001;
  welcome.blocks = {Pattern(0), Pattern(0x20)};
  EXPECT_EQ(ToHex(welcome.Encode()),
            "01000000"
            "00001000"
            "08000000"
            "02000000"
            "0000100000000000"
            "0100100000000000"
            "0010000000000000"
            "0000800000000000"
            "9900000000000000"
            "000102030405060708090a0b0c0d0e0f"
            "202122232425262728292a2b2c2d2e2f");
  const auto decoded = Welcome::Decode(welcome.Encode());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->blocks, welcome.blocks);
  EXPECT_EQ(decoded->have_bytes, welcome.have_bytes);
  EXPECT_EQ(decoded->ring.key, 0x99U);
}

TEST(PipeProtocol, GoldenRecordAndEnd) {
  EXPECT_EQ(ToHex(ToBytes(SomeRecord())),
            "03"
            "01"
            "01"
            "00"
            "44332211"
            "0700000000000000"
            "0807060504030201"
            "4533221100000000"
            "101112131415161718191a1b1c1d1e1f"
            "808182838485868788898a8b8c8d8e8f");
  EndWire end{};
  end.type = 4;
  end.number = 3;
  end.length = 0x0a0b;
  end.digest = Pattern(1);
  end.tag = Pattern(0x40);
  EXPECT_EQ(ToHex(ToBytes(end)),
            "0400000000000000"
            "0300000000000000"
            "0b0a000000000000"
            "0102030405060708090a0b0c0d0e0f10"
            "404142434445464748494a4b4c4d4e4f");
  EXPECT_EQ(BoundPart(end).size(), 40U);
}

TEST(PipeProtocol, GoldenSmallMessages) {
  EXPECT_EQ(ToHex(EncodeNumber(MessageType::kBegin, 0x1234)),
            "0200000000000000"
            "3412000000000000");
  EXPECT_EQ(ToHex(EncodeNumber(MessageType::kCredit, 2)),
            "0500000000000000"
            "0200000000000000");
  EXPECT_EQ(ToHex(EncodeAbort(Status(Code::kDisconnected, "gone"))),
            "07"
            "00"
            "1000"
            "0400"
            "676f6e65");
  EXPECT_EQ(ToHex(EncodeReport({"h:1", Status(Code::kDisconnected, "gone")})),
            "0a"
            "00"
            "1000"
            "0300"
            "683a31"
            "0400"
            "676f6e65");
  EXPECT_EQ(ToHex(EncodeBare(MessageType::kPing)), "08");
  EXPECT_EQ(ToHex(EncodeBare(MessageType::kFarewell)), "09");
}

// A block is read piece by piece, and the digest is that of all of it.
TEST(Digests, OfABlockInPieces) {
  std::vector<std::byte> block((3U << 20) + 5);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(i * 31 >> 7);
  const ByteSpan all(block);
  BlockDigest digest;
  EXPECT_EQ(digest.Take(), DigestOf({}));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{4099}, std::size_t{1} << 20}) {
    for (std::size_t at = 0; at < all.size(); at += piece) {
      digest.Add(all.subspan(at, std::min(piece, all.size() - at)));
    }
    EXPECT_EQ(digest.Take(), DigestOf(all)) << piece;
  }
}

// What is hashed, and how, is part of the protocol.
TEST(PipeProtocol, GoldenDigests) {
  EXPECT_EQ(ToHex(DigestOf({})), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing
  StreamDigest stream;
  EXPECT_EQ(stream.Value(), DigestOf({}));
  stream.Add(1, 2, Pattern(3));
  struct {
    Le64 offset{1}, length{2};
    Digest digest = Pattern(3);
  } const piece;
  EXPECT_EQ(stream.Value(), DigestOf(std::as_bytes(std::span(&piece, 1))));
}

TEST(PipeProtocol, HelloOfAnotherKind) {
  Bytes bytes = Hello{}.Encode();
  EXPECT_FALSE(Hello::Decode(ByteSpan(bytes).first(20)).ok());
  bytes[4] = std::byte{2};
  const Status version = Hello::Decode(bytes).status();
  EXPECT_EQ(version.code(), Code::kVersionMismatch);
  EXPECT_NE(version.message().find("rdsend speaks pipe protocol 2.0, rdrecv 1.0"),
            std::string::npos);
  bytes = Hello{}.Encode();
  bytes[9] = std::byte{1};
  EXPECT_EQ(Hello::Decode(bytes).status().code(), Code::kUnsupported);
  bytes = Hello{}.Encode();
  bytes[0] = std::byte{'X'};
  EXPECT_EQ(Hello::Decode(bytes).status().code(), Code::kProtocolError);
}

TEST(PipeProtocol, WelcomeThatMakesNoSense) {
  Welcome good;
  good.ring = {.address = 0, .length = 1 << 20, .key = 1};
  good.slot_bytes = 1 << 16;
  good.slots = 16;
  ASSERT_TRUE(Welcome::Decode(good.Encode()).ok());
  const auto refused = [&](auto change) {
    Welcome bad = good;
    change(bad);
    return !Welcome::Decode(bad.Encode()).ok();
  };
  EXPECT_TRUE(refused([](Welcome& w) { w.slots = 0; }));
  EXPECT_TRUE(refused([](Welcome& w) { w.slots = 17; }));  // beyond the ring
  EXPECT_TRUE(refused([](Welcome& w) { w.slots = kMaxSlots + 1; }));
  EXPECT_TRUE(refused([](Welcome& w) { w.slot_bytes = 1; }));
  EXPECT_TRUE(refused([](Welcome& w) { w.slot_bytes = ~0U; }));
  EXPECT_TRUE(refused([](Welcome& w) { w.have_bytes = 5; }));  // without blocks
  EXPECT_TRUE(refused([](Welcome& w) { w.blocks.resize(1); }));
  EXPECT_TRUE(refused([](Welcome& w) {
    w.blocks.resize(1);
    w.block_bytes = 10;
    w.have_bytes = 11;
  }));
  EXPECT_TRUE(refused([](Welcome& w) {
    w.blocks.resize(kMaxBlocks + 1);
    w.block_bytes = 1;
    w.have_bytes = kMaxBlocks + 1;
  }));
  // Blocks larger than the least are for what would have too many.
  const auto large = [](std::uint32_t count) {
    return [count](Welcome& w) {
      w.blocks.resize(count);
      w.block_bytes = 2 * kLeastBlockBytes;
      w.have_bytes = count * w.block_bytes;
    };
  };
  EXPECT_TRUE(refused(large(1)));
  EXPECT_TRUE(refused(large(kMaxBlocks / 2)));
  EXPECT_FALSE(refused(large(kMaxBlocks / 2 + 1)));
  Bytes cut = good.Encode();
  cut.pop_back();
  EXPECT_FALSE(Welcome::Decode(cut).ok());
}

TEST(PipeProtocol, RecordThatMakesNoSense) {
  constexpr std::uint32_t kSlot = 1 << 16;
  RecordWire good{};
  good.type = 3;
  good.kind = 1;
  good.wire_bytes = 100;
  good.length = 100;
  ASSERT_TRUE(DecodeRecord(ToBytes(good), kSlot).ok());
  const auto refused = [&](auto change) {
    RecordWire bad = good;
    change(bad);
    return !DecodeRecord(ToBytes(bad), kSlot).ok();
  };
  EXPECT_TRUE(refused([](RecordWire& r) { r.length = 0; }));
  EXPECT_TRUE(refused([](RecordWire& r) { r.wire_bytes = 99; }));
  EXPECT_TRUE(refused([](RecordWire& r) { r.wire_bytes = 0; }));
  EXPECT_TRUE(refused([](RecordWire& r) { r.flags = 1; }));  // not smaller
  EXPECT_TRUE(refused([](RecordWire& r) { r.flags = 2; }));
  EXPECT_TRUE(refused([](RecordWire& r) { r.kind = 3; }));
  EXPECT_TRUE(refused([](RecordWire& r) { r.kind = 2; }));  // a hole with bytes
  EXPECT_TRUE(refused([](RecordWire& r) {
    r.wire_bytes = kSlot + 1;
    r.length = kSlot + 1;
  }));
  EXPECT_TRUE(refused([](RecordWire& r) {
    r.flags = 1;
    r.length = kSlot + 1;
  }));
  EXPECT_TRUE(refused([](RecordWire& r) { r.offset = ~0ULL; }));
  EXPECT_TRUE(refused([](RecordWire& r) {
    r.kind = 2;
    r.wire_bytes = 0;
    r.length = ~0ULL;
  }));
  Bytes longer = ToBytes(good);
  longer.push_back({});
  EXPECT_FALSE(DecodeRecord(longer, kSlot).ok());
}

TEST(PipeProtocol, AbortIsSafeForATerminal) {
  const Status told = DecodeAbort(EncodeAbort(Status(Code::kBusy, "a\x1b[2J\nb")));
  EXPECT_EQ(told.code(), Code::kBusy);
  EXPECT_EQ(told.message(), "a?[2J?b");
  EXPECT_EQ(DecodeAbort(EncodeAbort(Status(static_cast<Code>(99), "x"))).code(),
            Code::kProtocolError);
  EXPECT_EQ(DecodeAbort(EncodeAbort(Status())).code(), Code::kProtocolError);  // never success
  const Bytes bytes = EncodeAbort(Status(Code::kBusy, std::string(2000, 'x')));
  EXPECT_EQ(DecodeAbort(bytes).message().size(), kMaxSentence);
  EXPECT_EQ(DecodeAbort(ByteSpan(bytes).first(100)).code(), Code::kProtocolError);
}

TEST(PipeProtocol, UnknownTypes) {
  EXPECT_FALSE(TypeOf({}).has_value());
  EXPECT_FALSE(TypeOf(Bytes{std::byte{0}}).has_value());
  EXPECT_FALSE(TypeOf(Bytes{std::byte{11}}).has_value());
  EXPECT_EQ(TypeOf(Bytes{std::byte{9}}), MessageType::kFarewell);
}

}  // namespace
}  // namespace rdfs::pipe
