// Domain and MemoryRegion: which memory the peers of which connections may reach.
//
// A Domain is an access class's protection domain. It spans transports: when the first connection
// of a transport (for verbs: of a device) joins, that transport attaches, and every region of the
// domain is registered with it (verbs: one ibv_pd and one ibv_mr a region; tcp and shm: a random
// key). A region belongs to one domain, and a connection reaches regions of its own domain only.
//
// Owned by shared_ptr (connections and regions keep their domain alive). Any thread; the look-up of
// a registration on the data path takes no lock. Registration makes system calls and pins memory
// (verbs): not for the data path.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/base/shared_memory.h"
#include "transport/base/status.h"

namespace rdfs::transport {

// What the peers of a domain's connections may do with a region. Never both: memory that a peer can
// write is only ever its own staging.
enum class Access : std::uint8_t {
  kLocal,  // nothing: a buffer of ours for READ, WRITE
  kRemoteRead,
  kRemoteWrite,
};

// What one transport keeps for one region (verbs: the ibv_mr).
class Registration {
 public:
  virtual ~Registration() = default;
};

// What one transport keeps for one domain (verbs: the ibv_pd of one device).
class Attachment {
 public:
  virtual ~Attachment() = default;
  // Errors: kResourceExhausted with the remedy (memlock), kErrno.
  virtual Result<std::unique_ptr<Registration>> Register(const SharedMemory& memory,
                                                         Access access) = 0;
};

class Domain;

class MemoryRegion {
 public:
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  // Ends every registration: no peer reaches the memory any more. No operation of ours may be in
  // flight on it.
  ~MemoryRegion();

  [[nodiscard]] MutableByteSpan bytes() const { return memory_->bytes(); }
  [[nodiscard]] std::size_t size() const { return memory_->size(); }
  [[nodiscard]] Access access() const { return access_; }
  [[nodiscard]] const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  [[nodiscard]] const Domain* domain() const { return domain_.get(); }
  // Unique in this process, never reused.
  [[nodiscard]] std::uint64_t id() const { return id_; }

  // For transports: the registration at the attachment `index`, or null when it could not be made
  // (then registration_error says why). Lock-free.
  [[nodiscard]] Registration* registration(std::size_t index) const {
    return registrations_[index].load(std::memory_order_acquire);
  }
  [[nodiscard]] Status registration_error(std::size_t index) const;

  // tcp, shm, and one for each RDMA device; 48 bytes each in every region.
  static constexpr std::size_t kMaxAttachments = 2 + 32;

 private:
  friend class Domain;
  MemoryRegion(std::shared_ptr<Domain> domain, std::shared_ptr<SharedMemory> memory, Access access);
  void RegisterWith(std::size_t index, Attachment& attachment);

  std::shared_ptr<Domain> domain_;
  std::shared_ptr<SharedMemory> memory_;
  Access access_;
  std::uint64_t id_;
  std::array<std::atomic<Registration*>, kMaxAttachments> registrations_{};  // owned
  std::array<Status, kMaxAttachments> errors_;  // under domain_->mutex_
};

class Domain : public std::enable_shared_from_this<Domain> {
 public:
  static std::shared_ptr<Domain> Create(std::string name);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }

  // Registers with every attached transport. A transport that cannot (memlock) does not fail the
  // call: sharing the region over it fails then, with the reason.
  Result<std::unique_ptr<MemoryRegion>> Register(std::shared_ptr<SharedMemory> memory,
                                                 Access access);

  // For transports: the index of the attachment for `key` (a device, a transport), made by `make`
  // and given every region so far when it is the first. Errors: kResourceExhausted after
  // kMaxAttachments.
  using MakeAttachment = std::function<Result<std::unique_ptr<Attachment>>()>;
  Result<std::size_t> Attach(const void* key, const MakeAttachment& make);
  // The attachment at `index`, which an earlier Attach returned; lives as long as the domain.
  [[nodiscard]] Attachment& attachment(std::size_t index) const;

 private:
  friend class MemoryRegion;
  explicit Domain(std::string name) : name_(std::move(name)) {}

  struct Entry {
    const void* key;
    std::unique_ptr<Attachment> attachment;
  };

  const std::string name_;
  mutable std::mutex mutex_;
  std::vector<Entry> attachments_;      // grows only
  std::vector<MemoryRegion*> regions_;  // those alive
};

}  // namespace rdfs::transport
