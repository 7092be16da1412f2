// Which memory the two processes of a connection show each other.
//
// Attachment and registration: each region of a domain has a random key, and a connection notices
// when a region that it shared has ended. PeerRegions: the peer's memory as it is mapped here.
//
// Attachment: any thread. SharedRegions and PeerRegions: owned by a Connection, used by its thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/fd.h"
#include "transport/base/shared_memory.h"
#include "transport/base/status.h"
#include "transport/domain.h"

namespace rdfs::transport::shm {

// Regions that one side of a connection may share at a time. Each costs the peer a descriptor and a
// mapping: 512 arenas of 64 MiB are 32 GiB.
inline constexpr std::size_t kMaxRegions = 512;

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
  ~KeyRegistration() override;
  // Expires when the region ends.
  [[nodiscard]] const std::shared_ptr<const std::uint64_t>& key() const { return key_; }

 private:
  KeyAttachment& attachment_;  // of the domain, which the region keeps alive
  std::shared_ptr<const std::uint64_t> key_;
};

// Our regions that the peer may reach.
class SharedRegions {
 public:
  [[nodiscard]] bool Contains(std::uint64_t key) const;
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  void Add(const KeyRegistration& registration);
  bool Remove(std::uint64_t key);
  // Removes the regions that have ended, and returns their keys.
  std::vector<std::uint64_t> RemoveEnded();

 private:
  struct Entry {
    std::uint64_t key;
    std::weak_ptr<const std::uint64_t> alive;
  };
  std::vector<Entry> entries_;
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
  // Maps what the peer sent. Errors: those of AdoptFromPeer, kProtocolError for one too many.
  Status Add(std::uint64_t key, Fd fd, std::uint64_t size, Access access);
  bool Remove(std::uint64_t key);
  // The bytes of a remote slice for this access, or why not: kInvalidArgument.
  Result<MutableByteSpan> Find(std::uint64_t key, std::uint64_t offset, std::uint64_t length,
                               Access access);

 private:
  struct Entry {
    std::shared_ptr<SharedMemory> memory;
    Access access = Access::kLocal;
  };
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace rdfs::transport::shm
