#include "transport/verbs/reassembler.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace rdfs::transport::verbs {
namespace {

Status Malformed(const char* how) {
  return {Code::kProtocolError, std::string("the peer sent a malformed message: ") + how};
}

}  // namespace

Result<std::optional<Reassembler::Message>> Reassembler::Add(const FrameHeader& header,
                                                             ByteSpan payload) {
  const std::size_t total = header.message_bytes;
  const bool begins = header.type == static_cast<std::uint8_t>(FrameType::kMessage);
  const bool under_way = gathered_ < total_;
  if (begins == under_way) {
    return Malformed(begins ? "it begins within another one" : "a piece without a beginning");
  }
  if (begins) {
    if (total > kMaxMessageBytes) return Malformed("it is too long");
    if (payload.size() == total) return std::optional<Message>({payload, true});
    total_ = total;
    gathered_ = 0;
    if (buffer_.size() < total) buffer_.resize(total);
  } else if (total != total_) {
    return Malformed("its length changed");
  }
  // Pieces are full but the last: so a message costs no more frames than it must, and none is
  // empty.
  const std::size_t expected = std::min(kMaxPayloadBytes, total_ - gathered_);
  if (payload.size() != expected) return Malformed("a piece has the wrong length");
  std::memcpy(buffer_.data() + gathered_, payload.data(), payload.size());
  gathered_ += payload.size();
  if (gathered_ < total_) return std::optional<Message>();
  return std::optional<Message>({ByteSpan(buffer_).first(total_), false});
}

}  // namespace rdfs::transport::verbs
