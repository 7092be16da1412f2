// Golden bytes of the packets, and where everything lies in the memory that both processes map.
#include "transport/shm/wire.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tests/hex.h"

namespace rdfs::transport::shm {
namespace {

template <typename T>
std::string Hex(const T& packet) {
  return ToHex(std::as_bytes(std::span<const T, 1>(&packet, 1)));
}

TEST(Wire, PacketsHaveTheseBytes) {
  PrefaceWire preface;
  preface.token_bytes = 3;
  EXPECT_EQ(Hex(preface), "010301007264667373686d31");

  AcceptWire accept;
  accept.channel_bytes = 0x01020304;
  EXPECT_EQ(Hex(accept), "0200010004030201");

  RejectWire reject;
  reject.code = 5;
  reject.message_bytes = 0x0102;
  reject.errno_value = 0x03040506;
  EXPECT_EQ(Hex(reject), "0305020106050403");

  ShareWire share;
  share.access = 2;
  share.slot = 0x0102;
  share.key = 0x0102030405060708;
  share.size = 0x1112131415161718;
  EXPECT_EQ(Hex(share), "0502020108070605040302011817161514131211");
}

TEST(Wire, PacketTypesHaveTheseNumbers) {
  EXPECT_EQ(static_cast<int>(PacketType::kPreface), 1);
  EXPECT_EQ(static_cast<int>(PacketType::kAccept), 2);
  EXPECT_EQ(static_cast<int>(PacketType::kReject), 3);
  EXPECT_EQ(static_cast<int>(PacketType::kBell), 4);
  EXPECT_EQ(static_cast<int>(PacketType::kShare), 5);
  EXPECT_EQ(static_cast<int>(PacketType::kUnshare), 6);
}

TEST(Wire, TheChannelHasThisLayout) {
  const auto channel = std::make_unique<ChannelLayout>();
  const auto offset = [&channel](const auto& part) {
    return reinterpret_cast<const std::byte*>(&part) -
           reinterpret_cast<const std::byte*>(channel.get());
  };
  EXPECT_EQ(offset(channel->sides[0].asleep), 0);
  EXPECT_EQ(offset(channel->sides[0].blocked), 4);
  EXPECT_EQ(offset(channel->sides[0].cpu), 8);
  EXPECT_EQ(offset(channel->sides[1]), 64);
  EXPECT_EQ(offset(channel->cursors[0].produced), 128);
  EXPECT_EQ(offset(channel->cursors[0].consumed), 192);
  EXPECT_EQ(offset(channel->cursors[1]), 256);
  EXPECT_EQ(offset(channel->live[0][0]), 4096);
  EXPECT_EQ(offset(channel->live[0][1]), 4104);
  EXPECT_EQ(offset(channel->live[1]), 8192);
  EXPECT_EQ(offset(channel->rings[0]), 12288);
  EXPECT_EQ(offset(channel->rings[1]), 12288 + 262144);
  EXPECT_EQ(sizeof(ChannelLayout), 12288U + 2 * 262144);
}

TEST(Wire, RecordsHaveThisLayout) {
  const RecordHeader header{.length = 0x01020304, .tag = 0x05060708};
  EXPECT_EQ(offsetof(RecordHeader, length), 0U);
  EXPECT_EQ(offsetof(RecordHeader, tag), 4U);
  EXPECT_EQ(Hex(header), "0403020108070605");
  EXPECT_EQ(RecordBytes(0), 64U);
  EXPECT_EQ(RecordBytes(56), 64U);
  EXPECT_EQ(RecordBytes(57), 128U);
}

}  // namespace
}  // namespace rdfs::transport::shm
