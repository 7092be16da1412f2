#include "transport/shm/ring.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace rdfs::transport::shm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kSize = 1024;
constexpr std::size_t kLongest = kSize / 4 * 3 - sizeof(RecordHeader);

Bytes Pattern(std::size_t size, std::size_t seed) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(seed * 131 + i * 7 + 1);
  return out;
}

// Both ends over one piece of memory.
struct Ring {
  RingCursors cursors;
  Bytes data = Bytes(kSize);
  RingWriter writer{cursors, data};
  RingReader reader{cursors, data, kLongest};

  bool Put(ByteSpan bytes, std::uint32_t tag = 0) {
    const auto written = writer.Write(std::span<const ByteSpan>(&bytes, 1), bytes.size(), tag);
    EXPECT_TRUE(written.ok()) << written.status().ToString();
    return written.ok() && *written;
  }
  // The next record, or nothing (and the tag in `tag`).
  std::optional<Bytes> Get(std::uint32_t* tag = nullptr) {
    const auto header = reader.Peek();
    EXPECT_TRUE(header.ok()) << header.status().ToString();
    if (!header.ok() || header->length == RingReader::kNone) return std::nullopt;
    if (tag != nullptr) *tag = header->tag;
    Bytes out(header->length);
    reader.Take(*header, out);
    return out;
  }
};

TEST(Ring, CarriesEverySizeAcrossEveryOffset) {
  // Each size is tried at each of the ring's line offsets: filler records move the ends along.
  for (std::size_t offset = 0; offset < kSize / kCacheLine; ++offset) {
    Ring ring;
    for (std::size_t i = 0; i < offset; ++i) {
      ASSERT_TRUE(ring.Put({}));
      ring.writer.Publish();
      ASSERT_EQ(ring.Get(), Bytes{});
    }
    for (std::size_t size = 0; size <= kLongest; ++size) {
      const Bytes sent = Pattern(size, offset);
      ASSERT_TRUE(ring.Put(sent, static_cast<std::uint32_t>(size))) << offset << " " << size;
      ASSERT_EQ(ring.Get(), std::nullopt) << "read before it was published";
      ASSERT_TRUE(ring.writer.Publish());
      std::uint32_t tag = 0;
      ASSERT_EQ(ring.Get(&tag), sent) << offset << " " << size;
      ASSERT_EQ(tag, size);
    }
  }
}

TEST(Ring, GathersThePartsOfARecordInOrder) {
  Ring ring;
  const std::string text = "one two three";
  const std::vector<ByteSpan> parts = {AsBytes(std::string_view(text).substr(0, 4)), ByteSpan(),
                                       AsBytes(std::string_view(text).substr(4))};
  ASSERT_TRUE(*ring.writer.Write(parts, text.size(), 9));
  ring.writer.Publish();
  const std::optional<Bytes> got = ring.Get();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(AsText(*got), text);
}

TEST(Ring, AFullRingTakesNothingUntilTheReaderHasGivenRoomBack) {
  Ring ring;
  std::size_t put = 0;
  while (ring.Put(Pattern(10, put))) ++put;
  EXPECT_EQ(put, kSize / kCacheLine);
  EXPECT_TRUE(ring.writer.Publish());
  EXPECT_FALSE(ring.writer.Publish()) << "nothing new to show";
  // Room comes back a quarter at a time, and Take says when.
  std::size_t took = 0;
  bool gave = false;
  while (!gave) {
    const auto header = ring.reader.Peek();
    ASSERT_TRUE(header.ok());
    Bytes out(header->length);
    gave = ring.reader.Take(*header, out);
    ASSERT_EQ(out, Pattern(10, took));
    ++took;
    ASSERT_EQ(ring.Put(Pattern(10, 99)), gave);
  }
  EXPECT_EQ(took, kSize / kCacheLine / 4);
}

TEST(Ring, AnEmptyRingAlwaysFitsTheLongestRecord) {
  for (std::size_t before = 0; before <= kSize / kCacheLine; ++before) {
    Ring ring;
    for (std::size_t i = 0; i < before; ++i) {
      ASSERT_TRUE(ring.Put({}));
      ring.writer.Publish();
      ASSERT_TRUE(ring.Get().has_value());
    }
    EXPECT_TRUE(ring.Put(Pattern(kLongest, 1))) << before;
  }
}

TEST(Ring, AReaderRefusesPositionsThatCannotBe) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bad : {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{kSize + 64},
                                  std::uint64_t{1} << 63U, kMost, kMost - 63}) {
    Ring ring;
    ring.cursors.produced.store(bad);
    EXPECT_TRUE(ring.reader.MayHaveRecord());
    EXPECT_EQ(ring.reader.Peek().status().code(), Code::kProtocolError) << bad;
  }
  Ring backwards;
  ASSERT_TRUE(backwards.Put({}));
  backwards.writer.Publish();
  ASSERT_TRUE(backwards.Get().has_value());
  backwards.cursors.produced.store(0);
  EXPECT_EQ(backwards.reader.Peek().status().code(), Code::kProtocolError);
}

