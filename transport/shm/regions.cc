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

Status NotShared(std::string what) { return {Code::kInvalidArgument, std::move(what)}; }

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
    : attachment_(attachment), key_(std::make_shared<const std::uint64_t>(RandomU64())) {}

KeyRegistration::~KeyRegistration() {
  key_.reset();
  attachment_.ended_.fetch_add(1, std::memory_order_release);
}

bool SharedRegions::Contains(std::uint64_t key) const {
  return std::ranges::find(entries_, key, &Entry::key) != entries_.end();
}

void SharedRegions::Add(const KeyRegistration& registration) {
  entries_.push_back({.key = *registration.key(), .alive = registration.key()});
}

bool SharedRegions::Remove(std::uint64_t key) {
  return std::erase_if(entries_, [key](const Entry& e) { return e.key == key; }) > 0;
}

std::vector<std::uint64_t> SharedRegions::RemoveEnded() {
  std::vector<std::uint64_t> ended;
  for (const Entry& entry : entries_) {
    if (entry.alive.expired()) ended.push_back(entry.key);
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

Status PeerRegions::Add(std::uint64_t key, Fd fd, std::uint64_t size, Access access) {
  if (entries_.size() >= kMaxRegions || entries_.contains(key)) {
    return {Code::kProtocolError, "the peer on this host shares too many regions or one twice"};
  }
  const auto peers = access == Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                   : SharedMemory::Peers::kMayWrite;
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                        AdoptFromPeer(std::move(fd), size, peers));
  entries_.emplace(key, Entry{.memory = std::move(memory), .access = access});
  return {};
}

bool PeerRegions::Remove(std::uint64_t key) { return entries_.erase(key) > 0; }

Result<MutableByteSpan> PeerRegions::Find(std::uint64_t key, std::uint64_t offset,
                                          std::uint64_t length, Access access) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotShared("the peer does not share this region");
  const Entry& entry = found->second;
  if (entry.access != access) {
    return NotShared(access == Access::kRemoteRead ? "the peer's region is not open for reading"
                                                   : "the peer's region is not open for writing");
  }
  const MutableByteSpan bytes = entry.memory->bytes();
  if (offset > bytes.size() || length > bytes.size() - offset) {
    return NotShared("the range lies outside the peer's region");
  }
  return bytes.subspan(offset, length);
}

}  // namespace rdfs::transport::shm
