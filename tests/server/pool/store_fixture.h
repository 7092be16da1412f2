// What the tests of the extent store share: a file with known bytes, a lane over shared memory with
// a client at its other end, and a read that is driven to its answer.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/pool/extent_store.h"
#include "tests/server/temp_dir.h"
#include "tests/transport/shm/pair.h"

namespace rdfs::server {

using Bytes = std::vector<std::byte>;

class TestFile {
 public:
  explicit TestFile(const std::string& path)
      : fd_(std::make_shared<const Fd>(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600))) {
    EXPECT_TRUE(fd_->valid());
  }
  void WriteAt(std::uint64_t offset, ByteSpan bytes) const {
    EXPECT_EQ(pwrite(fd_->get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }
  void Truncate(std::uint64_t size) const {
    EXPECT_EQ(ftruncate(fd_->get(), static_cast<off_t>(size)), 0);
  }
  // Out of the page cache, where the file system has one: the next read waits.
  void MakeCold() const {
    EXPECT_EQ(fsync(fd_->get()), 0);
    (void)posix_fadvise(fd_->get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  [[nodiscard]] Bytes Content() const {
    Bytes bytes(Stat().size);
    EXPECT_EQ(pread(fd_->get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  [[nodiscard]] FileVersion Stat() const {
    struct stat st {};
    EXPECT_EQ(fstat(fd_->get(), &st), 0);
    return FileVersion::From(st);
  }
  [[nodiscard]] FileId id() const {
    struct stat st {};
    EXPECT_EQ(fstat(fd_->get(), &st), 0);
    return {.device = st.st_dev, .inode = st.st_ino, .generation = 0};
  }
  [[nodiscard]] const std::shared_ptr<const Fd>& fd() const { return fd_; }

 private:
  std::shared_ptr<const Fd> fd_;
};

inline Bytes SomeBytes(std::size_t size, std::uint32_t seed) {
  Bytes bytes(size);
  std::uint32_t state = seed * 2654435761U + 12345U;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24U);
  }
  return bytes;
}

// An answer, copied out of the callback.
struct GotRead {
  int error = 0;
  std::uint64_t file_size = 0;
  FileVersion version;
  std::vector<fs::GrantWire> grants;
  Bytes bytes;
};

inline void Drive(FileIo& io, const std::function<bool()>& done) {
  const Deadline deadline = DeadlineAfter(std::chrono::seconds(20));
  while (!done() && BootClock::now() < deadline) {
    pollfd entry{.fd = io.fd(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
    io.Poll();
  }
  EXPECT_TRUE(done());
}

inline GotRead ReadNow(ExtentStore& store, FileIo& io, StoreRead read) {
  std::optional<GotRead> got;
  store.Read(io, std::move(read), [&](const StoreReadResult& result) {
    EXPECT_FALSE(got.has_value()) << "answered twice";
    got.emplace();
    got->error = result.error;
    got->file_size = result.file_size;
    got->version = result.version;
    got->grants.assign(result.grants.begin(), result.grants.end());
    for (const ByteSpan part : result.bytes) {
      got->bytes.insert(got->bytes.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got->bytes.size(), result.bytes_length);
  });
  Drive(io, [&] { return got.has_value(); });
  return std::move(*got);
}

// The client's end of a lane: learns arenas from messages, READs what it is granted.
class LaneClient {
 public:
  explicit LaneClient(std::shared_ptr<transport::Domain> domain) {
    pair_.server_domain = std::move(domain);
    pair_.Connect();
    lane_ = std::make_shared<GrantLane>(*pair_.server, [this](const fs::ArenaMessage& message) {
      return pair_.server->Send(std::as_bytes(std::span<const fs::ArenaMessage, 1>(&message, 1)));
    });
    memory_ = transport::shm::MakeRegion(pair_.client_domain, fs::kMaxTransferBytes + 4096,
                                         transport::Access::kLocal);
  }
  ~LaneClient() { lane_->Close(); }
  LaneClient(const LaneClient&) = delete;
  LaneClient& operator=(const LaneClient&) = delete;

  [[nodiscard]] const std::shared_ptr<GrantLane>& lane() const { return lane_; }
  [[nodiscard]] transport::Connection& server() const { return *pair_.server; }

  // READs the granted bytes; the word comes later, by Holds.
  Bytes ReadBytes(const fs::GrantWire& grant) {
    LearnArenas();
    const std::uint32_t length = grant.length;
    Fetch(grant.arena, grant.arena_offset, length, 0);
    const auto bytes = memory_->bytes().first(length);
    return {bytes.begin(), bytes.end()};
  }
  bool Holds(const fs::GrantWire& grant) {
    Fetch(grant.generation_arena, grant.generation_offset, 8, fs::kMaxTransferBytes);
    const auto word =
        ByteReader(ByteSpan(memory_->bytes()).subspan(fs::kMaxTransferBytes)).Read<Le64>();
    return word == grant.generation;
  }

 private:
  void LearnArenas() {
    ASSERT_TRUE(pair_.server->Flush().ok());
    std::array<transport::Completion, 8> out;
    while (true) {
      const auto count = pair_.client->Poll(out);
      ASSERT_TRUE(count.ok()) << count.status().ToString();
      if (*count == 0) return;
      for (std::size_t i = 0; i < *count; ++i) {
        ByteReader reader(out[i].message);
        const auto message = reader.Read<fs::ArenaMessage>();
        ASSERT_TRUE(reader.ok());
        arenas_[message.arena] = message.region.ToRegion();
      }
    }
  }
  void Fetch(std::uint32_t arena, std::uint64_t from, std::uint64_t length, std::uint64_t to) {
    ASSERT_TRUE(arenas_.contains(arena)) << "a grant names an arena that was not announced";
    const auto status = transport::shm::WaitForCompletion(
        *pair_.client, pair_.client->Read({.region = memory_.get(), .offset = to, .length = length},
                                          {.region = arenas_[arena], .offset = from}));
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  transport::shm::Pair pair_;
  std::shared_ptr<GrantLane> lane_;
  std::unique_ptr<transport::MemoryRegion> memory_;
  std::map<std::uint32_t, transport::RemoteRegion> arenas_;
};

inline std::unique_ptr<FileIo> MakeFileIo(bool use_io_uring = true) {
  auto io = FileIo::Create({.depth = 64, .use_io_uring = use_io_uring, .max_threads = 4});
  EXPECT_TRUE(io.ok()) << io.status().ToString();
  return *std::move(io);
}

}  // namespace rdfs::server
