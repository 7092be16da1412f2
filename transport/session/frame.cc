#include "transport/session/frame.h"

#include <algorithm>

namespace rdfs::transport::session {

std::vector<std::byte> EncodeFrame(FrameType type, ByteSpan body) {
  const FrameHeader header{static_cast<std::uint32_t>(body.size()),
                           static_cast<std::uint16_t>(type), std::uint16_t{0}};
  std::vector<std::byte> out(sizeof(header) + body.size());
  std::memcpy(out.data(), &header, sizeof(header));
  std::ranges::copy(body, out.begin() + sizeof(header));
  return out;
}

MutableByteSpan FrameReader::Wanted() { return MutableByteSpan(buffer_).subspan(filled_); }

Result<bool> FrameReader::Filled(std::size_t count) {
  filled_ += count;
  if (filled_ < buffer_.size()) return false;
  if (buffer_.size() > sizeof(FrameHeader)) return true;
  const auto header = ByteReader(buffer_).Read<FrameHeader>();
  if (header.body_bytes > max_body_ || header.reserved != 0) {
    return Status(Code::kProtocolError,
                  "the peer does not speak rdfs: is this the right host and port?");
  }
  buffer_.resize(sizeof(FrameHeader) + header.body_bytes);
  return filled_ == buffer_.size();
}

Frame FrameReader::frame() const {
  const auto header = ByteReader(buffer_).Read<FrameHeader>();
  return {static_cast<FrameType>(std::uint16_t{header.type}),
          ByteSpan(buffer_).subspan(sizeof(FrameHeader))};
}

void FrameReader::Next() {
  buffer_.resize(sizeof(FrameHeader));
  filled_ = 0;
}

}  // namespace rdfs::transport::session
