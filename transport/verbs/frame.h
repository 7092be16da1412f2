// The frames of the verbs transport: what one SEND carries. The golden bytes are in
// tests/transport/verbs/frame_test.cc.
//
// Each SEND is one frame: this header and up to kMaxPayloadBytes behind it, in one receive buffer
// of kFrameBytes of the peer's. A frame has no length of its own, the completion tells it
// (ibv_wc::byte_len). A message that does not fit is cut into a kMessage and as many
// kContinuations as it takes, each full but the last.
//
//   active                                passive
//     |-- connect (token) ----------------->|     private data, see private_data.h
//     |<------------------------- accept ---|
//     |-- kOpening ------------------------>|     iWARP: the active side sends first
//     |<------------------------ kOpening --|
//     |<-- kMessage, kContinuation, kCredits -->|
//     |-- kBye ---------------------------->|     whoever ends the connection
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/bytes.h"
#include "transport/transport.h"

namespace rdfs::transport::verbs {

// A page: receive buffers are pinned for as long as a connection lasts, so they are small, and
// everything larger than a few kilobytes is better moved by READ and WRITE anyway.
inline constexpr std::size_t kFrameBytes = 4096;

enum class FrameType : std::uint8_t {
  kOpening = 1,       // the first frame of each side: an Opening
  kMessage = 2,       // a message, or the first piece of one
  kContinuation = 3,  // the next piece of the message that was begun
  kCredits = 4,       // nothing but the header's credits
  kBye = 5,           // the sender ends the connection in order; nothing follows
};

// Reserved: the payload is sealed (AEAD). Version 1 knows no flags; a frame with one is refused.
inline constexpr std::uint8_t kSealedFlag = 0x80;

struct FrameHeader {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  // Receive buffers that the sender has posted again since its last frame.
  Le16 credits = 0;
  // kMessage and kContinuation: of the whole message; else 0.
  Le32 message_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 8 && alignof(FrameHeader) == 1);

inline constexpr std::size_t kMaxPayloadBytes = kFrameBytes - sizeof(FrameHeader);

// "rdfv", little-endian.
inline constexpr std::uint32_t kOpeningMagic = 0x76666472;
inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 0;

struct Opening {
  Le32 magic = kOpeningMagic;
  Le16 version_major = kVersionMajor;
  Le16 version_minor = kVersionMinor;
  Le32 frame_bytes = kFrameBytes;  // the size of each of the sender's receive buffers
  // The sender's receive buffers. kOpeningCredits of them may be used from the start; the header's
  // credits grant the others.
  Le16 receive_slots = 0;
  Le16 features = 0;
};
static_assert(sizeof(Opening) == 16 && alignof(Opening) == 1);

// Frames that each side may send before it has seen the peer's opening: its own opening and a first
// few messages, so that connecting costs no second round trip.
inline constexpr std::uint16_t kOpeningCredits = 8;

// How many frames a message of `bytes` takes.
constexpr std::size_t FramesOf(std::size_t bytes) {
  return bytes == 0 ? 1 : (bytes + kMaxPayloadBytes - 1) / kMaxPayloadBytes;
}

}  // namespace rdfs::transport::verbs
