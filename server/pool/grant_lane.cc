#include "server/pool/grant_lane.h"

#include <algorithm>

#include "transport/base/log.h"

namespace rdfs::server {

Status GrantLane::Tell(std::uint32_t number, const transport::MemoryRegion& region) {
  RDFS_ASSIGN_OR_RETURN(const transport::RemoteRegion shared, connection_->Share(region));
  return send_({.arena = number, .region = transport::RemoteRegionWire::From(shared)});
}

bool GrantLane::Announce(const Arena& arena) {
  if (connection_ == nullptr) return false;
  const auto known = usable_.find(arena.number());
  if (known != usable_.end()) return known->second;
  Status told = Tell(arena.number(), arena.memory());
  if (told.ok()) told = Tell(arena.generation_number(), arena.generations());
  if (!told.ok()) {
    // The same holds for the next ones; and a lane that is lost grants nothing anyway.
    const bool first = std::ranges::all_of(usable_, [](const auto& entry) { return entry.second; });
    Log(first && told.scope() != Scope::kConnection ? LogLevel::kWarn : LogLevel::kDebug,
        "some of what is read over {} has to go inside messages: {}", connection_->Describe(),
        told.message());
  }
  usable_.emplace(arena.number(), told.ok());
  return told.ok();
}

bool GrantLane::passive() const {
  return connection_ != nullptr && connection_->capabilities().passive_progress;
}

std::uint32_t GrantLane::inline_bytes() const {
  // Where the peer's READ is answered by our loop anyway, a second exchange costs more than
  // carrying the bytes along. One-sided, a READ costs about as much as copying 16 KiB twice.
  return passive() ? fs::kMaxInlineDataBytes : 16 * 1024;
}

}  // namespace rdfs::server
