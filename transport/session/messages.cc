#include "transport/session/messages.h"

#include <algorithm>

#include "transport/base/printable.h"
#include "transport/session/frame.h"

namespace rdfs::transport::session {
namespace {

static_assert(ClientHello::kMaxSessionBytes == kMaxSessionBody);

VersionPrefix Prefix(Version version) { return {kMagic, version.major, version.minor}; }

Status Malformed(std::string_view what) {
  return {Code::kProtocolError, "the peer sent a malformed " + std::string(what)};
}

// Reads the part of a hello or refusal that all versions share.
Status ReadPrefix(ByteReader& reader, Version& out) {
  const auto prefix = reader.Read<VersionPrefix>();
  if (!reader.ok() || prefix.magic != kMagic) {
    return {Code::kProtocolError, "the peer does not speak rdfs: is this the right host and port?"};
  }
  out = {prefix.major, prefix.minor};
  if (out.major == kMajor) return Status::Ok();
  return {Code::kVersionMismatch, "this rdfs speaks protocol " + ToString(Version{}) +
                                      ", the peer " + ToString(out) +
                                      ": install the same release on both machines"};
}

// Encodes into a buffer that every message of this file fits in.
template <typename Fill>
std::vector<std::byte> Build(const Fill& fill) {
  std::vector<std::byte> buffer(kMaxSessionBody);
  ByteWriter writer(buffer);
  fill(writer);
  buffer.resize(writer.size());
  return buffer;
}

bool ValidKind(std::uint8_t value) {
  return value >= static_cast<std::uint8_t>(Kind::kTcp) &&
         value <= static_cast<std::uint8_t>(Kind::kVerbs);
}

struct OfferWire {
  std::uint8_t kind, available;
  Le16 port;
};
static_assert(sizeof(OfferWire) == 4);

constexpr unsigned kSameHostFlag = 1;
constexpr unsigned kEncryptLanesFlag = 2;

// As any name of a socket of ours, which stands in sentences for a person's terminal.
bool ValidName(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
}

Status ReadOffer(ByteReader& reader, std::vector<Offer>& offers) {
  const auto wire = reader.Read<OfferWire>();
  const std::string_view name = AsText(reader.ReadSized16(kMaxSocketName));
  const std::string reason = Printable(AsText(reader.ReadSized16(kMaxSentence)));
  if (!reader.ok() || wire.available > 1) return Malformed("offer of transports");
  if (!ValidKind(wire.kind)) return Status::Ok();  // a transport of a later minor version
  if (!ValidName(name)) return Malformed("offer of transports");
  offers.push_back(
      {static_cast<Kind>(wire.kind), wire.available == 1, wire.port, std::string(name), reason});
  return Status::Ok();
}

}  // namespace

Code CodeOfPeer(std::uint16_t number) {
  const auto code = static_cast<Code>(number);
  const bool known = number != 0 && number <= static_cast<std::uint16_t>(Code::kInternal) &&
                     CodeName(code) != "unknown";
  return known ? code : Code::kProtocolError;
}

std::string ToString(Version version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

std::string_view Clip(std::string_view sentence, std::size_t max) {
  return sentence.empty() ? "no reason given" : sentence.substr(0, max);
}

std::vector<std::byte> ClientHello::Encode() const {
  return Build([&](ByteWriter& writer) {
    writer.Write(ClientHelloWire{Prefix(version), required_features, optional_features,
                                 max_message_bytes, static_cast<std::uint8_t>(authentication),
                                 static_cast<std::uint8_t>(encryption_wish), std::uint16_t{0},
                                 nonce, share});
    writer.WriteSized16(AsBytes(key_name));
    writer.WriteSized16({});
  });
}

Status ClientHello::Decode(ByteSpan body, ClientHello& out) {
  ByteReader prefix_reader(body);
  RDFS_RETURN_IF_ERROR(ReadPrefix(prefix_reader, out.version));
  ByteReader reader(body);
  const auto wire = reader.Read<ClientHelloWire>();
  const ByteSpan name = reader.ReadSized16(kMaxKeyName);
  reader.ReadSized16(kMaxExtensions);  // of later minor versions: nothing that 1.0 must know
  if (!reader.ok() || wire.authentication > 1 || wire.encryption_wish > 2 ||
      wire.max_message_bytes < kMaxSessionBody) {
    return Malformed("client hello");
  }
  out.required_features = wire.required_features;
  out.optional_features = wire.optional_features;
  out.max_message_bytes = wire.max_message_bytes;
  out.authentication = static_cast<Authentication>(wire.authentication);
  out.encryption_wish = static_cast<EncryptionWish>(wire.encryption_wish);
  out.nonce = wire.nonce;
  out.share = wire.share;
  out.key_name = AsText(name);
  return Status::Ok();
}

std::vector<std::byte> ServerHello::Encode() const {
  return Build([&](ByteWriter& writer) {
    writer.Write(ServerHelloWire{
        Prefix(version), features, max_message_bytes, static_cast<std::uint8_t>(authentication),
        static_cast<std::uint8_t>(encryption), std::uint16_t{0}, nonce, share});
    writer.WriteSized16({});
  });
}

Status ServerHello::Decode(ByteSpan body, ServerHello& out) {
  ByteReader prefix_reader(body);
  RDFS_RETURN_IF_ERROR(ReadPrefix(prefix_reader, out.version));
  ByteReader reader(body);
  const auto wire = reader.Read<ServerHelloWire>();
  reader.ReadSized16(kMaxExtensions);
  if (!reader.ok() || wire.authentication > 1 || wire.encryption > 1 ||
      wire.max_message_bytes < kMaxSessionBody) {
    return Malformed("server hello");
  }
  out.features = wire.features;
  out.max_message_bytes = wire.max_message_bytes;
  out.authentication = static_cast<Authentication>(wire.authentication);
  out.encryption = static_cast<Encryption>(wire.encryption);
  out.nonce = wire.nonce;
  out.share = wire.share;
  return Status::Ok();
}

std::vector<std::byte> Refusal::Encode() const {
  return Build([&](ByteWriter& writer) {
    writer.Write(Prefix(version));
    writer.Write(Le16(static_cast<std::uint16_t>(why.code())));
    writer.WriteSized16(AsBytes(Clip(why.message(), kMaxSentence)));
  });
}

Status Refusal::Decode(ByteSpan body, Refusal& out) {
  ByteReader reader(body);
  const auto prefix = reader.Read<VersionPrefix>();
  const std::uint16_t code = reader.Read<Le16>();
  const std::string sentence = Printable(AsText(reader.ReadSized16(kMaxSentence)));
  if (!reader.ok() || prefix.magic != kMagic) return Malformed("refusal");
  out.version = {prefix.major, prefix.minor};
  out.why = {CodeOfPeer(code), sentence};
  return Status::Ok();
}

bool SameHost(const HostIdentity& a, const HostIdentity& b) {
  return a.boot_id != std::array<std::byte, 16>{} && a.netns_inode != 0 && a.boot_id == b.boot_id &&
         a.netns_device == b.netns_device && a.netns_inode == b.netns_inode;
}

std::vector<std::byte> SessionOpen::Encode() const {
  return Build([&](ByteWriter& writer) {
    writer.Write(host.boot_id);
    writer.Write(Le64(host.netns_device));
    writer.Write(Le64(host.netns_inode));
    writer.Write(Le32(uid));
    writer.Write(Le16(static_cast<std::uint16_t>(lane_wish)));
    writer.WriteSized16(AsBytes(service));
    writer.WriteSized16(request);
    writer.WriteSized16({});
  });
}

Status SessionOpen::Decode(ByteSpan body, SessionOpen& out) {
  ByteReader reader(body);
  HostIdentity host;
  host.boot_id = reader.Read<std::array<std::byte, 16>>();
  host.netns_device = reader.Read<Le64>();
  host.netns_inode = reader.Read<Le64>();
  const std::uint32_t uid = reader.Read<Le32>();
  const std::uint16_t lane_wish = reader.Read<Le16>();
  const ByteSpan service = reader.ReadSized16(kMaxService);
  const ByteSpan request = reader.ReadSized16(kMaxOpening);
  reader.ReadSized16(kMaxExtensions);
  if (!reader.ok() || lane_wish > 2) return Malformed("session request");
  out.host = host;
  out.uid = uid;
  out.lane_wish = static_cast<EncryptionWish>(lane_wish);
  out.service = AsText(service);
  out.request.assign(request.begin(), request.end());
  return Status::Ok();
}

std::vector<std::byte> SessionGrant::Encode() const {
  return Build([&](ByteWriter& writer) {
    writer.Write(Le64(session_id));
    writer.Write(Le64(server_epoch));
    writer.Write(Le16(static_cast<std::uint16_t>((same_host ? kSameHostFlag : 0U) |
                                                 (encrypt_lanes ? kEncryptLanesFlag : 0U))));
    writer.Write(Le16(static_cast<std::uint16_t>(offers.size())));
    for (const Offer& offer : offers) {
      writer.Write(OfferWire{static_cast<std::uint8_t>(offer.kind),
                             static_cast<std::uint8_t>(offer.available ? 1 : 0), offer.port});
      writer.WriteSized16(AsBytes(offer.name));
      writer.WriteSized16(AsBytes(offer.available ? "" : Clip(offer.reason, kMaxSentence)));
    }
    writer.WriteSized16(grant);
    writer.WriteSized16({});
  });
}

Status SessionGrant::Decode(ByteSpan body, SessionGrant& out) {
  ByteReader reader(body);
  SessionGrant grant;
  grant.session_id = reader.Read<Le64>();
  grant.server_epoch = reader.Read<Le64>();
  const std::uint16_t flags = reader.Read<Le16>();
  grant.same_host = (flags & kSameHostFlag) != 0;
  grant.encrypt_lanes = (flags & kEncryptLanesFlag) != 0;
  const std::uint16_t count = reader.Read<Le16>();
  if (!reader.ok() || count > kMaxOffers) return Malformed("session grant");
  for (std::uint16_t i = 0; i < count; ++i) {
    RDFS_RETURN_IF_ERROR(ReadOffer(reader, grant.offers));
  }
  const ByteSpan opening = reader.ReadSized16(kMaxOpening);
  reader.ReadSized16(kMaxExtensions);
  if (!reader.ok()) return Malformed("session grant");
  grant.grant.assign(opening.begin(), opening.end());
  out = std::move(grant);
  return Status::Ok();
}

}  // namespace rdfs::transport::session
