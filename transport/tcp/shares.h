// What the peer of one connection may reach: random keys, each for the memory of one region.
//
// A region that ends takes its keys with it on every connection at once (its Registration says so,
// from whatever thread), while memory that an answer is being written from stays mapped until it
// is out. Shares is used by its connection's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "transport/tcp/frame.h"
#include "transport/transport.h"

namespace rdfs::transport::tcp {

// Makes `domain` keep a registration of each of its regions for tcp; the attachment's index.
Result<std::size_t> AttachTo(Domain& domain);

class Shares {
 public:
  explicit Shares(std::size_t attachment) : attachment_(attachment) {}

  // As Connection::Share, of a region whose domain was checked.
  Result<RemoteRegion> Add(const MemoryRegion& region);
  void Remove(const MemoryRegion& region);

  // The memory behind a peer's words, or why there is none.
  struct Target {
    std::shared_ptr<SharedMemory> memory;
    MutableByteSpan bytes;
    std::optional<RefusalReason> refusal;
  };
  [[nodiscard]] Target Find(std::uint64_t key, std::uint64_t position, std::uint64_t length,
                            Access access) const;

 private:
  struct Entry {
    std::shared_ptr<const std::atomic<bool>> alive;  // false once the region has ended
    std::weak_ptr<SharedMemory> memory;              // must not outlive its region for our sake
    Access access;
  };

  void DropEnded();

  std::size_t attachment_;
  std::unordered_map<std::uint64_t, Entry> by_key_;
  std::unordered_map<std::uint64_t, std::uint64_t> key_of_region_;  // by MemoryRegion::id
};

}  // namespace rdfs::transport::tcp
