// A connection over shared memory: two message rings, a UNIX socket as the bell, and the peer's
// regions mapped here, so that READ and WRITE are copies made by whoever posts them.
//
// Owned by whoever connected or accepted; one thread at a time. Makes no system call while both
// ends keep polling, save one look at the socket in 1024 empty polls.
//
// Memory of one connection: the channel (two rings of 256 KiB and three pages, shared by both
// ends), an inbox of 128 KiB, a mapping for each region of the peer's (512 at most, or as many as
// whoever listens allows), and the messages that wait for room in the ring (backlog_bytes).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/shm/regions.h"
#include "transport/shm/ring.h"
#include "transport/shm/socket.h"
#include "transport/shm/wire.h"
#include "transport/transport.h"

namespace rdfs::transport::shm {

enum class Role : std::uint8_t { kAcceptor = 0, kConnector = 1 };

class ShmConnection final : public Connection {
 public:
  // Over a socket on which Preface and Accept have been exchanged. `channel` holds a ChannelLayout.
  // A peer that shares more than `peer_regions` at a time ends the connection.
  static Result<std::unique_ptr<Connection>> Create(Role role, std::shared_ptr<Domain> domain,
                                                    PacketSocket socket,
                                                    std::shared_ptr<SharedMemory> channel,
                                                    std::string description,
                                                    std::size_t peer_regions = kMaxRegions);
  ~ShmConnection() override;

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string Describe() const override { return description_; }
  Status Send(std::span<const ByteSpan> parts) override;
  using Connection::Send;
  [[nodiscard]] std::size_t backlog_bytes() const override { return backlog_bytes_; }
  Result<Ticket> Read(const LocalSlice& to, const RemoteSlice& from, Order order) override;
  Result<Ticket> Write(const LocalSlice& from, const RemoteSlice& to) override;
  Status Flush() override;
  Result<std::size_t> Poll(std::span<Completion> out) override;
  Result<bool> Arm() override;
  [[nodiscard]] int fd() const override { return socket_.fd(); }
  PeerMemory Reach(const RemoteRegion& region) override { return peer_regions_.Reach(region); }
  Result<RemoteRegion> Share(const MemoryRegion& region) override;
  void Unshare(const MemoryRegion& region) override;

 protected:
  [[nodiscard]] bool SpinningPays() const override;

 private:
  struct Pending {  // a message that waits for room in the ring
    std::vector<std::byte> bytes;
    std::uint32_t tag;
  };
  struct Notice {  // a packet about regions that waits for room in the socket
    ShareWire packet;
    Fd fd;
  };

  ShmConnection(Role role, std::shared_ptr<Domain> domain, std::size_t attachment,
                PacketSocket socket, std::shared_ptr<SharedMemory> channel, std::string description,
                std::size_t peer_regions);

  Status End(Status why);
  void RingBell();
  Status WriteBacklog();
  bool SendNotices();
  void Announce(const ShareWire& packet, Fd fd);
  void AnnounceEnd(std::uint64_t key);  // so that the peer unmaps it
  void TellOfEndedRegions();
  Status CheckPost(const LocalSlice& slice) const;
  Ticket Finish(Completion::Kind kind, Status status);
  std::size_t TakeFinished(std::span<Completion> out);
  // Whether a message was sent after a Share or Unshare that has not arrived.
  [[nodiscard]] bool ComesAfterANotice(const RecordHeader& header) const;
  Result<std::size_t> TakeMessages(std::span<Completion> out);
  // Reads what the peer sent over the socket, at most up to the next bell.
  Status ReadSocket();
  Status Handle(Packet& packet);
  void PublishCpu();

  const Capabilities capabilities_;
  const std::shared_ptr<Domain> domain_;
  const std::size_t attachment_index_;
  KeyAttachment& attachment_;
  const std::string description_;
  PacketSocket socket_;
  const std::shared_ptr<SharedMemory> channel_;
  SideState& mine_;
  SideState& peers_;
  RingWriter writer_;
  RingReader reader_;

  Status over_;                   // not ok: what every call returns
  bool peer_gone_ = false;        // its socket is closed: over once the ring is empty
  bool look_at_socket_ = false;   // something may be in the socket
  bool awaiting_notice_ = false;  // the next message follows a Share that has not arrived
  std::uint32_t empty_polls_ = 0;
  std::uint32_t cpu_ = ~0U;  // as told to the peer

  std::uint32_t notices_sent_ = 0;  // Share and Unshare, those queued too: tags messages
  std::uint32_t notices_received_ = 0;
  std::deque<Notice> notices_;
  std::uint64_t ended_seen_ = 0;
  SharedRegions shared_;
  PeerRegions peer_regions_;

  std::deque<Pending> backlog_;
  std::size_t backlog_bytes_ = 0;

  Ticket last_ticket_ = 0;
  std::vector<Completion> finished_;  // READs and WRITEs; [taken_...) not yet reported
  std::size_t taken_ = 0;
  std::unique_ptr<std::byte[]> inbox_;  // messages that the last Poll reported
};

}  // namespace rdfs::transport::shm
