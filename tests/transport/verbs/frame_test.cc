// Golden bytes of what the verbs transport puts on the wire, and what it makes of hostile bytes.
#include "transport/verbs/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/hex.h"
#include "transport/verbs/private_data.h"
#include "transport/verbs/reassembler.h"
#include "transport/verbs/work_id.h"

namespace rdfs::transport::verbs {
namespace {

template <typename T>
std::string Hex(const T& value) {
  return ToHex(std::as_bytes(std::span<const T, 1>(&value, 1)));
}

TEST(Frame, GoldenBytes) {
  FrameHeader header;
  header.type = static_cast<std::uint8_t>(FrameType::kContinuation);
  header.credits = 0x0102;
  header.message_bytes = 0x00010203;
  EXPECT_EQ(Hex(header), "0300020103020100");

  Opening opening;
  opening.receive_slots = 64;
  EXPECT_EQ(Hex(opening),
            "72646676"
            "01000000"
            "00100000"
            "40000000");
}

TEST(Frame, TheCountOfFrames) {
  EXPECT_EQ(FramesOf(0), 1U);
  EXPECT_EQ(FramesOf(kMaxPayloadBytes), 1U);
  EXPECT_EQ(FramesOf(kMaxPayloadBytes + 1), 2U);
  EXPECT_EQ(FramesOf(kMaxMessageBytes), 33U);
}

TEST(WorkId, KeepsItsKindAndValue) {
  const WorkId id = WorkId::FromRaw(WorkId(WorkKind::kWrite, 0x00ffffffffffffff).raw());
  EXPECT_EQ(id.kind(), WorkKind::kWrite);
  EXPECT_EQ(id.value(), 0x00ffffffffffffffU);
}

TEST(PrivateData, ATokenOfAnyLengthSurvivesPadding) {
  for (std::size_t size = 0; size <= kMaxTokenBytes; ++size) {
    const std::string token(size, static_cast<char>('a' + size % 26));
    const ConnectData data = EncodeConnect(AsBytes(token));
    const ByteSpan bytes = std::as_bytes(std::span<const ConnectData, 1>(&data, 1));
    for (const std::size_t wire : {1 + size, kMaxConnectBytes}) {
      const auto back = DecodeConnect(bytes.first(wire));
      ASSERT_TRUE(back) << size;
      EXPECT_EQ(AsText(*back), token);
    }
  }
}

TEST(PrivateData, ATokenThatLiesAboutItsLengthIsRefused) {
  EXPECT_FALSE(DecodeConnect({}));
  EXPECT_FALSE(
      DecodeConnect(AsBytes("\x05"
                            "four")));
  EXPECT_FALSE(DecodeConnect(AsBytes("\xff" + std::string(300, 'x'))));
  EXPECT_FALSE(DecodeConnect(AsBytes("\x38" + std::string(56, 'x'))));
}

TEST(PrivateData, ARejectionKeepsItsCodeAndWords) {
  const RejectData data = EncodeReject({Code::kAuthenticationFailed, "no"});
  EXPECT_EQ(Hex(data).substr(0, 16),
            "524a1302"
            "6e6f0000");
  const ByteSpan bytes = std::as_bytes(std::span<const RejectData, 1>(&data, 1));
  const auto back = DecodeReject(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->code(), Code::kAuthenticationFailed);
  EXPECT_EQ(back->message(), "no");
}

TEST(PrivateData, ALongRejectionIsCutAndAHostileOneIsMadeHarmless) {
  const RejectData data = EncodeReject({Code::kBusy, std::string(1000, 'x')});
  const auto cut = DecodeReject(std::as_bytes(std::span<const RejectData, 1>(&data, 1)));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->message(), std::string(144, 'x'));

