#include "server/supervisor/supervisor_keeper.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "server/supervisor/supervisor_packet.h"
#include "transport/base/random.h"

namespace rdfs::server {
namespace {

constexpr std::chrono::seconds kHelloPatience{5};
constexpr std::chrono::seconds kSendPatience{1};

Result<Packet> WaitForPacket(int socket, Deadline deadline) {
  while (true) {
    Result<std::optional<Packet>> packet = ReceivePacket(socket);
    if (!packet.ok()) return std::move(packet).status();
    if (packet->has_value()) return std::move(**packet);
    const TimePoint now = BootClock::now();
    if (now >= deadline) {
      return Status(Code::kDeadlineExceeded, "the supervisor does not answer");
    }
    pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
    (void)poll(&entry, 1, PollTimeoutMs(deadline, now));
  }
}

}  // namespace

static_assert(DescriptorKeeper::kMaxKeyBytes == kMaxKeptKeyBytes);
static_assert(DescriptorKeeper::kMaxStateBytes == kMaxKeptStateBytes);

Result<std::unique_ptr<DescriptorKeeper>> DescriptorKeeper::Connect(int fd) {
  std::unique_ptr<DescriptorKeeper> keeper(new DescriptorKeeper(Fd(fd)));
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return Status::FromErrno(errno, "the socket of rdfsd's supervisor");
  }
  RDFS_ASSIGN_OR_RETURN(const Packet packet, WaitForPacket(fd, DeadlineAfter(kHelloPatience)));
  if (packet.type != PacketType::kHello || packet.state.size() != sizeof(HelloWire)) {
    return Status(Code::kProtocolError, "the supervisor did not say hello");
  }
  const auto hello = ByteReader(packet.state).Read<HelloWire>();
  keeper->epoch_ = hello.epoch;
  keeper->restarted_ = hello.restarted != 0;
  keeper->max_descriptors_ = hello.max_descriptors;
  keeper->max_state_bytes_ = hello.max_state_bytes;
  keeper->secret_ = hello.secret;
  return keeper;
}

std::unique_ptr<DescriptorKeeper> DescriptorKeeper::None() {
  std::unique_ptr<DescriptorKeeper> keeper(new DescriptorKeeper(Fd()));
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  keeper->epoch_ = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
                   static_cast<std::uint64_t>(now.tv_nsec) / 1000;
  FillRandom(keeper->secret_);
  return keeper;
}

// With the mutex: counts `key` with `bytes` of key and state.
Status DescriptorKeeper::Admit(const std::string& key, std::size_t bytes) {
  const auto held = kept_.find(key);
  const std::size_t before = held == kept_.end() ? 0 : held->second.bytes;
  if (held == kept_.end() && kept_.size() >= max_descriptors_) {
    return Status(Code::kResourceExhausted,
                  "too many files are locked or unlinked while open: raise ulimit -n for rdfsd");
  }
  if (state_bytes_ - before + bytes > max_state_bytes_) {
    return Status(Code::kResourceExhausted, "the supervisor keeps no more state");
  }
  state_bytes_ = state_bytes_ - before + bytes;
  kept_[key] = {bytes};
  return Status::Ok();
}

Status DescriptorKeeper::Send(PacketType type, ByteSpan key, ByteSpan state, int fd,
                              Deadline deadline) {
  Status sent = SendPacket(socket_.get(), type, key, state, fd, stuck_ ? Deadline{} : deadline);
  if (sent.ok()) stuck_ = false;
  if (sent.code() == Code::kDeadlineExceeded) stuck_ = true;
  return sent;
}

