// What two carriers say to each other over a lane: PROTOCOL.md, "Between hosts". Each message of
// the lane holds one or more records, in order; the records of one connection keep it.
//
//    0      2      4            8
//    +------+------+------------+-----------------
//    | type | zero | connection | body, by its type
//    +------+------+------------+-----------------
//
// Integers are little-endian. A peer is hostile: decoding checks types, zeros and lengths; whether
// a record may come now is relay.h's and lane.h's matter. Values; no I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "tools/sock/peer_socket.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::sock::far {

// The service of a session between carriers, and its request: this version (4).
inline constexpr std::string_view kService = "sock";
inline constexpr std::uint32_t kWireVersion = 3;
// Of one message of the lane, as we send them.
inline constexpr std::size_t kMostMessageBytes = 4096;
// Of the ring's bytes in one record.
inline constexpr std::size_t kMostInRecord = 1024;

enum class Type : std::uint16_t {
  // Of the lane; the connection is 0.
  kBeat = 1,
  kAsk = 2,
  // Opening a connection: by the carrier that leads it.
  kOpen = 3,
  kOpened = 4,
  kRefused = 5,
  // From the side of a direction's sender.
  kPhase = 16,
  kCursor = 17,
  kShut = 18,
  kFlushed = 19,
  kReturned = 20,
  kBytes = 21,
  // From the side of a direction's receiver.
  kConsumed = 24,
  kPassed = 25,
  kQuiet = 26,
  kWish = 27,
  kFollow = 28,
  kFlush = 29,
  kAbandoned = 30,
  // From either, once; nothing comes behind it.
  kGone = 32,
};

// One of the types from kPhase on. `value` is Phase's position, a cursor, a phase's number, how
// many Bytes there are, or 1 in a Gone that says that the connection could not be kept;
// `ring_bytes` is Phase's.
struct Word {
  Type type{};
  std::uint64_t value = 0;
  std::uint32_t ring_bytes = 0;
  bool operator==(const Word&) const = default;
};

// Of a ring, the next ones: as a WRITE and a Cursor, in one message. At least 1, at most
// kMostInRecord. Two pieces where the ring ends between them; of a decoded record the first one has
// all, in the message.
struct Bytes {
  std::array<ByteSpan, 2> pieces;
};

struct Beat {};
// An end of the sender's host has come: `places.here` is its own. Flags as in ask.h.
struct Wanted {
  TcpPlaces places;
  std::uint32_t flags = 0;
  std::uint32_t largest_ring = 0;  // that there is room for on the sender's host
};
struct Open {
  TcpPlaces places;
  std::uint32_t flags = 0;
  std::uint32_t largest_ring = 0;
  transport::RemoteRegion ring;  // where the connection's bytes to the sender are to be written
};
struct Opened {
  transport::RemoteRegion ring;
};
struct Refused {
  std::uint32_t reason = 0;  // ask.h's
};

struct Record {
  std::uint32_t connection = 0;
  std::variant<Word, Bytes, Beat, Wanted, Open, Opened, Refused> body;
};

// Appends; false, with nothing appended, when it does not fit.
bool Append(const Record& record, ByteWriter& out);

// The next record. Errors: kProtocolError.
Result<Record> DecodeRecord(ByteReader& in);

}  // namespace rdfs::sock::far
