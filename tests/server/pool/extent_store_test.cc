// The store on real files, with a client that READs what it is granted over shared memory.
#include "server/pool/extent_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/server/pool/store_fixture.h"

namespace rdfs::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kSession = 1;

class ExtentStoreTest : public testing::Test {
 protected:
  static StoreOptions SmallPool() {
    StoreOptions options;
    options.pool = {.pool_bytes = 8 << 20, .arena_bytes = 2 << 20, .first_arena_bytes = 0};
    return options;
  }
  StoreRead At(std::uint64_t offset, std::uint32_t length, std::uint32_t ahead = 0) {
    return {.file = file_.id(),
            .fd = file_.fd(),
            .offset = offset,
            .length = length,
            .want_ahead = ahead,
            .session = kSession,
            .lane = client_.lane()};
  }
  StoreRead Inline(std::uint64_t offset, std::uint32_t length) {
    StoreRead read = At(offset, length);
    read.no_grants = true;
    return read;
  }
  // What the answer says from `offset` on, as a client puts it together.
  Bytes Assemble(const GotRead& got, std::uint64_t offset, std::uint32_t length) {
    Bytes bytes;
    for (const fs::GrantWire& grant : got.grants) {
      const std::uint64_t at = offset + bytes.size();
      const std::uint64_t start = grant.file_offset;
      const Bytes piece = client_.ReadBytes(grant);
      EXPECT_TRUE(client_.Holds(grant));
      if (start > at || start + piece.size() <= at) continue;
      bytes.insert(bytes.end(), piece.begin() + static_cast<std::ptrdiff_t>(at - start),
                   piece.end());
    }
    if (bytes.size() > length) bytes.resize(length);
    bytes.insert(bytes.end(), got.bytes.begin(), got.bytes.end());
    return bytes;
  }
  // A whole file, in requests of `length`, as a client goes on after a partial answer.
  Bytes ReadAll(ExtentStore& store, FileIo& io, std::uint32_t length, bool no_grants) {
    Bytes all;
    while (true) {
      StoreRead read = At(all.size(), length);
      read.no_grants = no_grants;
      const GotRead got = ReadNow(store, io, read);
      EXPECT_EQ(got.error, 0);
      const Bytes piece = Assemble(got, all.size(), length);
      all.insert(all.end(), piece.begin(), piece.end());
      if (all.size() >= got.file_size) return all;
      if (piece.empty()) {
        ADD_FAILURE() << "no progress at " << all.size() << " of " << got.file_size;
        return all;
      }
    }
  }

  TempDir directory_;
  TestFile file_{directory_ / "file"};
  ManualClock clock_;
  std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("store");
  LaneClient client_{domain_};
  ExtentStore store_{domain_, SmallPool(), clock_};
  std::unique_ptr<FileIo> io_ = MakeFileIo();
};

