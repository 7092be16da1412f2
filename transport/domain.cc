#include "transport/domain.h"

#include <algorithm>
#include <utility>

#include "transport/base/log.h"

namespace rdfs::transport {
namespace {

std::uint64_t NextRegionId() {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

MemoryRegion::MemoryRegion(std::shared_ptr<Domain> domain, std::shared_ptr<SharedMemory> memory,
                           Access access)
    : domain_(std::move(domain)),
      memory_(std::move(memory)),
      access_(access),
      id_(NextRegionId()) {}

MemoryRegion::~MemoryRegion() {
  {
    const std::lock_guard lock(domain_->mutex_);
    std::erase(domain_->regions_, this);
  }
  for (auto& registration : registrations_) delete registration.exchange(nullptr);
}

void MemoryRegion::RegisterWith(std::size_t index, Attachment& attachment) {
  Result<std::unique_ptr<Registration>> made = attachment.Register(*memory_, access_);
  if (made.ok()) {
    registrations_[index].store((*std::move(made)).release(), std::memory_order_release);
  } else {
    errors_[index] = made.status();
    LogDebug("region {} of domain {}: {}", id_, domain_->name(), made.status().message());
  }
}

Status MemoryRegion::registration_error(std::size_t index) const {
  const std::lock_guard lock(domain_->mutex_);
  return errors_[index];
}

std::shared_ptr<Domain> Domain::Create(std::string name) {
  return std::shared_ptr<Domain>(new Domain(std::move(name)));
}

Result<std::unique_ptr<MemoryRegion>> Domain::Register(std::shared_ptr<SharedMemory> memory,
                                                       Access access) {
  if (access == Access::kRemoteRead && memory->peers() != SharedMemory::Peers::kReadOnly) {
    return Status(Code::kInvalidArgument,
                  "memory that peers may write cannot be offered for reading");
  }
  if (access == Access::kRemoteWrite && memory->peers() != SharedMemory::Peers::kMayWrite) {
    return Status(Code::kInvalidArgument, "read-only memory cannot be offered for writing");
  }
  std::unique_ptr<MemoryRegion> region(
      new MemoryRegion(shared_from_this(), std::move(memory), access));
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < attachments_.size(); ++i) {
    region->RegisterWith(i, *attachments_[i].attachment);
  }
  regions_.push_back(region.get());
  return region;
}

Result<std::size_t> Domain::Attach(const void* key, const MakeAttachment& make) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(attachments_, key, &Entry::key);
  if (found != attachments_.end()) {
    return static_cast<std::size_t>(found - attachments_.begin());
  }
  const std::size_t index = attachments_.size();
  if (index == MemoryRegion::kMaxAttachments) {
    return Status(Code::kResourceExhausted, "too many RDMA devices for one domain");
  }
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<Attachment> attachment, make());
  for (MemoryRegion* region : regions_) region->RegisterWith(index, *attachment);
  attachments_.push_back({key, std::move(attachment)});
  return index;
}

Attachment& Domain::attachment(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return *attachments_[index].attachment;
}

}  // namespace rdfs::transport
