// Frames of a vestibule: a length, a type, a body. The only thing that is parsed before the peer is
// authenticated.
//
// FrameReader is pure: it says where the next bytes go and never asks for more than the current
// frame lacks, so that the stream can be handed to a tcp connection behind any frame. Nothing is
// allocated beyond the bound it was made with. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::transport::session {

// Never reused. Handshake below 16, session from 16 on.
enum class FrameType : std::uint16_t {
  kClientHello = 1,
  kServerHello = 2,
  kClientConfirm = 3,
  kServerConfirm = 4,
  kRefused = 5,  // in answer to anything; the stream ends behind it
  kLaneHello = 8,
  kLaneAccepted = 9,
  kSessionOpen = 16,
  kSessionGrant = 17,
  kUseStream = 18,
  kStreamReady = 19,
};

struct FrameHeader {
  Le32 body_bytes;
  Le16 type;
  Le16 reserved;  // zero
};
static_assert(sizeof(FrameHeader) == 8);

// What is read from a peer that has proved nothing yet, and from one that has.
inline constexpr std::size_t kMaxHandshakeBody = 4096;
inline constexpr std::size_t kMaxSessionBody = 16 * 1024;

struct Frame {
  FrameType type{};
  ByteSpan body;
};

std::vector<std::byte> EncodeFrame(FrameType type, ByteSpan body);

class FrameReader {
 public:
  explicit FrameReader(std::size_t max_body) : max_body_(max_body) {}

  // Where the next bytes of the current frame go; empty when the frame is whole.
  MutableByteSpan Wanted();
  // The first `count` bytes of Wanted() have been filled. True when the frame is whole. Errors:
  // kProtocolError for a header that no correct peer sends.
  Result<bool> Filled(std::size_t count);
  // Whole frame: valid until Next().
  [[nodiscard]] Frame frame() const;
  // Header and body as they came, for the transcript.
  [[nodiscard]] ByteSpan raw() const { return {buffer_.data(), filled_}; }
  void Next();
  void set_max_body(std::size_t max_body) { max_body_ = max_body; }

 private:
  std::size_t max_body_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(sizeof(FrameHeader));
  std::size_t filled_ = 0;
};

}  // namespace rdfs::transport::session
