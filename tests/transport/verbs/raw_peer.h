// RawPeer: a peer made of librdmacm and libibverbs alone, which keeps to no rule of ours.
//
// Everything blocks, with a limit. One thread. Errors are told as false or a completion's status:
// a test decides what it expected.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <optional>
#include <string>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/transport.h"
#include "transport/verbs/objects.h"

namespace rdfs::transport::verbs {

class RawPeer {
 public:
  static constexpr std::size_t kBufferBytes = 256 * 1024;
  static constexpr std::uint32_t kDepth = 512;

  // Resolves `to` and makes a queue pair with `receives` receives posted; null when it cannot.
  static std::unique_ptr<RawPeer> Create(const Endpoint& to, std::uint32_t receives);
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // Whether the other end accepted.
  bool Connect(ByteSpan private_data);

  // Posts one request on our buffer, whose first bytes are `payload`, and returns how it
  // completed; null when it did not within the limit.
  std::optional<ibv_wc_status> Send(ByteSpan payload, ibv_wr_opcode opcode = IBV_WR_SEND);
  std::optional<ibv_wc_status> Access(ibv_wr_opcode opcode, const RemoteRegion& region,
                                      std::uint64_t offset, std::uint32_t length);
  // As Send, `count` times, without waiting for any; false when the device took fewer.
  bool SendMany(ByteSpan payload, std::uint32_t count);
  // The next message (a frame with its header), or null after the limit or at the end.
  std::optional<std::vector<std::byte>> Receive();
  [[nodiscard]] MutableByteSpan buffer() { return {buffer_.data(), buffer_.size()}; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  friend class RawListener;
  RawPeer() = default;
  bool MakeQueuePair(std::uint32_t receives);
  bool PostReceive(std::uint32_t slot);
  bool Post(ibv_send_wr& request, std::size_t length);
  std::optional<ibv_wc_status> AwaitSend();
  // Takes one completion: true if there was one.
  bool Take();

  static constexpr std::size_t kReceiveBytes = 4096;
  static constexpr std::uint64_t kSendId = ~std::uint64_t{0};

  std::vector<std::byte> buffer_ = std::vector<std::byte>(kBufferBytes);
  std::vector<std::byte> receive_buffer_;
  std::vector<std::vector<std::byte>> received_;
  std::vector<ibv_wc_status> sent_;
  bool ended_ = false;
  // Destroyed from the last to the first.
  CmIdPtr id_;
  ProtectionDomainPtr domain_;
  MemoryRegionPtr region_, receive_region_;
  CompletionQueuePtr completions_;
  QueuePairPtr queue_pair_;
};

// Where a RawPeer is the accepting side.
class RawListener {
 public:
  // At a free port; null when it cannot.
  static std::unique_ptr<RawListener> Create(const std::string& host);
  [[nodiscard]] std::uint16_t port() const;
  // The next who asks, accepted with `receives` receives posted; null when it cannot. Blocks.
  std::unique_ptr<RawPeer> Accept(std::uint32_t receives);

 private:
  CmIdPtr id_;
};

}  // namespace rdfs::transport::verbs
