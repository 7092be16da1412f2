#include "transport/verbs/registration.h"

#include "transport/verbs/errors.h"

namespace rdfs::transport::verbs {

DeviceAttachment::DeviceAttachment(ProtectionDomainPtr domain)
    : domain_(std::move(domain)),
      iwarp_(domain_->context->device->transport_type == IBV_TRANSPORT_IWARP) {}

Result<std::unique_ptr<Attachment>> DeviceAttachment::Create(ibv_context* context) {
  ProtectionDomainPtr domain(ibv_alloc_pd(context));
  if (domain == nullptr) return FromErrno("cannot make a protection domain");
  return std::unique_ptr<Attachment>(new DeviceAttachment(std::move(domain)));
}

unsigned DeviceAttachment::AccessFlags(Access access) const {
  constexpr unsigned kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
  constexpr unsigned kRemoteRead = IBV_ACCESS_REMOTE_READ;
  constexpr unsigned kRemoteWrite = IBV_ACCESS_REMOTE_WRITE;
  switch (access) {
    case Access::kLocal:
      // On iWARP the answer to a READ travels as a tagged write, so its sink has to be open to
      // remote writing (RFC 5040, 5.2; rdma_post_read(3)). The key that this makes is told to
      // nobody but, by the device, to the device that answers.
      return kLocalWrite | (iwarp_ ? kRemoteWrite : 0U);
    case Access::kRemoteRead:
      // Not even our own device may write here: a READ or a receive can never land in what peers
      // read, and memory sealed against writing can be registered.
      return kRemoteRead;
    case Access::kRemoteWrite:
      return kLocalWrite | kRemoteWrite;  // the second demands the first
  }
  return 0;
}

Result<MemoryRegionPtr> DeviceAttachment::Pin(const SharedMemory& memory,
                                              unsigned access_flags) const {
  MemoryRegionPtr region(
      ibv_reg_mr(domain_.get(), memory.bytes().data(), memory.size(), access_flags));
  if (region == nullptr) {
    return FromRegistration(errno, memory.size(), ibv_get_device_name(domain_->context->device));
  }
  return region;
}

Result<std::unique_ptr<Registration>> DeviceAttachment::Register(const SharedMemory& memory,
                                                                 Access access) {
  RDFS_ASSIGN_OR_RETURN(MemoryRegionPtr region, Pin(memory, AccessFlags(access)));
  return std::unique_ptr<Registration>(std::make_unique<DeviceRegistration>(std::move(region)));
}

Result<MemoryRegionPtr> DeviceAttachment::RegisterControl(const SharedMemory& memory) const {
  return Pin(memory, IBV_ACCESS_LOCAL_WRITE);
}

Result<DeviceInDomain> AttachDevice(Domain& domain, ibv_context* context) {
  RDFS_ASSIGN_OR_RETURN(const std::size_t index, domain.Attach(context, [context] {
    return DeviceAttachment::Create(context);
  }));
  // Only this function attaches under the key of an ibv_context.
  return DeviceInDomain{index, static_cast<DeviceAttachment*>(&domain.attachment(index))};
}

Result<const DeviceRegistration*> RegistrationOf(const MemoryRegion& region, std::size_t index) {
  const Registration* registration = region.registration(index);
  if (registration == nullptr) return region.registration_error(index);
  return static_cast<const DeviceRegistration*>(registration);
}

}  // namespace rdfs::transport::verbs
