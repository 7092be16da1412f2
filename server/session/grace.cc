#include "server/session/grace.h"

#include <algorithm>

namespace rdfs::server {

void GracePeriod::Begin(const std::vector<std::uint64_t>& sessions, TimePoint end) {
  const std::lock_guard lock(mutex_);
  missing_.insert(sessions.begin(), sessions.end());
  end_ = end;
  on_.store(!missing_.empty());
}

void GracePeriod::Done(std::uint64_t session) {
  if (!on_.load()) return;
  const std::lock_guard lock(mutex_);
  missing_.erase(session);
  if (missing_.empty()) on_.store(false);
}

bool GracePeriod::active(TimePoint now) const { return left(now).count() > 0; }

bool GracePeriod::Awaits(std::uint64_t session) const {
  const std::lock_guard lock(mutex_);
  return missing_.contains(session);
}

std::chrono::milliseconds GracePeriod::left(TimePoint now) const {
  if (!on_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex_);
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(end_ - now),
                  std::chrono::milliseconds(0));
}

std::size_t GracePeriod::missing() const {
  const std::lock_guard lock(mutex_);
  return missing_.size();
}

bool MayTakeFromOthers(fs::Opcode opcode, ByteSpan body) {
  ByteReader reader(body);
  switch (opcode) {
    case fs::Opcode::kUnlink:
    case fs::Opcode::kRmdir:
    case fs::Opcode::kRename:
    case fs::Opcode::kSetXattr:  // an ACL
    case fs::Opcode::kRemoveXattr:
      return true;
    case fs::Opcode::kSetAttr:
      return (reader.Read<fs::SetAttrRequest>().valid &
              (fs::kSetMode | fs::kSetUid | fs::kSetGid)) != 0;
    case fs::Opcode::kSetLock:
      return reader.Read<fs::LockRequest>().type !=
             static_cast<std::uint32_t>(fs::LockType::kUnlock);
    default:
      return false;
  }
}

}  // namespace rdfs::server
