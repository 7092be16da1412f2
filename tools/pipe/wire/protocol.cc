#include "tools/pipe/wire/protocol.h"

#include <algorithm>

#include "transport/base/printable.h"
#include "transport/session/messages.h"

namespace rdfs::pipe {
namespace {

constexpr std::array<char, 4> kMagic = {'R', 'D', 'P', 'S'};

Status Malformed(const char* what) {
  return {Code::kProtocolError, std::string("the peer sent a malformed ") + what};
}

Le8 TypeByte(MessageType type) { return static_cast<std::uint8_t>(type); }

std::string VersionText(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

Bytes Hello::Encode() const {
  std::uint32_t flags = 0;
  if (size_known) flags |= kSizeKnown;
  if (sealed) flags |= kSealed;
  if (seekable) flags |= kSeekable;
  if (!forward.empty()) flags |= kForward;
  Bytes out = ToBytes(HelloWire{kMagic, kMajor, kMinor, flags, 0, size});
  if (forward.empty()) return out;
  const std::size_t head = out.size();
  out.resize(head + 2 + forward.size() * (2 + kMaxHopName));
  ByteWriter writer(MutableByteSpan(out).subspan(head));
  writer.Write(Le16(static_cast<std::uint16_t>(forward.size())));
  for (const std::string& name : forward) writer.WriteSized16(AsBytes(name));
  out.resize(head + writer.size());
  return out;
}

namespace {

// What follows a hello's struct.
bool ReadForward(ByteReader& reader, bool any, std::vector<std::string>& out) {
  const std::size_t count = any ? std::size_t{reader.Read<Le16>()} : 0;
  if (!reader.ok() || count > kMaxHops || (any && count == 0)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(AsText(reader.ReadSized16(kMaxHopName)));
    if (!reader.ok() || !transport::HostAndPort::Parse(out.back(), 1).ok()) return false;
  }
  return reader.remaining() == 0;
}

}  // namespace

Result<Hello> Hello::Decode(ByteSpan bytes) {
  ByteReader reader(bytes);
  const auto wire = reader.Read<HelloWire>();
  if (!reader.ok() || wire.magic != kMagic) return Malformed("hello: it is not rdsend");
  if (wire.major != kMajor) {
    return Status(Code::kVersionMismatch, "rdsend speaks pipe protocol " +
                                              VersionText(wire.major, wire.minor) + ", rdrecv " +
                                              VersionText(kMajor, kMinor) +
                                              ": install the same release at both ends");
  }
  const std::uint32_t flags = wire.flags;
  if ((flags & ~(kSizeKnown | kSealed | kSeekable | kForward)) != 0) {
    return Status(Code::kUnsupported,
                  "rdsend uses a feature that this rdrecv does not have: install the same release "
                  "at both ends");
  }
  Hello hello;
  hello.size_known = (flags & kSizeKnown) != 0;
  hello.sealed = (flags & kSealed) != 0;
  hello.seekable = (flags & kSeekable) != 0;
  hello.size = wire.size;
  if (!ReadForward(reader, (flags & kForward) != 0, hello.forward)) return Malformed("hello");
  return hello;
}

Bytes Welcome::Encode() const {
  WelcomeWire wire{};
  wire.type = TypeByte(MessageType::kWelcome);
  wire.slot_bytes = slot_bytes;
  wire.slots = slots;
  wire.block_count = static_cast<std::uint32_t>(blocks.size());
  wire.block_bytes = block_bytes;
  wire.have_bytes = have_bytes;
  wire.ring = transport::RemoteRegionWire::From(ring);
  Bytes out = ToBytes(wire);
  for (const Digest& digest : blocks) out.insert(out.end(), digest.begin(), digest.end());
  return out;
}

Result<Welcome> Welcome::Decode(ByteSpan message) {
  ByteReader reader(message);
  const auto wire = reader.Read<WelcomeWire>();
  const std::uint32_t count = wire.block_count;
  if (!reader.ok() || count > kMaxBlocks || reader.remaining() != count * sizeof(Digest)) {
    return Malformed("welcome");
  }
  Welcome out;
  out.ring = wire.ring.ToRegion();
  out.slot_bytes = wire.slot_bytes;
  out.slots = wire.slots;
  out.block_bytes = wire.block_bytes;
  out.have_bytes = wire.have_bytes;
  const bool ring_fits = out.slot_bytes >= kMinSlotBytes && out.slot_bytes <= kMaxSlotBytes &&
                         out.slots >= 1 && out.slots <= kMaxSlots &&
                         out.ring.length / out.slot_bytes >= out.slots;
  // count blocks, the last of them not empty; no product that could overflow.
  const bool blocks_fit = count == 0 ? out.have_bytes == 0
                                     : out.block_bytes > 0 &&
                                           (out.have_bytes - 1) / out.block_bytes == count - 1 &&
                                           out.have_bytes > 0;
  // Large ones only where there would be too many: what the peer makes us read at once.
  const bool small_enough = out.block_bytes <= kLeastBlockBytes || count > kMaxBlocks / 2;
  if (!ring_fits || !blocks_fit || !small_enough) return Malformed("welcome");
  out.blocks.resize(count);
  for (Digest& digest : out.blocks) {
    const ByteSpan bytes = reader.ReadBytes(digest.size());
    std::ranges::copy(bytes, digest.begin());
  }
  return out;
}

std::optional<MessageType> TypeOf(ByteSpan message) {
  if (message.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(message.front());
  if (type < 1 || type > static_cast<std::uint8_t>(MessageType::kReport)) return std::nullopt;
  return static_cast<MessageType>(type);
}

Bytes EncodeNumber(MessageType type, std::uint64_t number) {
  return ToBytes(NumberWire{TypeByte(type), {}, number});
}

Result<std::uint64_t> DecodeNumber(ByteSpan message) {
  NumberWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("message of one number");
  return std::uint64_t{wire.number};
}

Result<RecordWire> DecodeRecord(ByteSpan message, std::uint32_t slot_bytes) {
  RecordWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("record");
  const bool compressed = wire.flags == RecordWire::kCompressed;
  if (wire.flags != 0 && !compressed) return Malformed("record: unknown flags");
  if (wire.length == 0 || wire.offset > std::uint64_t{1} << 62 ||
      wire.length > std::uint64_t{1} << 62) {
    return Malformed("record: a length or offset that no stream has");
  }
  switch (static_cast<RecordKind>(std::uint8_t{wire.kind})) {
    case RecordKind::kHole:
      if (wire.wire_bytes != 0 || compressed) return Malformed("hole");
      return wire;
    case RecordKind::kBytes:
      if (wire.length > slot_bytes || wire.wire_bytes == 0) return Malformed("record");
      if (compressed ? wire.wire_bytes >= wire.length : wire.wire_bytes != wire.length) {
        return Malformed("record: its lengths disagree");
      }
      return wire;
  }
  return Malformed("record: an unknown kind");
}

Result<EndWire> DecodeEnd(ByteSpan message) {
  EndWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("end");
  return wire;
}

Bytes EncodeAbort(const Status& why) {
  Bytes out(4 + 2 + kMaxSentence);
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kAbort));
  writer.Write(Le8(0));
  writer.Write(Le16(static_cast<std::uint16_t>(why.code())));
  writer.WriteSized16(AsBytes(std::string_view(why.message()).substr(0, kMaxSentence)));
  out.resize(writer.size());
  return out;
}

Status DecodeAbort(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const std::uint16_t code = reader.Read<Le16>();
  const ByteSpan sentence = reader.ReadSized16(kMaxSentence);
  if (!reader.ok() || reader.remaining() != 0) return Malformed("abort");
  return {transport::session::CodeOfPeer(code), Printable(AsText(sentence))};
}

Bytes EncodeReport(const FailedHop& hop) {
  Bytes out(4 + 2 + kMaxHopName + 2 + kMaxSentence);
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kReport));
  writer.Write(Le8(0));
  writer.Write(Le16(static_cast<std::uint16_t>(hop.why.code())));
  writer.WriteSized16(AsBytes(std::string_view(hop.name).substr(0, kMaxHopName)));
  writer.WriteSized16(AsBytes(std::string_view(hop.why.message()).substr(0, kMaxSentence)));
  out.resize(writer.size());
  return out;
}

Result<FailedHop> DecodeReport(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const std::uint16_t code = reader.Read<Le16>();
  const ByteSpan name = reader.ReadSized16(kMaxHopName);
  const ByteSpan sentence = reader.ReadSized16(kMaxSentence);
  if (!reader.ok() || reader.remaining() != 0) return Malformed("report");
  return FailedHop{Printable(AsText(name)),
                   Status(transport::session::CodeOfPeer(code), Printable(AsText(sentence)))};
}

Bytes EncodeBare(MessageType type) { return Bytes{static_cast<std::byte>(type)}; }

}  // namespace rdfs::pipe
