#include "transport/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace rdfs {
namespace {

TEST(Le, StoresLittleEndianAtAnyAddress) {
  std::array<std::byte, 9> buffer{};
  const Le64 value(0x1122334455667788U);
  std::memcpy(buffer.data() + 1, &value, sizeof value);
  EXPECT_EQ(std::to_integer<int>(buffer[1]), 0x88);
  EXPECT_EQ(std::to_integer<int>(buffer[8]), 0x11);
  Le64 back;
  std::memcpy(static_cast<void*>(&back), buffer.data() + 1, sizeof back);
  EXPECT_EQ(back, 0x1122334455667788U);
  EXPECT_EQ(LeI64(std::numeric_limits<std::int64_t>::min()),
            std::numeric_limits<std::int64_t>::min());
  static_assert(alignof(Le64) == 1 && sizeof(Le16) == 2);
}

TEST(ByteReader, NeverReadsBeyondTheEndAndStaysFailed) {
  const std::array<std::byte, 5> bytes{std::byte{4}, std::byte{0}, std::byte{'a'}, std::byte{'b'},
                                       std::byte{'c'}};
  ByteReader reader(bytes);
  EXPECT_TRUE(reader.ReadSized16(100).empty());  // says 4, has 3
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Read<Le16>(), 0);
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, RefusesALengthAboveTheBound) {
  const std::array<std::byte, 5> bytes{std::byte{3}, std::byte{0}, std::byte{'a'}, std::byte{'b'},
                                       std::byte{'c'}};
  ByteReader bounded(bytes);
  EXPECT_TRUE(bounded.ReadSized16(2).empty());
  EXPECT_FALSE(bounded.ok());
  ByteReader wide(bytes);
  EXPECT_EQ(AsText(wide.ReadSized16(3)), "abc");
  EXPECT_TRUE(wide.ok());
  EXPECT_EQ(wide.remaining(), 0U);
}

TEST(ByteWriter, StopsAtTheEndOfTheBuffer) {
  std::array<std::byte, 6> buffer{};
  ByteWriter writer(buffer);
  writer.WriteSized16(AsBytes("abcd"));
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.room(), 0U);
  writer.Write(Le16(1));
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(writer.size(), 6U);
  writer.TruncateTo(2);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.room(), 4U);
}

}  // namespace
}  // namespace rdfs
