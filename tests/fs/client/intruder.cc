#include "tests/fs/client/intruder.h"

#include <unistd.h>

#include <array>

#include "transport/base/random.h"

namespace rdfs::fs::client {

using std::chrono::seconds;
using transport::Completion;
using transport::Connection;

void PutSized16(Bytes& out, ByteSpan bytes) {
  Put(out, Le16(static_cast<std::uint16_t>(bytes.size())));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Bytes LookupBody(const Handle& parent, std::string_view name) {
  Bytes body;
  PutSized16(body, parent.bytes());
  PutSized16(body, AsBytes(name));
  return body;
}

Intruder::Intruder(const DialFunction& dial, std::string_view export_name, std::uint16_t* refused) {
  MountRequest mount{};
  mount.major = kProtocolMajor;
  FillRandom(mount.client_id);
  mount.uid = getuid();
  mount.gid = getgid();
  Bytes request;
  Put(request, mount);
  PutSized16(request, AsBytes(export_name));
  PutSized16(request, AsBytes("intruder"));
  auto session = dial(std::move(request), domain_, DeadlineAfter(seconds(10)));
  if (!session.ok()) {
    if (refused != nullptr) ++*refused;
    return;
  }
  session_ = *std::move(session);
  ByteReader reader(session_->grant());
  grant_ = reader.Read<MountGrant>();
  root_ = ReadEntry(reader).handle;
}

std::unique_ptr<Connection> Intruder::OpenLane() {
  auto lane = session_->OpenLane(DeadlineAfter(seconds(10)));
  why_ = lane.status();
  return lane.ok() ? *std::move(lane) : nullptr;
}

RequestHeader Intruder::Header(Opcode opcode, std::size_t body_bytes) {
  RequestHeader header{};
  header.opcode = static_cast<std::uint16_t>(opcode);
  header.body_bytes = static_cast<std::uint32_t>(body_bytes);
  header.session = grant_.session;
  header.sequence = ++sequence_;
  header.acknowledged = sequence_ > 512 ? sequence_ - 512 : 0;
  header.uid = getuid();
  header.gid = getgid();
  return header;
}

Status Intruder::Send(Connection& lane, const RequestHeader& header, const Bytes& body) {
  Bytes message;
  Put(message, header);
  message.insert(message.end(), body.begin(), body.end());
  return lane.Send(message);
}
Status Intruder::Send(Connection& lane, Opcode opcode, const Bytes& body) {
  return Send(lane, Header(opcode, body.size()), body);
}

std::optional<Bytes> Intruder::Ask(Connection& lane, Opcode opcode, const Bytes& body,
                                   const std::function<void(ByteSpan)>& unasked) {
  if (!Send(lane, opcode, body).ok() || !lane.Flush().ok()) return std::nullopt;
  while (true) {
    std::array<Completion, 1> out;
    const auto count = lane.Wait(out, DeadlineAfter(seconds(10)));
    if (!count.ok() || *count == 0) return std::nullopt;
    if (out[0].kind != Completion::Kind::kMessage) continue;
    const auto header = ByteReader(out[0].message).Read<ReplyHeader>();
    if (header.sequence == sequence_) return Bytes(out[0].message.begin(), out[0].message.end());
    if (header.sequence == 0 && unasked) unasked(out[0].message);
  }
}

}  // namespace rdfs::fs::client