  EXPECT_FALSE(DecodeReject({}));
  EXPECT_FALSE(DecodeReject(AsBytes(std::string(148, '\0'))));
  EXPECT_FALSE(
      DecodeReject(AsBytes("RJ\x04\x05"
                           "four")));
  using std::string_literals::operator""s;
  EXPECT_FALSE(DecodeReject(AsBytes("RJ\0\x01x"s))) << "a rejection that says ok";
  EXPECT_FALSE(DecodeReject(AsBytes("RJ\x63\x01x"s))) << "a code that does not exist";
  EXPECT_EQ(DecodeReject(AsBytes("RJ\x04\x04\x1b[2J"s))->message(), "?[2J");
}

class ReassemblerTest : public testing::Test {
 protected:
  static FrameHeader Header(FrameType type, std::size_t message_bytes) {
    FrameHeader header;
    header.type = static_cast<std::uint8_t>(type);
    header.message_bytes = static_cast<std::uint32_t>(message_bytes);
    return header;
  }
  Result<std::optional<Reassembler::Message>> Begin(std::size_t message_bytes,
                                                    std::size_t payload) {
    return reassembler_.Add(Header(FrameType::kMessage, message_bytes),
                            ByteSpan(bytes_).first(payload));
  }
  Result<std::optional<Reassembler::Message>> GoOn(std::size_t message_bytes, std::size_t offset,
                                                   std::size_t payload) {
    return reassembler_.Add(Header(FrameType::kContinuation, message_bytes),
                            ByteSpan(bytes_).subspan(offset, payload));
  }
  void SetUp() override {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      bytes_[i] = static_cast<std::byte>(i * 7 + i / 251);
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * kMaxMessageBytes);
  Reassembler reassembler_;
};

TEST_F(ReassemblerTest, AMessageOfOneFrameStaysInPlace) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kMaxPayloadBytes}) {
    const auto message = Begin(size, size);
    ASSERT_TRUE(message.ok());
    ASSERT_TRUE(*message);
    EXPECT_TRUE((**message).in_frame);
    EXPECT_EQ((**message).bytes.data(), bytes_.data());
    EXPECT_EQ((**message).bytes.size(), size);
  }
}

TEST_F(ReassemblerTest, TheLargestMessageIsPutTogether) {
  for (int round = 0; round < 2; ++round) {
    auto message = Begin(kMaxMessageBytes, kMaxPayloadBytes);
    std::size_t offset = kMaxPayloadBytes;
    for (; message.ok() && !*message; offset += kMaxPayloadBytes) {
      message =
          GoOn(kMaxMessageBytes, offset, std::min(kMaxPayloadBytes, kMaxMessageBytes - offset));
    }
    ASSERT_TRUE(message.ok());
    EXPECT_FALSE((**message).in_frame);
    ASSERT_EQ((**message).bytes.size(), kMaxMessageBytes);
    EXPECT_EQ(std::memcmp((**message).bytes.data(), bytes_.data(), kMaxMessageBytes), 0);
  }
}

TEST_F(ReassemblerTest, HostileBeginnings) {
  EXPECT_FALSE(Begin(kMaxMessageBytes + 1, kMaxPayloadBytes).ok());
  EXPECT_FALSE(Begin(0xffffffff, kMaxPayloadBytes).ok());
  EXPECT_FALSE(Begin(10, 11).ok()) << "more than it says";
  EXPECT_FALSE(Reassembler().Add(Header(FrameType::kContinuation, 10), {}).ok()) << "no beginning";
}

TEST_F(ReassemblerTest, HostilePieces) {
  constexpr std::size_t kTotal = 3 * kMaxPayloadBytes;
  const auto begun = [&] {
    reassembler_ = Reassembler();
    return Begin(kTotal, kMaxPayloadBytes).ok();
  };
  ASSERT_TRUE(begun());
  EXPECT_FALSE(GoOn(kTotal, 0, 0).ok()) << "empty pieces for ever";
  ASSERT_TRUE(begun());
  EXPECT_FALSE(GoOn(kTotal, 0, kMaxPayloadBytes - 1).ok());
  ASSERT_TRUE(begun());
  EXPECT_FALSE(GoOn(kTotal + 1, 0, kMaxPayloadBytes).ok()) << "it grows";
  ASSERT_TRUE(begun());
  EXPECT_FALSE(Begin(4, 4).ok()) << "a message within a message";
  EXPECT_FALSE(Reassembler().Add(Header(FrameType::kMessage, kTotal), {}).ok());
}

}  // namespace
}  // namespace rdfs::transport::verbs
