// The wire format of the tcp transport: frames on a byte stream.
//
//   header (8 bytes) | body (header.body_bytes bytes)
//
// Every frame, whatever it is for, also acknowledges WRITEs of its receiver. READs and WRITEs have
// no numbers: both ends carry them out in the order of arrival, so the n-th answer is for the n-th
// request. A peer is hostile: DecodeHeader bounds every length before anything is read or
// allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::transport::tcp {

using Le8 = Le<std::uint8_t>;

inline constexpr std::uint8_t kFrameMagic = 0xD5;

// READs and WRITEs that may be unanswered in each direction. Fixed: what exceeds it is no peer of
// ours.
inline constexpr std::size_t kMaxOutstanding = 256;
inline constexpr std::uint32_t kMaxTransferBytes = 1U << 30U;

// Never reused.
enum class Opcode : std::uint8_t {
  kMessage = 1,       // the message
  kReadRequest = 2,   // ReadRequest
  kReadReply = 3,     // the bytes; answers the oldest unanswered READ
  kReadRefused = 4,   // Refusal; answers the oldest unanswered READ
  kWrite = 5,         // WriteHead, then the bytes
  kAcknowledge = 6,   // nothing: the header says it all
  kWriteRefused = 7,  // Refusal; of the WRITE that follows the acknowledged ones
  kBye = 8,           // nothing; the sender has ended the connection
};

struct FrameHeader {
  Le8 magic;
  Le8 opcode;
  Le16 acknowledged;  // so many more of the receiver's WRITEs are in memory
  Le32 body_bytes;
};
static_assert(sizeof(FrameHeader) == 8 && alignof(FrameHeader) == 1);

// `position` is RemoteRegion::address plus the offset: the place in the memory that `key` names.
struct ReadRequest {
  Le64 key;
  Le64 position;
  Le32 length;
  Le32 reserved;  // zero
};
static_assert(sizeof(ReadRequest) == 24 && alignof(ReadRequest) == 1);

struct WriteHead {
  Le64 key;
  Le64 position;
};
static_assert(sizeof(WriteHead) == 16 && alignof(WriteHead) == 1);

// Never reused. What a receiver does not know is taken for kNotShared.
enum class RefusalReason : std::uint16_t {
  kNotShared = 1,    // no memory of that key is shared (any more)
  kOutOfBounds = 2,  // the range leaves it
  kWrongAccess = 3,  // a READ of what may only be written, or the reverse
};

struct Refusal {
  Le16 reason;
};
static_assert(sizeof(Refusal) == 2);

FrameHeader EncodeHeader(Opcode opcode, std::uint16_t acknowledged, std::size_t body_bytes);

struct DecodedHeader {
  Opcode opcode;
  std::uint16_t acknowledged;
  std::uint32_t body_bytes;
};

// kProtocolError unless magic, opcode and length are what a correct peer sends.
Result<DecodedHeader> DecodeHeader(const FrameHeader& header);

// What the initiator's completion says: scope request, EACCES.
Status RefusedStatus(std::uint16_t reason);

}  // namespace rdfs::transport::tcp