// A packet arrives whole or not at all: what was kept before a failure is kept as it was.
Status DescriptorKeeper::Tell(PacketType type, const std::string& key, ByteSpan state, int fd) {
  const auto held = kept_.find(key);
  const std::optional<Count> before =
      held == kept_.end() ? std::nullopt : std::optional(held->second);
  const std::size_t bytes_before = state_bytes_;
  RDFS_RETURN_IF_ERROR(TellDropped());
  RDFS_RETURN_IF_ERROR(Admit(key, key.size() + state.size()));
  Status sent = Send(type, AsBytes(key), state, fd, DeadlineAfter(kSendPatience));
  if (sent.ok()) return sent;
  state_bytes_ = bytes_before;
  if (before) {
    kept_[key] = *before;
  } else {
    kept_.erase(key);
  }
  return sent;
}

Status DescriptorKeeper::Keep(ByteSpan key, int fd, ByteSpan state) {
  if (key.empty() || key.size() > kMaxKeyBytes || state.size() > kMaxStateBytes) {
    return Status(Code::kInvalidArgument, "a key or state that is too long to be kept");
  }
  if (!supervised()) return Status::Ok();
  const std::string name(AsText(key));
  const std::lock_guard lock(mutex_);
  return Tell(PacketType::kKeep, name, state, fd);
}

Status DescriptorKeeper::SetState(ByteSpan key, ByteSpan state) {
  if (key.size() > kMaxKeyBytes || state.size() > kMaxStateBytes) {
    return Status(Code::kInvalidArgument, "a key or state that is too long to be kept");
  }
  if (!supervised()) return Status::Ok();
  const std::string name(AsText(key));
  const std::lock_guard lock(mutex_);
  if (!kept_.contains(name)) return Status(Code::kNotFound, "nothing is kept under this key");
  return Tell(PacketType::kSetState, name, state, -1);
}

void DescriptorKeeper::Drop(ByteSpan key) {
  if (!supervised()) return;
  const std::lock_guard lock(mutex_);
  const auto held = kept_.find(std::string(AsText(key)));
  if (held == kept_.end()) return;
  state_bytes_ -= held->second.bytes;
  dropped_.push_back(held->first);
  kept_.erase(held);
  (void)TellDropped();
}

Status DescriptorKeeper::TellDropped() {
  const Deadline deadline = DeadlineAfter(kSendPatience);
  while (!dropped_.empty()) {
    const Status told = Send(PacketType::kDrop, AsBytes(dropped_.front()), {}, -1, deadline);
    // A supervisor that is slow is told later. With one that is gone, all that it kept is.
    if (!told.ok() && told.code() != Code::kDisconnected) return told;
    dropped_.pop_front();
  }
  return Status::Ok();
}

Result<std::vector<DescriptorKeeper::Kept>> DescriptorKeeper::FetchAll() {
  std::vector<Kept> all;
  if (!supervised()) return all;
  const std::lock_guard lock(mutex_);
  std::string after;
  while (true) {
    const Deadline deadline = DeadlineAfter(kHelloPatience);
    RDFS_RETURN_IF_ERROR(
        SendPacket(socket_.get(), PacketType::kFetch, AsBytes(after), {}, -1, deadline));
    RDFS_ASSIGN_OR_RETURN(Packet packet, WaitForPacket(socket_.get(), deadline));
    if (packet.type == PacketType::kEnd) return all;
    if (packet.type != PacketType::kRecord || !packet.fd.valid()) {
      return Status(Code::kProtocolError, "the supervisor did not send what it keeps");
    }
    after = packet.key;
    const std::size_t bytes = packet.key.size() + packet.state.size();
    state_bytes_ += bytes;
    kept_[packet.key] = {bytes};
    const ByteSpan key = AsBytes(packet.key);
    all.push_back({.key = {key.begin(), key.end()},
                   .state = std::move(packet.state),
                   .fd = std::move(packet.fd)});
  }
}

bool DescriptorKeeper::HasPlenty() const {
  const std::lock_guard lock(mutex_);
  return kept_.size() < max_descriptors_ / 2 && state_bytes_ < max_state_bytes_ / 2;
}

std::size_t DescriptorKeeper::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace rdfs::server