TEST(Ring, AReaderRefusesLengthsThatCannotBe) {
  const auto first_length = [](std::uint32_t length) {
    Ring ring;
    EXPECT_TRUE(ring.Put(Pattern(100, 1)));
    ring.writer.Publish();
    std::memcpy(ring.data.data(), &length, sizeof(length));
    return ring.reader.Peek().status().code();
  };
  EXPECT_EQ(first_length(100), Code::kOk);
  EXPECT_EQ(first_length(120), Code::kOk);  // still within what was published
  for (const std::uint32_t bad :
       {std::uint32_t{121}, std::uint32_t{kLongest}, std::uint32_t{kLongest + 1},
        std::uint32_t{0x7fffffff}, std::uint32_t{0xfffffff8}, RingReader::kNone}) {
    EXPECT_EQ(first_length(bad), Code::kProtocolError) << bad;
  }
}

TEST(Ring, ALengthThatChangesAfterItWasCheckedChangesNothing) {
  Ring ring;
  const Bytes sent = Pattern(10, 1);
  ASSERT_TRUE(ring.Put(sent));
  ASSERT_TRUE(ring.Put(Pattern(20, 2)));
  ring.writer.Publish();
  const auto header = ring.reader.Peek();
  ASSERT_TRUE(header.ok());
  const std::uint32_t huge = 0xffffff00;
  std::memcpy(ring.data.data(), &huge, sizeof(huge));
  Bytes out(header->length);
  ring.reader.Take(*header, out);
  EXPECT_EQ(out, sent);
  EXPECT_EQ(ring.Get(), Pattern(20, 2)) << "the next record is where the checked length says";
}

TEST(Ring, AWriterRefusesPositionsThatCannotBe) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bad : {std::uint64_t{kSize + 64}, std::uint64_t{1} << 63U, kMost}) {
    Ring ring;
    while (ring.Put({})) {
    }
    ring.writer.Publish();
    ring.cursors.consumed.store(bad);
    EXPECT_EQ(ring.writer.Write({}, 0, 0).status().code(), Code::kProtocolError) << bad;
  }
  // What was not published cannot have been read either.
  Ring early;
  while (early.Put({})) {
  }
  early.cursors.consumed.store(kCacheLine);
  EXPECT_EQ(early.writer.Write({}, 0, 0).status().code(), Code::kProtocolError);
}

TEST(Ring, AWriterNeverLeavesItsMemoryWhateverTheReaderSays) {
  // Positions that could be, but are not line-aligned or run ahead of the truth, may garble
  // records; the writer stays within the ring (the address sanitizer watches).
  Ring ring;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Bytes bytes = Pattern(i % 300, 1);
    const ByteSpan part(bytes);
    const auto written = ring.writer.Write(std::span<const ByteSpan>(&part, 1), part.size(), 0);
    ring.writer.Publish();
    if (!written.ok()) break;
    ring.cursors.consumed.store(ring.cursors.produced.load() - (i * 37) % kSize / 2);
  }
}

TEST(Ring, TwoThreadsPassAMillionRecordsInOrder) {
  Ring ring;
  constexpr std::uint32_t kCount = 1'000'000;
  std::thread writing([&ring] {
    for (std::uint32_t i = 0; i < kCount;) {
      const ByteSpan part = std::as_bytes(std::span<const std::uint32_t, 1>(&i, 1));
      const auto written = ring.writer.Write(std::span<const ByteSpan>(&part, 1), 4, ~i);
      ring.writer.Publish();
      if (!written.ok()) return;
      if (*written) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
    ring.writer.Publish();
  });
  std::uint32_t expected = 0;
  bool right = true;
  while (expected < kCount && right) {
    const auto header = ring.reader.Peek();
    right = header.ok();
    if (!right || header->length == RingReader::kNone) {
      std::this_thread::yield();
      continue;
    }
    std::uint32_t value = 0;
    ring.reader.Take(*header, std::as_writable_bytes(std::span<std::uint32_t, 1>(&value, 1)));
    right = header->length == 4 && header->tag == ~expected && value == expected;
    ++expected;
  }
  ring.cursors.consumed.store(~std::uint64_t{0} >> 1U);  // ends the writer if we failed
  writing.join();
  EXPECT_TRUE(right) << expected;
}

}  // namespace
}  // namespace rdfs::transport::shm