TEST_F(ExtentStoreTest, EverySizeAroundTheBoundaries) {
  for (const std::size_t edge : {std::size_t{0}, std::size_t{4096}, std::size_t{8192},
                                 std::size_t{65536}, std::size_t{1} << 20, std::size_t{3} << 20}) {
    for (int delta = -2; delta <= 2; ++delta) {
      if (edge == 0 && delta < 0) continue;
      const std::size_t size = edge + static_cast<std::size_t>(delta + 2) - 2;
      TestFile file(directory_ / std::to_string(size));
      const Bytes content = SomeBytes(size, static_cast<std::uint32_t>(size));
      file.WriteAt(0, content);
      std::swap(file, file_);
      ASSERT_EQ(ReadAll(store_, *io_, 1 << 20, false), content) << size;
      ASSERT_EQ(ReadAll(store_, *io_, 10'000, false), content) << size;
      ASSERT_EQ(ReadAll(store_, *io_, 65536, true), content) << size;
    }
  }
}

TEST_F(ExtentStoreTest, BehindTheEndThereIsNothing) {
  file_.WriteAt(0, SomeBytes(5000, 1));
  for (const std::uint64_t offset :
       {std::uint64_t{5000}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const GotRead got = ReadNow(store_, *io_, At(offset, 4096));
    EXPECT_EQ(got.error, 0);
    EXPECT_EQ(got.file_size, 5000U);
    EXPECT_TRUE(got.grants.empty());
    EXPECT_TRUE(got.bytes.empty());
  }
}

TEST_F(ExtentStoreTest, ZeroesStandBehindTheEndOfTheFile) {
  // Memory that held something else before.
  const Bytes other = SomeBytes(8 << 20, 9);
  {
    TestFile big(directory_ / "big");
    big.WriteAt(0, other);
    std::swap(big, file_);
    EXPECT_EQ(ReadAll(store_, *io_, 1 << 20, false), other);
    std::swap(big, file_);
  }
  clock_.Advance(seconds(10));
  file_.WriteAt(0, SomeBytes((1 << 20) - 3000, 1));
  const GotRead got = ReadNow(store_, *io_, At(0, 1 << 20));
  ASSERT_EQ(got.grants.size(), 1U);
  fs::GrantWire whole = got.grants[0];
  EXPECT_EQ(whole.length, (1U << 20) - 3000);
  whole.length = 1 << 20;
  const Bytes extent = client_.ReadBytes(whole);
  EXPECT_TRUE(std::all_of(extent.end() - 3000, extent.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(ExtentStoreTest, HolesAreZeroes) {
  file_.Truncate(3 << 20);
  file_.WriteAt((1 << 20) + 77, SomeBytes(100, 1));
  EXPECT_EQ(ReadAll(store_, *io_, 1 << 20, false), file_.Content());
}

TEST_F(ExtentStoreTest, AColdFileIsReadWithoutBlocking) {
  for (const bool use_io_uring : {true, false}) {
    const auto io = MakeFileIo(use_io_uring);
    file_.WriteAt(0, SomeBytes(5 << 20, use_io_uring ? 1 : 2));
    store_.Forget(file_.id());
    file_.MakeCold();
    EXPECT_EQ(ReadAll(store_, *io, 1 << 20, false), file_.Content());
    Drive(*io, [&] { return io->in_flight() == 0; });  // the pool grows behind the reads
  }
}

TEST_F(ExtentStoreTest, ReadersOfOneExtentShareItsFill) {
  file_.WriteAt(0, SomeBytes(1 << 20, 1));
  file_.MakeCold();
  int answers = 0;
  for (std::uint64_t i = 0; i < 8; ++i) {
    store_.Read(*io_, At(i * (128 << 10), 128 << 10), [&](const StoreReadResult& result) {
      EXPECT_EQ(result.error, 0);
      EXPECT_EQ(result.grants.size(), 1U);
      ++answers;
    });
  }
  Drive(*io_, [&] { return answers == 8; });
  EXPECT_EQ(store_.stats().fills_waited + store_.stats().fills_at_once, 1U);
}

TEST_F(ExtentStoreTest, AHitMakesNoFill) {
  file_.WriteAt(0, SomeBytes(1 << 20, 1));
  ReadNow(store_, *io_, At(0, 1 << 20));
  const StoreStats before = store_.stats();
  ReadNow(store_, *io_, At(0, 1 << 20));
  EXPECT_EQ(store_.stats().hits, before.hits + 1);
  EXPECT_EQ(store_.stats().misses, before.misses);
}

TEST_F(ExtentStoreTest, WhatLiesAheadIsFilledBehindTheReply) {
  file_.WriteAt(0, SomeBytes(6 << 20, 1));
  const GotRead first = ReadNow(store_, *io_, At(0, 1 << 20, 3 << 20));
  EXPECT_EQ(first.grants.size(), 1U) << "nobody waits for what was not asked for";
  while (io_->RunDeferred()) {
  }
  Drive(*io_, [&] { return io_->in_flight() == 0; });
  const GotRead second = ReadNow(store_, *io_, At(1 << 20, 1 << 20, 3 << 20));
  EXPECT_EQ(second.grants.size(), 3U);
}

TEST_F(ExtentStoreTest, SmallReadsTravelInTheReply) {
  file_.WriteAt(0, SomeBytes(4 << 20, 1));
  std::mt19937 random(1);
  const Bytes content = file_.Content();
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t offset = random() % 1000 * 4096;
    const GotRead got = ReadNow(store_, *io_, At(offset, 4096));
    ASSERT_EQ(Assemble(got, offset, 4096),
              Bytes(content.begin() + static_cast<std::ptrdiff_t>(offset),
                    content.begin() + static_cast<std::ptrdiff_t>(offset) + 4096));
  }
  EXPECT_GT(store_.stats().inline_bytes, 0U);
}

TEST_F(ExtentStoreTest, AChangeRevokesWhatWasGranted) {
  file_.WriteAt(0, SomeBytes(2 << 20, 1));
  const GotRead got = ReadNow(store_, *io_, At(0, 1 << 20));
  ASSERT_EQ(got.grants.size(), 1U);
  client_.ReadBytes(got.grants[0]);
  EXPECT_TRUE(client_.Holds(got.grants[0]));
  file_.WriteAt(1000, SomeBytes(10, 7));
  const FileVersion after = file_.Stat();
  store_.Changed(file_.id(), 1000, 10, &after);
  client_.ReadBytes(got.grants[0]);
  EXPECT_FALSE(client_.Holds(got.grants[0]));
  EXPECT_EQ(ReadAll(store_, *io_, 1 << 20, false), file_.Content());
}

TEST_F(ExtentStoreTest, GrowingAndShrinkingThroughTheServer) {
  std::mt19937 random(3);
  for (int step = 0; step < 60; ++step) {
    const std::uint64_t before = file_.Stat().size;
    if (random() % 2 == 0) {
      const std::uint64_t size = random() % (3 << 20);
      file_.Truncate(size);
      const FileVersion after = file_.Stat();
      store_.Changed(file_.id(), std::min(before, size), ExtentStore::kToEnd,
                     random() % 2 == 0 ? &after : nullptr);
    } else {
      const std::uint64_t offset = random() % (3 << 20);
      const Bytes bytes = SomeBytes(random() % 100'000 + 1, static_cast<std::uint32_t>(step));
      file_.WriteAt(offset, bytes);
      const FileVersion after = file_.Stat();
      store_.Changed(file_.id(), offset, bytes.size(), random() % 2 == 0 ? &after : nullptr);
    }
    ASSERT_EQ(ReadAll(store_, *io_, step % 3 == 0 ? 5000 : 1 << 20, step % 2 == 0), file_.Content())
        << "step " << step;
  }
}

TEST_F(ExtentStoreTest, AChangeBehindTheServersBackIsSeenWithinAnAttrLease) {
  for (int step = 0; step < 8; ++step) {
    file_.WriteAt(0, SomeBytes(100'000, static_cast<std::uint32_t>(step)));
    clock_.Advance(milliseconds(1001));
    ASSERT_EQ(ReadAll(store_, *io_, 1 << 20, false), file_.Content());
    // Seen by open(2), it is known at once.
    file_.WriteAt(50'000, SomeBytes(100, static_cast<std::uint32_t>(step + 100)));
    store_.NoteVersion(file_.id(), file_.Stat());
    ASSERT_EQ(ReadAll(store_, *io_, 1 << 20, false), file_.Content());
  }
}

TEST_F(ExtentStoreTest, AFileThatShrinksBehindTheServersBack) {
  file_.WriteAt(0, SomeBytes(3 << 20, 1));
  ReadNow(store_, *io_, At(0, 4096));
  file_.Truncate(1000);
  // Within the attr lease the old size is believed, until a read finds the file shorter.
  const GotRead got = ReadNow(store_, *io_, Inline(2 << 20, 4096));
  EXPECT_EQ(got.error, 0);
  EXPECT_EQ(got.file_size, 1000U);
  EXPECT_TRUE(got.bytes.empty());
  EXPECT_EQ(ReadAll(store_, *io_, 1 << 20, false), file_.Content());
}

TEST_F(ExtentStoreTest, AFullPoolAnswersInTheReply) {
  file_.WriteAt(0, SomeBytes(16 << 20, 1));
  const Bytes content = file_.Content();
  // Leases do not run out: the clock stands still.
  Bytes all;
  bool refused = false;
  while (all.size() < content.size()) {
    const GotRead got = ReadNow(store_, *io_, At(all.size(), 1 << 20));
    ASSERT_EQ(got.error, 0);
    refused = refused || got.grants.empty();
    const Bytes piece = Assemble(got, all.size(), 1 << 20);
    ASSERT_FALSE(piece.empty());
    all.insert(all.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(all, content);
  EXPECT_TRUE(refused);
  const StoreStats stats = store_.stats();
  EXPECT_LE(stats.leased_bytes, stats.capacity_bytes * 88 / 100 + 1);
  EXPECT_LE(stats.cached_bytes, stats.capacity_bytes);
  clock_.Advance(seconds(2));
  EXPECT_FALSE(ReadNow(store_, *io_, At(0, 1 << 20)).grants.empty()) << "leases have run out";
}

TEST_F(ExtentStoreTest, AnErrorOfTheFileSystemIsAnswered) {
  file_.WriteAt(0, SomeBytes(1000, 1));
  StoreRead read = At(0, 1000);
  const auto write_only =
      std::make_shared<const Fd>(open((directory_ / "file").c_str(), O_WRONLY | O_CLOEXEC));
  read.fd = write_only;
  EXPECT_EQ(ReadNow(store_, *io_, read).error, EBADF);
  EXPECT_EQ(ReadAll(store_, *io_, 4096, true), file_.Content()) << "the file itself is fine";
}

// This process's memory as a file, with a page in it that nobody can read.
TEST_F(ExtentStoreTest, WhatCannotBeReadTakesNothingElseAlong) {
  constexpr std::size_t kBad = 600 << 10, kPage = 4096;
  constexpr std::uint64_t kFileSize = std::uint64_t{4} << 30U;
  // A file can be so long that this is an offset in it.
  auto* const wanted_place = reinterpret_cast<void*>(std::uintptr_t{1} << 30U);
  void* const mapped =
      mmap(wanted_place, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::uint64_t start = (reinterpret_cast<std::uintptr_t>(mapped) + kMaxExtentBytes - 1) /
                              kMaxExtentBytes * kMaxExtentBytes;
  const auto memory_as_file =
      std::make_shared<const Fd>(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  if (start + (2 << 20) > kFileSize || !memory_as_file->valid()) {
    GTEST_SKIP() << "no such memory or no such file here";
  }
  const Bytes content = SomeBytes(1 << 20, 1);
  auto* const extent = reinterpret_cast<std::byte*>(start);
  std::copy(content.begin(), content.end(), extent);
  // Behind the end of a file that is empty.
  const TestFile empty(directory_ / "empty");
  ASSERT_NE(mmap(extent + kBad, kPage, PROT_READ, MAP_SHARED | MAP_FIXED, empty.fd()->get(), 0),
            MAP_FAILED);
  // The store knows of a file that is as long, and the clock stands still.
  file_.Truncate(kFileSize);
  ASSERT_EQ(ReadNow(store_, *io_, At(0, 4096)).error, 0);
  const auto read = [&](std::size_t offset, std::uint32_t length) {
    StoreRead wanted = At(start + offset, length, 1 << 20);
    wanted.fd = memory_as_file;
    return ReadNow(store_, *io_, wanted);
  };
  const auto part = [&](std::size_t offset, std::size_t length) {
    const auto from = content.begin() + static_cast<std::ptrdiff_t>(offset);
    return Bytes(from, from + static_cast<std::ptrdiff_t>(length));
  };
  EXPECT_EQ(read(0, 64 << 10).bytes, part(0, 64 << 10)) << "in front of it";
  EXPECT_EQ(read(700 << 10, 8192).bytes, part(700 << 10, 8192)) << "behind it";
  EXPECT_EQ(read(kBad - kPage, 2 * kPage).bytes, part(kBad - kPage, kPage)) << "up to it";
  EXPECT_EQ(read(kBad, kPage).error, EIO);

  // Such reads wait in no more memory than there may be, which each gives back.
  for (const std::size_t memory : {std::size_t{0}, std::size_t{64} << 10U}) {
    StoreOptions options = SmallPool();
    options.past_bytes = memory;
    ExtentStore bounded(domain_, options, clock_);
    const auto io = MakeFileIo();
    ASSERT_EQ(ReadNow(bounded, *io, Inline(0, 4096)).error, 0);
    for (int i = 0; i < 2; ++i) {
      StoreRead wanted = At(start, 64 << 10, 1 << 20);
      wanted.fd = memory_as_file;
      EXPECT_EQ(ReadNow(bounded, *io, wanted).bytes, part(0, std::max(kPage, memory)));
    }
  }
  munmap(mapped, 3 << 20);
}

TEST_F(ExtentStoreTest, AClosedLaneIsGrantedNothing) {
  file_.WriteAt(0, SomeBytes(1 << 20, 1));
  client_.lane()->Close();
  const GotRead got = ReadNow(store_, *io_, At(0, 1 << 20));
  EXPECT_TRUE(got.grants.empty());
  EXPECT_EQ(got.bytes.size(), fs::kMaxInlineDataBytes);
}

// Several loops and a writer on one store: no answer mixes up files, all are answered, and the
// thread sanitizer has something to look at.
TEST_F(ExtentStoreTest, ManyLoops) {
  constexpr std::size_t kFiles = 4;
  constexpr std::size_t kSize = 3 << 20;
  std::vector<std::unique_ptr<TestFile>> files;
  for (std::size_t i = 0; i < kFiles; ++i) {
    files.push_back(std::make_unique<TestFile>(directory_ / ("f" + std::to_string(i))));
    files[i]->WriteAt(0, Bytes(kSize, static_cast<std::byte>(i + 1)));
  }
  SystemClock clock;
  ExtentStore store(domain_, SmallPool(), clock);
  std::atomic<int> reading{3};
  const auto loop = [&](std::uint32_t seed) {
    const auto io = MakeFileIo(seed % 2 == 0);
    std::mt19937 random(seed);
    for (int i = 0; i < 400; ++i) {
      const std::size_t which = random() % kFiles;
      StoreRead read{.file = files[which]->id(),
                     .fd = files[which]->fd(),
                     .offset = random() % kSize,
                     .length = random() % 2 == 0 ? 4096U : 200'000U,
                     .want_ahead = random() % 4 == 0 ? 1U << 20 : 0U,
                     .no_grants = true,
                     .session = seed,
                     .lane = nullptr};
      const GotRead got = ReadNow(store, *io, read);
      EXPECT_EQ(got.error, 0);
      EXPECT_FALSE(got.bytes.empty());
      EXPECT_TRUE(std::all_of(got.bytes.begin(), got.bytes.end(), [&](std::byte byte) {
        return byte == static_cast<std::byte>(which + 1);
      }));
      if (random() % 4 == 0) io->RunDeferred();
    }
    Drive(*io, [&] { return io->in_flight() == 0; });
    --reading;
    // Another loop may still hand us a piece that we wait for no more.
    while (reading > 0) {
      io->Poll();
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t seed = 0; seed < 3; ++seed) threads.emplace_back(loop, seed);
  std::mt19937 random(9);
  while (reading > 0) {
    const std::size_t which = random() % kFiles;
    const std::uint64_t offset = random() % kSize;
    files[which]->WriteAt(std::min<std::uint64_t>(offset, kSize - 1),
                          Bytes(1, static_cast<std::byte>(which + 1)));
    store.Changed(files[which]->id(), offset, 1);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rdfs::server
