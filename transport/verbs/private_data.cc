#include "transport/verbs/private_data.h"

#include <algorithm>
#include <cstring>

#include "transport/base/printable.h"

namespace rdfs::transport::verbs {

ConnectData EncodeConnect(ByteSpan token) {
  ConnectData out;
  out.length = static_cast<std::uint8_t>(token.size());
  std::ranges::copy(token, out.token.begin());
  return out;
}

std::optional<ByteSpan> DecodeConnect(ByteSpan bytes) {
  ByteReader reader(bytes);
  const std::size_t length = reader.Read<std::uint8_t>();
  const ByteSpan token = reader.ReadBytes(length);
  if (!reader.ok() || length > kMaxTokenBytes) return std::nullopt;
  return token;
}

RejectData EncodeReject(const Status& why) {
  RejectData out;
  out.code = static_cast<std::uint8_t>(why.code());
  const std::size_t length = std::min(why.message().size(), out.message.size());
  out.length = static_cast<std::uint8_t>(length);
  std::memcpy(out.message.data(), why.message().data(), length);
  return out;
}

std::optional<Status> DecodeReject(ByteSpan bytes) {
  ByteReader reader(bytes);
  const std::uint16_t magic = reader.Read<Le16>();
  const Code code{reader.Read<std::uint8_t>()};
  const ByteSpan message = reader.ReadBytes(reader.Read<std::uint8_t>());
  if (!reader.ok() || magic != RejectData::kMagic) return std::nullopt;
  if (code == Code::kOk || CodeName(code) == "unknown") return std::nullopt;
  return Status(code, Printable(AsText(message)));
}

}  // namespace rdfs::transport::verbs
