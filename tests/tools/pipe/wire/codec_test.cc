// Pieces into records and back, compressed and sealed, and what happens to damaged ones.
#include "tools/pipe/wire/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace rdfs::pipe {
namespace {

constexpr std::size_t kSlot = 1 << 16;

transport::session::Secret32 SomeSecret() {
  transport::session::Secret32 secret;
  std::ranges::fill(secret.bytes(), std::byte{7});
  return secret;
}

struct Variant {
  std::optional<int> level;
  bool sealed;
};

class Codec : public testing::TestWithParam<Variant> {
 protected:
  std::optional<Seal> OurSeal() const {
    if (!GetParam().sealed) return std::nullopt;
    return Seal(SomeSecret(), Direction::kFromSender);
  }
  RecordMaker maker_{GetParam().level, OurSeal(), kSlot};
  RecordTaker taker_{OurSeal(), kSlot};
  std::vector<std::byte> slot_ = std::vector<std::byte>(kSlot);
};

std::vector<std::byte> Text(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>('a' + i / 7 % 13);
  return out;
}
std::vector<std::byte> Noise(std::size_t size) {
  std::mt19937 random(1);
  std::vector<std::byte> out(size);
  std::ranges::generate(out, [&] { return static_cast<std::byte>(random()); });
  return out;
}

TEST_P(Codec, BackAndForth) {
  std::uint64_t sequence = 0;
  for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{4095}, kSlot}) {
    for (const auto& piece : {Text(size), Noise(size)}) {
      std::ranges::copy(piece, maker_.Place(slot_).begin());
      const auto record = maker_.Make(sequence++, 5, size, slot_);
      ASSERT_TRUE(record.ok());
      ASSERT_TRUE(DecodeRecord(ToBytes(*record), kSlot).ok());
      const auto back = taker_.Take(*record, slot_);
      ASSERT_TRUE(back.ok()) << back.status().message();
      EXPECT_TRUE(std::ranges::equal(*back, piece));
      if (GetParam().level && size == kSlot && piece == Text(size)) {
        EXPECT_LT(record->wire_bytes, size / 10);
      }
    }
  }
  const auto hole = maker_.MakeHole(sequence, 5, 1 << 30);
  ASSERT_TRUE(hole.ok());
  EXPECT_TRUE(taker_.Take(*hole, slot_).ok());
}

TEST_P(Codec, EveryDamagedByteIsFound) {
  const auto piece = Text(300);
  std::ranges::copy(piece, maker_.Place(slot_).begin());
  const auto record = maker_.Make(3, 5, piece.size(), slot_);
  ASSERT_TRUE(record.ok());
  for (std::size_t i = 0; i < record->wire_bytes; ++i) {
    slot_[i] ^= std::byte{1};
    // A zstd frame has bits that mean nothing: what comes out is right then.
    const auto taken = taker_.Take(*record, slot_);
    EXPECT_TRUE(!taken.ok() || (GetParam().level && std::ranges::equal(*taken, piece))) << i;
    EXPECT_FALSE(taken.ok() && GetParam().sealed) << i;
    slot_[i] ^= std::byte{1};
  }
  EXPECT_TRUE(taker_.Take(*record, slot_).ok());
}

TEST_P(Codec, ASealBindsThePlaceToo) {
  if (!GetParam().sealed) return;
  const auto piece = Text(300);
  std::ranges::copy(piece, maker_.Place(slot_).begin());
  const auto record = maker_.Make(3, 5, piece.size(), slot_);
  ASSERT_TRUE(record.ok());
  for (std::size_t i = 0; i < sizeof(RecordWire); ++i) {
    Bytes bytes = ToBytes(*record);
    bytes[i] ^= std::byte{1};
    const auto changed = DecodeRecord(bytes, kSlot);
    EXPECT_FALSE(changed.ok() && taker_.Take(*changed, slot_).ok()) << i;
  }
  auto moved = *maker_.MakeHole(4, 5, 100);
  EXPECT_TRUE(taker_.Take(moved, slot_).ok());
  moved.sequence = 5;
  EXPECT_FALSE(taker_.Take(moved, slot_).ok());
  // The other direction's key is another one.
  RecordTaker other(Seal(SomeSecret(), Direction::kFromReceiver), kSlot);
  EXPECT_FALSE(other.Take(*record, slot_).ok());
}

INSTANTIATE_TEST_SUITE_P(All, Codec,
                         testing::Values(Variant{std::nullopt, false}, Variant{3, false},
                                         Variant{std::nullopt, true}, Variant{1, true}));

// With a key and a nonce that never repeat, equal pieces look different.
TEST(Seal, NothingRepeats) {
  const Seal seal(SomeSecret(), Direction::kFromSender);
  const auto piece = Text(64);
  std::vector<std::byte> first(64), second(64);
  SealTag tag{}, other_tag{};
  ASSERT_TRUE(seal.Close(1, {}, piece, first, tag).ok());
  ASSERT_TRUE(seal.Close(2, {}, piece, second, other_tag).ok());
  EXPECT_NE(first, second);
  EXPECT_NE(tag, other_tag);
  EXPECT_NE(first, piece);
}

}  // namespace
}  // namespace rdfs::pipe
