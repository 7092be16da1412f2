#include "transport/tcp/frame.h"

#include <gtest/gtest.h>

#include "tests/hex.h"
#include "tests/transport/tcp/raw_peer.h"
#include "transport/tcp/preface.h"

namespace rdfs::transport::tcp {
namespace {

// "0123456789abcdef" of a 64-bit field as it lies on the wire.
std::string HexLe64(std::uint64_t value) {
  const Le64 wire(value);
  return ToHex(std::as_bytes(std::span(&wire, 1)));
}

using FrameOnTheWire = RawPeer;

TEST(Frame, HeadersHaveTheseBytes) {
  const FrameHeader header = EncodeHeader(Opcode::kWrite, 0x0102, 0x00030405);
  EXPECT_EQ(ToHex(std::as_bytes(std::span(&header, 1))), "d505020105040300");
  const auto decoded = DecodeHeader(header);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->opcode, Opcode::kWrite);
  EXPECT_EQ(decoded->acknowledged, 0x0102);
  EXPECT_EQ(decoded->body_bytes, 0x00030405U);
}

TEST(Frame, EveryOpcodeHasItsLengthsAndOthersDoNotExist) {
  struct Case {
    int opcode;
    std::size_t least, most;
  };
  const std::vector<Case> cases{
      {1, 0, kMaxMessageBytes},  {2, 24, 24}, {3, 0, 1U << 30U}, {4, 2, 2},
      {5, 16, 16 + (1U << 30U)}, {6, 0, 0},   {7, 2, 2},         {8, 0, 0}};
  for (const Case& c : cases) {
    const auto opcode = static_cast<Opcode>(c.opcode);
    EXPECT_TRUE(DecodeHeader(EncodeHeader(opcode, 0, c.least)).ok()) << c.opcode;
    EXPECT_TRUE(DecodeHeader(EncodeHeader(opcode, 0, c.most)).ok()) << c.opcode;
    EXPECT_FALSE(DecodeHeader(EncodeHeader(opcode, 0, c.most + 1)).ok()) << c.opcode;
    if (c.least == 0) continue;
    EXPECT_FALSE(DecodeHeader(EncodeHeader(opcode, 0, c.least - 1)).ok()) << c.opcode;
  }
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (opcode >= 1 && opcode <= 8) continue;
    EXPECT_EQ(DecodeHeader(EncodeHeader(static_cast<Opcode>(opcode), 0, 0)).status().code(),
              Code::kProtocolError);
  }
  FrameHeader header = EncodeHeader(Opcode::kBye, 0, 0);
  header.magic = 0xD4;
  EXPECT_EQ(DecodeHeader(header).status().code(), Code::kProtocolError);
}

TEST(Preface, HasTheseBytes) {
  EXPECT_EQ(ToHex(AsBytes(EncodePreface(AsBytes("abc")))), "5244465001030000616263");
  EXPECT_EQ(ToHex(AsBytes(EncodeVerdict(Status()))), "5244465001000000");
  EXPECT_EQ(ToHex(AsBytes(EncodeVerdict(Status(Code::kBusy, "no")))), "52444650010402006e6f");
}

TEST(Preface, RefusesWhatNoPeerOfOursSends) {
  const Preface good{
      .magic = kPrefaceMagic, .version = 1, .token_bytes = kMaxTokenBytes, .reserved = 0};
  EXPECT_EQ(*CheckPreface(good), kMaxTokenBytes);
  Preface bad = good;
  bad.token_bytes = kMaxTokenBytes + 1;
  EXPECT_EQ(CheckPreface(bad).status().code(), Code::kProtocolError);
  bad = good;
  bad.magic = 0x20544547;  // "GET "
  EXPECT_EQ(CheckPreface(bad).status().code(), Code::kProtocolError);
  bad = good;
  bad.version = 2;
  EXPECT_EQ(CheckPreface(bad).status().code(), Code::kVersionMismatch);
  Verdict verdict{.magic = kPrefaceMagic, .version = 1, .code = 4, .words_bytes = 513};
  EXPECT_EQ(CheckVerdict(verdict).status().code(), Code::kProtocolError);
  verdict.code = 200;
  EXPECT_EQ(VerdictStatus(verdict, "x\x1b[2J").code(), Code::kProtocolError);
  EXPECT_EQ(VerdictStatus(verdict, "x\x1b[2J").message(), "x?[2J");
}

TEST_F(FrameOnTheWire, EveryFrameThatAConnectionSendsHasTheseBytes) {
  ASSERT_TRUE(connection_->Send(AsBytes("hi")).ok());
  ASSERT_TRUE(connection_->Flush().ok());
  EXPECT_EQ(ToHex(PeerReceives()), "d5010000020000006869");

  const RemoteRegion remote{0x10, 0x1000, 0x1122334455667788};
  ASSERT_TRUE(connection_->Read({local_.get(), 0, 3}, {remote, 0x20}).ok());
  ASSERT_TRUE(connection_->Flush().ok());
  EXPECT_EQ(ToHex(PeerReceives()),
            "d502000018000000" + HexLe64(remote.key) + HexLe64(0x30) + "0300000000000000");

  ASSERT_TRUE(connection_->Write({local_.get(), 0, 3}, {remote, 0x20}).ok());
  ASSERT_TRUE(connection_->Flush().ok());
  EXPECT_EQ(ToHex(PeerReceives()),
            "d505000013000000" + HexLe64(remote.key) + HexLe64(0x30) + "6c6c6c");

  Bytes request;
  AddRead(request, read_key_, 5, 2);
  PeerSends(request);
  EXPECT_EQ(ToHex(PeerReceives()), "d5030000020000007272");

  request.clear();
  AddRead(request, read_key_ ^ 1, 5, 2);
  PeerSends(request);
  EXPECT_EQ(ToHex(PeerReceives()), "d5040000020000000100");

  request.clear();
  AddWrite(request, write_key_, kRegionBytes - 1, "ab");
  PeerSends(request);
  EXPECT_EQ(ToHex(PeerReceives()), "d5070000020000000200");

  request.clear();
  AddWrite(request, write_key_, 0, "ab");
  AddWrite(request, write_key_, 2, "cd");
  PeerSends(request);
  EXPECT_EQ(ToHex(PeerReceives()), "d506020000000000");

  connection_.reset();
  EXPECT_EQ(ToHex(PeerReceives()), "d508000000000000");
}

}  // namespace
}  // namespace rdfs::transport::tcp
