// Which memory the two processes of a connection show each other.
//
// Attachment and registration: each region of a domain has a random key, and a connection notices
// when a region that it shared has ended. SharedRegions: ours that the peer may reach. PeerRegions:
// the peer's, mapped here.
//
// Attachment: any thread. SharedRegions and PeerRegions: owned by a Connection, used by its thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/fd.h"
#include "transport/base/shared_memory.h"
#include "transport/base/status.h"
#include "transport/domain.h"
#include "transport/shm/wire.h"
#include "transport/transport.h"

namespace rdfs::transport::shm {

class KeyAttachment final : public Attachment {
 public:
  // The index of the attachment in `domain`, made when it is the domain's first.
  static Result<std::size_t> Join(Domain& domain);

  Result<std::unique_ptr<Registration>> Register(const SharedMemory& memory,
                                                 Access access) override;
  // Grows whenever a region of the domain has ended.
  [[nodiscard]] std::uint64_t ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  friend class KeyRegistration;
  std::atomic<std::uint64_t> ended_{0};
};

class KeyRegistration final : public Registration {
 public:
  explicit KeyRegistration(KeyAttachment& attachment);
  // Takes the region back from every peer.
  ~KeyRegistration() override;
  [[nodiscard]] std::uint64_t key() const { return key_; }
  // Expires when the region ends.
  [[nodiscard]] std::weak_ptr<const void> alive() const { return alive_; }
  // Writes the key into `word`, which lies in `channel`, and 0 when the region ends.
  void ShowIn(const std::shared_ptr<SharedMemory>& channel, std::atomic<std::uint64_t>& word);

 private:
  struct Place {
    std::weak_ptr<SharedMemory> channel;  // expires when the connection ends
    std::atomic<std::uint64_t>* word;
  };

  KeyAttachment& attachment_;  // of the domain, which the region keeps alive
  const std::uint64_t key_;
  std::shared_ptr<const void> alive_;
  std::mutex mutex_;
  std::vector<Place> places_;  // under mutex_
};

// Our regions that the peer may reach.
class SharedRegions {
 public:
  // `live` lies in `channel`.
  SharedRegions(std::shared_ptr<SharedMemory> channel, LiveKeys& live)
      : channel_(std::move(channel)), live_(live) {}

  [[nodiscard]] bool Contains(std::uint64_t key) const;
  // Shows the region's key to the peer and returns its slot; none when all are taken.
  std::optional<std::uint16_t> Add(KeyRegistration& registration);
  bool Remove(std::uint64_t key);
  // Removes the regions that have ended, and returns their keys.
  std::vector<std::uint64_t> RemoveEnded();

 private:
  struct Entry {
    std::uint64_t key = 0;  // 0: the slot is free
    std::weak_ptr<const void> alive;
  };
  const std::shared_ptr<SharedMemory> channel_;
  LiveKeys& live_;
  std::vector<Entry> slots_;
};

// A descriptor of `memory` to be sent to a peer: opened for reading only where that is all the peer
// may do. Errors: kResourceExhausted, kErrno.
Result<Fd> DescriptorForPeer(const SharedMemory& memory, Access access);

// Maps memory that a peer sent, when it is such that touching it can never fault. Errors, all of
// which end the connection: kProtocolError, kResourceExhausted.
Result<std::shared_ptr<SharedMemory>> AdoptFromPeer(Fd fd, std::size_t size,
                                                    SharedMemory::Peers peers);

// The peer's regions, mapped here.
class PeerRegions {
 public:
  // `live`: the peer's. `most`: how many it may share at a time, no more than kMaxRegions.
  PeerRegions(const LiveKeys& live, std::size_t most) : live_(live), most_(most) {}
  // Maps what the peer sent. Errors: those of AdoptFromPeer, kProtocolError for one too many.
  Status Add(const ShareWire& share, Fd fd);
  bool Remove(std::uint64_t key);
  // The bytes of a remote slice for this access, or why not: EACCES.
  Result<MutableByteSpan> Find(const RemoteSlice& slice, std::uint64_t length, Access access);
  // All of a region that is open for WRITEs, and what keeps it mapped; empty for any other.
  Connection::PeerMemory Reach(const RemoteRegion& region);

 private:
  struct Entry {
    std::shared_ptr<SharedMemory> memory;
    Access access = Access::kLocal;
    std::uint16_t slot = 0;
  };
  const LiveKeys& live_;
  const std::size_t most_;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace rdfs::transport::shm
