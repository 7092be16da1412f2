#include "transport/tcp/shares.h"

#include <utility>

#include "transport/base/random.h"

namespace rdfs::transport::tcp {
namespace {

// Tells the connections that share a region when it ends.
class TcpRegistration final : public Registration {
 public:
  ~TcpRegistration() override { alive_->store(false, std::memory_order_release); }
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> alive() const { return alive_; }

 private:
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
};

class TcpAttachment final : public Attachment {
 public:
  Result<std::unique_ptr<Registration>> Register(const SharedMemory&, Access) override {
    return std::unique_ptr<Registration>(std::make_unique<TcpRegistration>());
  }
};

// Only its address is used: the name of tcp's attachment.
constexpr char kAttachmentKey = 0;

}  // namespace

Result<std::size_t> AttachTo(Domain& domain) {
  return domain.Attach(&kAttachmentKey, []() -> Result<std::unique_ptr<Attachment>> {
    return std::unique_ptr<Attachment>(std::make_unique<TcpAttachment>());
  });
}

Result<RemoteRegion> Shares::Add(const MemoryRegion& region) {
  const auto known = key_of_region_.find(region.id());
  if (known != key_of_region_.end()) return RemoteRegion{0, region.size(), known->second};
  const auto* registration = static_cast<TcpRegistration*>(region.registration(attachment_));
  if (registration == nullptr) return region.registration_error(attachment_);
  DropEnded();
  std::uint64_t key = 0;
  do {
    key = RandomU64();
  } while (by_key_.contains(key));
  by_key_.emplace(key, Entry{registration->alive(), region.memory(), region.access()});
  key_of_region_.emplace(region.id(), key);
  return RemoteRegion{0, region.size(), key};
}

void Shares::Remove(const MemoryRegion& region) {
  const auto known = key_of_region_.find(region.id());
  if (known == key_of_region_.end()) return;
  by_key_.erase(known->second);
  key_of_region_.erase(known);
}

Shares::Target Shares::Find(std::uint64_t key, std::uint64_t position, std::uint64_t length,
                            Access access) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || !found->second.alive->load(std::memory_order_acquire)) {
    return Target{{}, {}, RefusalReason::kNotShared};
  }
  const Entry& entry = found->second;
  std::shared_ptr<SharedMemory> memory = entry.memory.lock();
  if (memory == nullptr) return Target{{}, {}, RefusalReason::kNotShared};
  if (entry.access != access) return Target{{}, {}, RefusalReason::kWrongAccess};
  const MutableByteSpan bytes = memory->bytes();
  if (position > bytes.size() || length > bytes.size() - position) {
    return Target{{}, {}, RefusalReason::kOutOfBounds};
  }
  return {std::move(memory), bytes.subspan(position, length), std::nullopt};
}

// Regions may end without being unshared; what is left of them goes when the next is shared.
void Shares::DropEnded() {
  std::erase_if(key_of_region_, [&](const auto& item) {
    const auto entry = by_key_.find(item.second);
    if (entry->second.alive->load(std::memory_order_acquire)) return false;
    by_key_.erase(entry);
    return true;
  });
}

}  // namespace rdfs::transport::tcp
