// What rdsend and rdrecv say to each other, over one lane of a session with the service "pipe".
// PROTOCOL.md draws it; tests/tools/pipe/wire/protocol_test.cc holds the bytes.
//
// The hello is the session's opening request; everything else are messages of the lane, told apart
// by their first byte. The bytes of a record travel by WRITE into the receiver's ring, its message
// behind them. All integers little-endian, nothing padded. A peer is hostile: decoding checks every
// length and leaves its output alone on failure. Values and pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::pipe {

inline constexpr std::string_view kServiceName = "pipe";
// Peers of one major version understand each other.
inline constexpr std::uint16_t kMajor = 1;
inline constexpr std::uint16_t kMinor = 0;

using Bytes = std::vector<std::byte>;
using Le8 = Le<std::uint8_t>;
using Digest = std::array<std::byte, 16>;   // XXH3-128, canonical (big-endian) form
using SealTag = std::array<std::byte, 16>;  // of AES-256-GCM; zero where nothing is sealed

// The ring is bounded so that a peer cannot make us allocate, and so that sequence arithmetic and
// the transports' outstanding limits are far away.
inline constexpr std::uint32_t kMinSlotBytes = 4096;
inline constexpr std::uint32_t kMaxSlotBytes = 16 << 20;
inline constexpr std::uint32_t kMaxSlots = 64;
// Digests of what a receiver has already: they fit into one message. Blocks are the least, doubled
// until there are few enough.
inline constexpr std::uint32_t kMaxBlocks = 4096;
inline constexpr std::uint64_t kLeastBlockBytes = 1 << 20;
inline constexpr std::size_t kMaxSentence = 512;
// Receivers that one behind the other get the same stream; their names fit into a hello.
inline constexpr std::size_t kMaxHops = 32;
inline constexpr std::size_t kMaxHopName = 300;
inline constexpr std::size_t kMaxHopsBytes = 3800;

enum class MessageType : std::uint8_t {  // never reused
  kWelcome = 1,
  kBegin = 2,
  kRecord = 3,
  kEnd = 4,
  kCredit = 5,
  kStored = 6,
  kAbort = 7,
  kPing = 8,
  kFarewell = 9,
  kReport = 10,
};

struct HelloWire {
  std::array<char, 4> magic;  // "RDPS"
  Le16 major, minor;
  Le32 flags;
  Le32 reserved;
  Le64 size;
};
static_assert(sizeof(HelloWire) == 24 && alignof(HelloWire) == 1);

// The sender's opening words.
struct Hello {
  static constexpr std::uint32_t kSizeKnown = 1, kSealed = 2, kSeekable = 4, kForward = 8;
  bool size_known = false;  // `size` is what will come, unless the source changes
  bool sealed = false;      // every record is encrypted and bound to its place
  bool seekable = false;    // the sender can begin anywhere: a receiver may resume
  std::uint64_t size = 0;
  // Who is to get the stream from the receiver, each from the one before: HOST:PORT.
  std::vector<std::string> forward{};

  [[nodiscard]] Bytes Encode() const;
  // Errors: kVersionMismatch, kProtocolError. Unknown flags are refused: each changes what comes.
  static Result<Hello> Decode(ByteSpan bytes);
};

// The receiver is ready: its ring, and what it has of an interrupted stream.
struct Welcome {
  transport::RemoteRegion ring;
  std::uint32_t slot_bytes = 0;
  std::uint32_t slots = 0;
  // The digest of each whole block of what it has, from the start; the last may be shorter.
  std::uint64_t block_bytes = 0;
  std::uint64_t have_bytes = 0;
  std::vector<Digest> blocks;

  [[nodiscard]] Bytes Encode() const;
  static Result<Welcome> Decode(ByteSpan message);
};

struct WelcomeWire {
  Le8 type;
  std::array<Le8, 3> zero;
  Le32 slot_bytes, slots, block_count;
  Le64 block_bytes, have_bytes;
  transport::RemoteRegionWire ring;
  // block_count digests
};
static_assert(sizeof(WelcomeWire) == 56 && alignof(WelcomeWire) == 1);

// A message of one number: kBegin (the offset where the stream goes on), kCredit (records stored).
struct NumberWire {
  Le8 type;
  std::array<Le8, 7> zero;
  Le64 number;
};
static_assert(sizeof(NumberWire) == 16);

enum class RecordKind : std::uint8_t { kBytes = 1, kHole = 2 };

// A piece of the stream. Records are numbered from 0; record n uses slot n modulo slots, holes too,
// so that one counter is sequence, credit and nonce.
struct RecordWire {
  static constexpr std::uint8_t kCompressed = 1;  // the slot holds one zstd frame
  Le8 type;
  Le8 kind;
  Le8 flags;
  Le8 zero;
  Le32 wire_bytes;  // in the slot; 0 for a hole
  Le64 sequence;
  Le64 offset;
  Le64 length;    // of the stream's bytes
  Digest digest;  // of the stream's bytes; zero for a hole
  SealTag tag;
};
static_assert(sizeof(RecordWire) == 64 && alignof(RecordWire) == 1);

// kEnd (from the sender, number = records) and kStored (from the receiver, number = reports).
struct EndWire {
  Le8 type;
  std::array<Le8, 7> zero;
  Le64 number;
  Le64 length;    // of the whole stream
  Digest digest;  // StreamDigest over everything
  SealTag tag;
};
static_assert(sizeof(EndWire) == 56 && alignof(EndWire) == 1);

// What is sealed besides the bytes: all of the struct before its tag.
template <typename Wire>
ByteSpan BoundPart(const Wire& wire) {
  return std::as_bytes(std::span<const Wire, 1>(&wire, 1)).first(sizeof(Wire) - sizeof(SealTag));
}
template <WireStruct Wire>
Bytes ToBytes(const Wire& wire) {
  const auto bytes = std::as_bytes(std::span<const Wire, 1>(&wire, 1));
  return {bytes.begin(), bytes.end()};
}

// All of a message of fixed size.
template <WireStruct Wire>
bool ReadWhole(ByteSpan message, Wire& out) {
  ByteReader reader(message);
  out = reader.Read<Wire>();
  return reader.ok() && reader.remaining() == 0;
}

// The first byte; nullopt for an empty message or an unknown type.
std::optional<MessageType> TypeOf(ByteSpan message);

Bytes EncodeNumber(MessageType type, std::uint64_t number);
Result<std::uint64_t> DecodeNumber(ByteSpan message);
// Bounded by what a ring can hold: kind, flags and lengths make sense together.
Result<RecordWire> DecodeRecord(ByteSpan message, std::uint32_t slot_bytes);
Result<EndWire> DecodeEnd(ByteSpan message);

// One of our numbered codes and a sentence; never a host's errno.
Bytes EncodeAbort(const Status& why);
// What the peer says went wrong, made safe for a terminal; kProtocolError for a malformed one.
Status DecodeAbort(ByteSpan message);
Bytes EncodeBare(MessageType type);  // kPing, kFarewell

// A receiver that has not got the stream whole, and why. From the receiver, before kStored, which
// counts them.
struct FailedHop {
  std::string name;  // as in Hello::forward; empty: the receiver that says so
  Status why;
};
Bytes EncodeReport(const FailedHop& hop);
Result<FailedHop> DecodeReport(ByteSpan message);

}  // namespace rdfs::pipe
