// A domain on one RDMA device: its protection domain, and the keys of its regions.
//
// Made by AttachDevice when the domain's first connection over the device is; owned by the Domain,
// for as long as it lives. Registration pins memory and makes system calls: not for the data path.
// Any thread.
#pragma once

#include <memory>
#include <string>

#include "transport/domain.h"
#include "transport/verbs/objects.h"

namespace rdfs::transport::verbs {

class DeviceRegistration final : public Registration {
 public:
  explicit DeviceRegistration(MemoryRegionPtr region) : region_(std::move(region)) {}
  [[nodiscard]] std::uint32_t local_key() const { return region_->lkey; }
  [[nodiscard]] std::uint32_t remote_key() const { return region_->rkey; }

 private:
  MemoryRegionPtr region_;
};

class DeviceAttachment final : public Attachment {
 public:
  static Result<std::unique_ptr<Attachment>> Create(ibv_context* context);
  Result<std::unique_ptr<Registration>> Register(const SharedMemory& memory,
                                                 Access access) override;

  [[nodiscard]] ibv_pd* protection_domain() const { return domain_.get(); }
  // For buffers that never leave a connection: no peer can reach them, on any device.
  Result<MemoryRegionPtr> RegisterControl(const SharedMemory& memory) const;

 private:
  explicit DeviceAttachment(ProtectionDomainPtr domain);
  Result<MemoryRegionPtr> Pin(const SharedMemory& memory, unsigned access_flags) const;
  [[nodiscard]] unsigned AccessFlags(Access access) const;

  ProtectionDomainPtr domain_;
  bool iwarp_;
};

// Where a domain keeps what belongs to one device.
struct DeviceInDomain {
  std::size_t index;  // of MemoryRegion::registration
  DeviceAttachment* attachment;
};
// `context` is the one that librdmacm opened for the device: one a process, kept for its life.
Result<DeviceInDomain> AttachDevice(Domain& domain, ibv_context* context);

// The region's registration with the device; kResourceExhausted (memlock) says why there is none.
Result<const DeviceRegistration*> RegistrationOf(const MemoryRegion& region, std::size_t index);

}  // namespace rdfs::transport::verbs
