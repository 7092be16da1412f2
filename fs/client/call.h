// Call: what a lane keeps of one call besides its place in the request table. A slab of these,
// reused; no allocation for a call unless its request is longer than kInlineBodyBytes (symlink
// targets, xattr values).
#pragma once

#include <array>
#include <vector>

#include "fs/client/client.h"
#include "fs/client/grant_cache.h"
#include "fs/client/request_table.h"

namespace rdfs::fs::client {

// How a call ended: what its completion decodes.
struct Answer {
  Status status;                // not ok: nothing else counts
  ByteReader body{ByteSpan()};  // of the reply
  ByteSpan request;             // its body, until a callback runs
  TimePoint asked{};            // when the request was sent
  ReadDone read{};
  WriteDone write{};
};
// Runs the user's callback; false when the body was not what the opcode says.
using Completion = InlineFunction<bool(Answer&), kCallbackBytes + 64>;

// The encoded body of a request, kept until it has been answered.
class Body {
 public:
  static constexpr std::size_t kInlineBodyBytes = 704;  // a rename with two long names fits

  // `encode(ByteWriter&)`; at most `most` bytes.
  template <typename F>
  void Encode(F&& encode, std::size_t most = kInlineBodyBytes) {
    if (most > kInlineBodyBytes) large_.resize(most);
    ByteWriter writer(most > kInlineBodyBytes ? MutableByteSpan(large_) : MutableByteSpan(small_));
    encode(writer);
    size_ = writer.size();
    is_large_ = most > kInlineBodyBytes;
  }
  [[nodiscard]] MutableByteSpan bytes() {
    return (is_large_ ? MutableByteSpan(large_) : MutableByteSpan(small_)).first(size_);
  }
  void Clear() {
    large_ = {};
    is_large_ = false;
    size_ = 0;
  }

 private:
  std::array<std::byte, kInlineBodyBytes> small_;
  std::vector<std::byte> large_;
  std::size_t size_ = 0;
  bool is_large_ = false;
};

// The extents that one round of a read takes, and where their generation words arrive.
struct ReadRound {
  static constexpr std::size_t kMaxPieces = kMaxGrantsPerReply;
  std::uint32_t index = 0;  // its place in the lane's control region
  std::size_t count = 0;
  std::uint32_t length = 0;  // bytes of the file in this round
  bool ends_file = false;
  bool refused = false;  // a READ failed
  std::array<GrantPiece, kMaxPieces> pieces;
};

struct ReadState {
  std::uint64_t offset = 0;
  transport::LocalSlice into;
  std::uint32_t want_ahead = 0;
  std::uint32_t done = 0;
  bool no_grants = false;
  std::uint64_t own_changes = 0;  // of the inode, when the request was made
  std::uint64_t file_size = 0;
  ReadRound* round = nullptr;
  [[nodiscard]] std::uint32_t left() const {
    return static_cast<std::uint32_t>(into.length) - done;
  }
  [[nodiscard]] std::uint64_t position() const { return offset + done; }
};

inline constexpr std::uint32_t kNoStaging = 0xffffffff;
struct WriteState {
  std::uint64_t offset = 0;
  transport::LocalSlice from;
  std::uint32_t flags = 0;
  std::uint32_t done = 0;
  std::uint32_t chunk = 0;             // bytes of the request under way
  std::uint32_t staging = kNoStaging;  // a slot of this connection
  bool staged = false;     // the bytes are in it, or on their way there: the commit may go
  bool inquiring = false;  // the commit only asks what became of it: kNothingStaged
  bool answered = false;   // the server has; the device may still hold the bytes
  Status failure{};
  WriteDone result{};  // offset: of the first chunk
  [[nodiscard]] std::uint32_t left() const {
    return static_cast<std::uint32_t>(from.length) - done;
  }
};

struct Call {
  enum class Kind : std::uint8_t { kPlain, kRead, kWrite };
  Kind kind = Kind::kPlain;
  Opcode opcode{};
  bool cancelled = false;
  bool waiting = false;      // stands in a waiting list of the lane
  bool reclaiming = false;   // goes on when its open file is known again
  bool comes_back = false;   // kRequestComesBack
  bool caller_gone = false;  // goes on without its caller: see LaneImpl::LetCallerGo
  bool late = false;         // waits for its memory only: see LaneImpl::WaitForMemory
  std::uint8_t late_turns = 0;
  std::uint64_t lock = 0;     // HeldLocks::Ask of a lock that is asked for
  std::uint64_t undoes = 0;   // that of the lock that this one undoes
  std::uint8_t reclaims = 0;  // how often the server did not know its open file
  CallContext context;
  TimePoint begun{};
  TimePoint asked{};            // when its request was sent for the first time
  OpenPtr open, other_open;     // their numbers stand at the body's offsets 0 and 16
  std::uint64_t sent_open = 0;  // the number that the request went out with
  Body body;
  std::uint32_t payload_bytes = 0;  // of write.from, behind the body
  Completion completion;
  ReadState read;
  WriteState write;
};

}  // namespace rdfs::fs::client
