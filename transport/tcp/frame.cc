#include "transport/tcp/frame.h"

#include <cerrno>

namespace rdfs::transport::tcp {
namespace {

struct Bounds {
  std::uint32_t least, most;
};

// The lengths of a frame's body; least > most for an opcode that does not exist.
Bounds BodyBounds(std::uint8_t opcode) {
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kMessage:
      return {0, kMaxMessageBytes};
    case Opcode::kReadRequest:
      return {sizeof(ReadRequest), sizeof(ReadRequest)};
    case Opcode::kReadReply:
      return {0, kMaxTransferBytes};
    case Opcode::kWrite:
      return {sizeof(WriteHead), sizeof(WriteHead) + kMaxTransferBytes};
    case Opcode::kReadRefused:
    case Opcode::kWriteRefused:
      return {sizeof(Refusal), sizeof(Refusal)};
    case Opcode::kAcknowledge:
    case Opcode::kBye:
      return {0, 0};
  }
  return {1, 0};
}

}  // namespace

FrameHeader EncodeHeader(Opcode opcode, std::uint16_t acknowledged, std::size_t body_bytes) {
  return {.magic = kFrameMagic,
          .opcode = static_cast<std::uint8_t>(opcode),
          .acknowledged = acknowledged,
          .body_bytes = static_cast<std::uint32_t>(body_bytes)};
}

Result<DecodedHeader> DecodeHeader(const FrameHeader& header) {
  if (header.magic != kFrameMagic) {
    return Status(Code::kProtocolError, "the peer sent something that is not a frame");
  }
  const Bounds bounds = BodyBounds(header.opcode);
  if (bounds.least > bounds.most) {
    return Status(Code::kProtocolError, "the peer sent a frame of an unknown kind");
  }
  if (header.body_bytes < bounds.least || header.body_bytes > bounds.most) {
    return Status(Code::kProtocolError, "the peer sent a frame of an impossible length");
  }
  return DecodedHeader{.opcode = static_cast<Opcode>(std::uint8_t{header.opcode}),
                       .acknowledged = header.acknowledged,
                       .body_bytes = header.body_bytes};
}

Status RefusedStatus(std::uint16_t reason) {
  switch (static_cast<RefusalReason>(reason)) {
    case RefusalReason::kOutOfBounds:
      return {Code::kErrno, EACCES, "the range leaves the memory that the peer shares"};
    case RefusalReason::kWrongAccess:
      return {Code::kErrno, EACCES, "the peer does not share this memory for this access"};
    case RefusalReason::kNotShared:
      break;
  }
  return {Code::kErrno, EACCES, "the peer does not share this memory"};
}

}  // namespace rdfs::transport::tcp
