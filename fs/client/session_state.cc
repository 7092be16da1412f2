#include "fs/client/session_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "fs/client/decode.h"
#include "transport/base/random.h"

namespace rdfs::fs::client {

using std::chrono::milliseconds;

std::chrono::milliseconds Backoff::Next() {
  if (failures_++ == 0) return milliseconds(0);
  constexpr unsigned kMostDoublings = 6;
  const std::uint64_t base =
      std::min<std::uint64_t>(2000, 50ULL << std::min(failures_ - 2, kMostDoublings));
  // xorshift64 (Marsaglia 2003): spread, not secrecy.
  jitter_ ^= jitter_ << 13U;
  jitter_ ^= jitter_ >> 7U;
  jitter_ ^= jitter_ << 17U;
  return milliseconds(base + jitter_ % (base / 4 + 1));
}

Heartbeat::Heartbeat(milliseconds session_lease, milliseconds call_timeout)
    : interval_(std::clamp<std::chrono::nanoseconds>(session_lease / 3, milliseconds(100),
                                                     std::chrono::seconds(10))) {
  if (call_timeout.count() == 0) return;
  interval_ = std::min<std::chrono::nanoseconds>(
      interval_, std::max<milliseconds>(call_timeout / 3, std::chrono::seconds(1)));
}

void Heartbeat::OnReceived(TimePoint now) {
  last_word_ = now;
  asked_.reset();
}

Heartbeat::Action Heartbeat::Check(TimePoint now) {
  if (asked_) return now >= *asked_ + interval_ ? Action::kDead : Action::kNone;
  if (now < last_word_ + interval_) return Action::kNone;
  asked_ = now;
  return Action::kAsk;
}

TimePoint Heartbeat::NextCheck() const { return (asked_ ? *asked_ : last_word_) + interval_; }

SessionState SessionState::Create(std::string export_name, std::string host_name, std::uint32_t uid,
                                  std::uint32_t gid, std::uint32_t flags) {
  std::array<std::byte, 16> client_id{};
  FillRandom(client_id);
  return {client_id, std::move(export_name), std::move(host_name), uid, gid, flags};
}

SessionState::SessionState(std::array<std::byte, 16> client_id, std::string export_name,
                           std::string host_name, std::uint32_t uid, std::uint32_t gid,
                           std::uint32_t flags)
    : client_id_(client_id),
      export_name_(std::move(export_name)),
      host_name_(std::move(host_name)),
      uid_(uid),
      gid_(gid),
      flags_(flags) {}

std::vector<std::byte> SessionState::Request() const {
  std::vector<std::byte> bytes(sizeof(MountRequest) + 2 * (sizeof(Le16) + kMaxExportNameBytes));
  ByteWriter writer(bytes);
  writer.Write(MountRequest{.major = kProtocolMajor,
                            .minor = kProtocolMinor,
                            .client_id = client_id_,
                            .last_epoch = last_epoch_,
                            .uid = uid_,
                            .gid = gid_,
                            .flags = flags_});
  writer.WriteSized16(AsBytes(std::string_view(export_name_).substr(0, kMaxExportNameBytes)));
  writer.WriteSized16(AsBytes(std::string_view(host_name_).substr(0, kMaxExportNameBytes)));
  bytes.resize(writer.size());
  return bytes;
}

Result<Admission> SessionState::OnGrant(ByteSpan bytes, TimePoint asked) {
  ByteReader reader(bytes);
  Admission admission;
  admission.grant = reader.Read<MountGrant>();
  const MountGrant& grant = admission.grant;
  if (reader.ok() && grant.major != kProtocolMajor) {
    return Status(Code::kVersionMismatch,
                  fmt::format("the server speaks version {} of the file-system protocol, this "
                              "client {}; install the same version of rdfs on both hosts",
                              std::uint16_t{grant.major}, kProtocolMajor));
  }
  admission.root = DecodeNamedFile(reader, asked);
  if (!reader.ok() || grant.epoch == 0 || grant.lease_ms == 0) {
    return Status(Code::kProtocolError, "the server's mount grant is malformed");
  }
  // It may go on with a session that it has made for us since, whose grant never arrived here.
  admission.resumed = (grant.flags & kGrantResumed) != 0 && grant.epoch == last_epoch_;
  admission.must_reclaim = last_epoch_ != 0 && !admission.resumed;
  admission.generation = ++generation_;
  last_epoch_ = grant.epoch;
  return admission;
}

}  // namespace rdfs::fs::client
