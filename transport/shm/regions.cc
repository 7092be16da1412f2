#include "transport/shm/regions.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "transport/base/random.h"

namespace rdfs::transport::shm {
namespace {

// Its address tells this transport's attachment from others'.
constexpr char kAttachmentKey = 0;

Status Refused(std::string what) { return {Code::kErrno, EACCES, std::move(what)}; }

std::uint64_t RandomKey() {
  std::uint64_t key = 0;
  while (key == 0) key = RandomU64();  // 0 says that a slot is free
  return key;
}

// Only where it still is: the slot may show another region by now.
void TakeBack(std::atomic<std::uint64_t>& word, std::uint64_t key) {
  word.compare_exchange_strong(key, 0, std::memory_order_release, std::memory_order_relaxed);
}

}  // namespace

Result<std::size_t> KeyAttachment::Join(Domain& domain) {
  return domain.Attach(&kAttachmentKey, []() -> Result<std::unique_ptr<Attachment>> {
    return std::unique_ptr<Attachment>(std::make_unique<KeyAttachment>());
  });
}

Result<std::unique_ptr<Registration>> KeyAttachment::Register(const SharedMemory& /*memory*/,
                                                              Access /*access*/) {
  return std::unique_ptr<Registration>(std::make_unique<KeyRegistration>(*this));
}

KeyRegistration::KeyRegistration(KeyAttachment& attachment)
    : attachment_(attachment), key_(RandomKey()), alive_(std::make_shared<char>()) {}

KeyRegistration::~KeyRegistration() {
  for (const Place& place : places_) {
    if (const auto channel = place.channel.lock()) TakeBack(*place.word, key_);
  }
  alive_.reset();
  attachment_.ended_.fetch_add(1, std::memory_order_release);
}

void KeyRegistration::ShowIn(const std::shared_ptr<SharedMemory>& channel,
                             std::atomic<std::uint64_t>& word) {
  const std::lock_guard lock(mutex_);
  std::erase_if(places_, [](const Place& place) { return place.channel.expired(); });
  places_.push_back({.channel = channel, .word = &word});
  word.store(key_, std::memory_order_release);
}

bool SharedRegions::Contains(std::uint64_t key) const {
  return std::ranges::find(slots_, key, &Entry::key) != slots_.end();
}

std::optional<std::uint16_t> SharedRegions::Add(KeyRegistration& registration) {
  auto free = std::ranges::find(slots_, std::uint64_t{0}, &Entry::key);
  if (free == slots_.end()) {
    if (slots_.size() == kMaxRegions) return std::nullopt;
    free = slots_.emplace(free);
  }
  *free = {.key = registration.key(), .alive = registration.alive()};
  const auto slot = static_cast<std::uint16_t>(free - slots_.begin());
  registration.ShowIn(channel_, live_[slot]);
  return slot;
}

bool SharedRegions::Remove(std::uint64_t key) {
  const auto found = std::ranges::find(slots_, key, &Entry::key);
  if (found == slots_.end()) return false;
  TakeBack(live_[static_cast<std::size_t>(found - slots_.begin())], key);
  *found = Entry();
  return true;
}

std::vector<std::uint64_t> SharedRegions::RemoveEnded() {
  std::vector<std::uint64_t> ended;
  for (const Entry& entry : slots_) {
    if (entry.key != 0 && entry.alive.expired()) ended.push_back(entry.key);
  }
  for (const std::uint64_t key : ended) Remove(key);
  return ended;
}

Result<Fd> DescriptorForPeer(const SharedMemory& memory, Access access) {
  // Reopened, as a duplicate would share the open file and its O_RDWR. The seal (see SharedMemory)
  // is what keeps a peer from reopening it once more for writing.
  const std::string path = "/proc/self/fd/" + std::to_string(memory.fd());
  const int flags = access == Access::kRemoteRead ? O_RDONLY : O_RDWR;
  Fd fd(open(path.c_str(), flags | O_CLOEXEC));
  if (fd.valid()) return fd;
  if (errno == EMFILE || errno == ENFILE) {
    return Status(Code::kResourceExhausted, errno,
                  "no descriptor is left to share memory with; raise the limit of open files "
                  "(ulimit -n)");
  }
  return Status::FromErrno(errno, "cannot open shared memory for the peer (is /proc mounted?)");
}

Result<std::shared_ptr<SharedMemory>> AdoptFromPeer(Fd fd, std::size_t size,
                                                    SharedMemory::Peers peers) {
  // Only memory of tmpfs cannot fault once its size is sealed: huge page files have seals as well,
  // and kill whoever touches them when huge pages have run out.
  struct statfs file_system {};
  if (fstatfs(fd.get(), &file_system) != 0 || file_system.f_type != TMPFS_MAGIC) {
    return Status(Code::kProtocolError,
                  "the peer on this host shared something that is not a memfd");
  }
  auto memory = SharedMemory::Adopt(std::move(fd), size, peers);
  if (memory.ok() || memory.status().scope() != Scope::kRequest) return memory;
  return Status(Code::kResourceExhausted, memory.status().errno_value(), memory.status().message());
}

Status PeerRegions::Add(const ShareWire& share, Fd fd) {
  if (entries_.size() >= most_ || share.slot >= kMaxRegions || entries_.contains(share.key)) {
    return {Code::kProtocolError, "the peer on this host shares too many regions or one twice"};
  }
  const auto access = static_cast<Access>(share.access);
  const auto peers = access == Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                   : SharedMemory::Peers::kMayWrite;
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                        AdoptFromPeer(std::move(fd), share.size, peers));
  entries_.emplace(share.key,
                   Entry{.memory = std::move(memory), .access = access, .slot = share.slot});
  return {};
}

bool PeerRegions::Remove(std::uint64_t key) { return entries_.erase(key) > 0; }

Result<MutableByteSpan> PeerRegions::Find(const RemoteSlice& slice, std::uint64_t length,
                                          Access access) {
  const std::uint64_t key = slice.region.key;
  const auto found = entries_.find(key);
  if (found == entries_.end() || live_[found->second.slot].load(std::memory_order_acquire) != key) {
    return Refused("the peer does not share this memory");
  }
  const Entry& entry = found->second;
  if (entry.access != access) {
    return Refused(access == Access::kRemoteRead ? "the peer's memory is not open for reading"
                                                 : "the peer's memory is not open for writing");
  }
  // A region's address counts from the start of its memory; the sum may not wrap.
  const MutableByteSpan bytes = entry.memory->bytes();
  const std::uint64_t begin = slice.region.address + slice.offset;
  if (begin < slice.offset || begin > bytes.size() || length > bytes.size() - begin) {
    return Refused("the range leaves the memory that the peer shares");
  }
  return bytes.subspan(begin, length);
}

Connection::PeerMemory PeerRegions::Reach(const RemoteRegion& region) {
  const auto bytes = Find({.region = region}, region.length, Access::kRemoteWrite);
  if (!bytes.ok()) return {};
  return {.keep = entries_.find(region.key)->second.memory, .bytes = *bytes};
}

}  // namespace rdfs::transport::shm
