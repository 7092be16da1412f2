// ReadAhead: bytes of files that the kernel has not asked for yet, for who reads from front to back
// over a wire with a round trip to it (read_ahead_window.h).
//
//      the kernel asks     what is on its way or here already            the window's end
//           v              v                                             v
//   ... [READ 128 KiB] [piece, here][piece, here][piece, under way][piece ...]
//
// A piece is read as any other read is, into a buffer of the worker's lane. A READ of the kernel's
// that lies in pieces is answered from them, and waits for one that is still under way. A piece
// counts only as long as nobody can have changed the file since it was asked for: until the end of
// the lease that there was then on the file's attributes, unless that is recalled or this mount
// changes the file (InodeTable::Standing). For later pieces the lease is asked for again in time.
// What does not count, did not come, or lies elsewhere is read as if there were no pieces.
//
// Pieces take half of the lane's buffers at most, and are given back where a request finds none.
// One worker's, on its thread; its members outlive the lane's calls.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "fs/client/client.h"
#include "fs/fuse/content/buffer_turns.h"
#include "fs/fuse/content/read_ahead_window.h"
#include "fs/fuse/filesystem.h"
#include "fs/fuse/worker/request.h"

namespace rdfs::fs::fuse {

// Owned by its stream, by the call that brings it, and by the requests that wait for it.
struct ReadAheadPiece {
  ReadAheadPiece(std::size_t& of_all, std::uint64_t at, std::uint32_t asked_for,
                 client::Buffer into)
      : all(of_all), offset(at), length(asked_for), buffer(std::move(into)) {
    all += length;
  }
  ReadAheadPiece(const ReadAheadPiece&) = delete;
  ReadAheadPiece& operator=(const ReadAheadPiece&) = delete;
  ~ReadAheadPiece() { all -= length; }

  [[nodiscard]] std::uint64_t end() const { return offset + length; }
  [[nodiscard]] bool ends_file() const { return here && got < length; }

  std::size_t& all;
  const std::uint64_t offset;
  const std::uint32_t length;
  client::Buffer buffer;
  InodeTable::Standing standing{};
  TimePoint asked{};
  std::uint64_t came_then = 0;  // ReadAheadWindow
  bool here = false;
  std::uint32_t got = 0;
  std::uint32_t used = 0;
};

class ReadAhead {
 public:
  // `turns`: of the lane's buffers.
  ReadAhead(Filesystem& filesystem, client::Lane& lane, BufferTurns& turns);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Answers a read from what is here, or lets it wait for what comes. False: neither; the request
  // is as it was.
  bool Serve(Request& request, const client::CallContext& caller, const std::shared_ptr<Open>& open,
             std::uint64_t offset, std::uint32_t size);
  // A read that is not served, before it is asked for; and when its bytes have come.
  struct Mark {
    TimePoint asked{};
    std::uint64_t came_then = 0;
  };
  Mark Asks(const Open& open);
  void Answered(const Open& open, std::uint64_t end, std::uint32_t length, const Mark& mark);
  // `caller` has read the file up to `end`: asks for what is behind it, if it `may_ask`. `wanted`:
  // as SequentialReader says; 0: it does not read from front to back.
  void Follow(const client::CallContext& caller, const std::shared_ptr<Open>& open,
              std::uint64_t end, std::uint32_t wanted, bool may_ask);
  // The file is closed.
  void Closed(const Open& open);
  // All that is here and not used.
  void GiveBack();
  [[nodiscard]] std::size_t streams() const { return streams_.size(); }
  // Before the lane goes.
  void Clear() { streams_.clear(); }

 private:
  using Piece = ReadAheadPiece;
  static constexpr std::size_t kMostStreams = 8;
  // The most pieces that answer one read of the kernel's: 1 MiB of the smallest, and two ends.
  static constexpr std::size_t kMostParts = 10;
  // A stream that nobody has read on for so long may end to make room for another.
  static constexpr std::chrono::seconds kIdle{1};
  // How long a stream reads nothing ahead after its file was changed, or a read of it failed: of a
  // file that is changed while it is read, what was read ahead is read in vain.
  static constexpr std::chrono::seconds kPause{1};
  // How long no stream reads ahead after a request found no buffer, and the pieces were given back.
  static constexpr std::chrono::milliseconds kRest{100};
  // How long a stream waits before it asks for its file's attributes, and their lease, once more.
  static constexpr std::chrono::milliseconds kRenewal{250};
  // The least that `most` of a stream shrinks to, whose reader is so slow that pieces get too old.
  static constexpr std::uint64_t kLeastOfSlow = 128U << 10U;
  // A piece is kept until the reader is this far past it: the kernel's reads come a little out of
  // order.
  static constexpr std::uint64_t kSlack = 1U << 20U;

  struct Stream {
    const Open* of = nullptr;
    std::weak_ptr<const Open> open;  // whether `of` is still that one
    ReadAheadWindow window;
    TimePoint used{};
    std::uint64_t front = 0;                      // the kernel has asked for all before it
    std::uint64_t told = 0;                       // and has been told it
    std::uint64_t next = 0;                       // what is asked for next
    std::uint32_t wanted = 0;                     // SequentialReader
    bool renewing = false;                        // the lease
    std::uint64_t most = ReadAheadWindow::kMost;  // less where pieces grow too old
    TimePoint lease_end{};                        // as seen last
    TimePoint renew_at{};
    TimePoint pauses_until{};
    std::deque<std::shared_ptr<Piece>> pieces{};  // by their place in the file
  };
  using Streams = std::list<Stream>;

  Streams::iterator Find(const Open& open);
  bool Covers(const client::CallContext& caller, const std::shared_ptr<Open>& open, Stream& stream,
              std::uint64_t offset, std::uint64_t end);
  // None where there are too many.
  Streams::iterator FindOrBegin(const std::shared_ptr<Open>& open, std::uint64_t at, TimePoint now);
  // All but that one.
  void EndIdle(TimePoint now, const Stream* but);
  void TopUp(const client::CallContext& caller, const std::shared_ptr<Open>& open, Stream& stream);
  bool Ask(const client::CallContext& caller, const std::shared_ptr<Open>& open, Stream& stream,
           const InodeTable::Standing& standing, std::uint32_t bytes);
  void Came(const std::shared_ptr<Open>& open, const std::shared_ptr<Piece>& piece,
            const Result<client::ReadDone>& done);
  void Renew(const client::CallContext& caller, const std::shared_ptr<Open>& open, Stream& stream);
  void DropUntrue(Stream& stream, NodeId node);
  void DropPassed(Stream& stream);
  void Drop(Stream& stream, std::size_t index);
  void End(Streams::iterator stream);

  Filesystem& filesystem_;
  client::Lane& lane_;
  BufferTurns& turns_;
  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;  // of all pieces, also of those that nobody wants any more
  TimePoint rests_until_{};
  Streams streams_;
};

}  // namespace rdfs::fs::fuse
