// ExtentStoreRead: one read in progress; part of ExtentStore.
//
//   Run: version known? --no--> fstat(2) --+
//        |<--------------------------------+
//        Collect: pin what is there, begin fills for what is not
//        |   all there            some being filled: wait for each
//        Answer <------------------------------+
//        |   a piece was dropped meanwhile, or the file shrank: Run again, a few times, then
//        ReadPast: read into a buffer of its own, for this answer only
//
// Kept alive by what it waits for. The thread of one loop; the store's mutex where it says so.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/pool/extent_store.h"

namespace rdfs::server {

class ExtentStoreRead : public std::enable_shared_from_this<ExtentStoreRead> {
 public:
  ExtentStoreRead(ExtentStore& store, FileIo& io, StoreRead read, StoreReadDone done);
  void Run();

 private:
  // The answer while it is being put together.
  struct Answer {
    std::array<fs::GrantWire, fs::kMaxGrantsPerReply> grants{};
    std::size_t grant_count = 0;
    std::vector<ByteSpan> bytes{};
    std::uint32_t bytes_length = 0;
    std::uint64_t covered = 0;  // [offset, covered) is answered
    std::uint64_t file_size = 0;
    FileVersion version{};
  };

  bool LearnVersion();  // false: answered with an error, or by ReadPast
  bool Collect();       // false: nothing could be had from the pool
  Extent* TakePiece(std::uint64_t position, unsigned order);
  void StartFills();
  void Filled(Extent& extent, std::int64_t filled);
  void PieceArrived();
  void Answered();
  bool PiecesHold();
  void PinAhead();
  void GrantPieces(Answer& answer);
  [[nodiscard]] bool CarriesBytes(const GrantLane& lane) const;
  bool GrantPiece(const Extent& extent, TimePoint now, std::chrono::milliseconds lease,
                  Answer& answer);
  void AddBytes(Answer& answer);
  void DropPieces();
  void Again();
  bool KeepPast(std::size_t length);
  void ReadPast();
  void ReadPastDone(std::int64_t result, std::vector<std::byte>& buffer);
  void Reply(const Answer& answer);
  void Fail(int error);
  void Release();
  void ScheduleAhead();

  ExtentStore& store_;
  FileIo& io_;
  StoreRead read_;
  StoreReadDone done_;
  CachedFile* file_ = nullptr;
  std::uint64_t size_ = 0;  // of the file, as this read sees it
  std::uint64_t end_ = 0;   // of what is to be answered
  FileVersion version_;
  std::vector<Extent*> pieces_;  // pinned, in order; those behind `wanted_` lie ahead
  std::size_t wanted_ = 0;
  std::vector<Extent*> mine_;  // to be filled by this read
  std::size_t pending_ = 0;
  std::size_t kept_past_ = 0;  // of StoreOptions::past_bytes
  int attempts_ = 0;
  bool failed_ = false;  // one of its fills
};

}  // namespace rdfs::server
