#include "fs/fuse/names/open_ahead.h"

#include <algorithm>

namespace rdfs::fs::fuse {

void OpenAhead::Listed(const std::shared_ptr<Listing>& listing, NodeId directory) {
  if (places_.size() >= kMostKnown) places_.clear();
  places_[directory] = {.listing = listing, .index = listing->directories.size()};
  listing->directories.push_back(directory);
}

std::vector<NodeId> OpenAhead::Opened(NodeId directory, std::uint64_t changes) {
  const auto place = places_.find(directory);
  if (place == places_.end()) return {};
  const auto [listing, index] = place->second;
  places_.erase(place);
  if (listing->changes != changes) return {};
  // The first one alone is no walk yet.
  const std::size_t ahead = listing->ahead;
  listing->ahead = std::clamp<std::size_t>(2 * ahead, 1, kMost);
  listing->next = std::max(listing->next, index + 1);
  const std::size_t end = std::min(index + 1 + ahead, listing->directories.size());
  std::vector<NodeId> wanted;
  for (; listing->next < end; ++listing->next) {
    wanted.push_back(listing->directories[listing->next]);
  }
  return wanted;
}

bool OpenAhead::Ask(NodeId directory, std::uint32_t uid, std::uint32_t gid) {
  return pending_.try_emplace(directory, Pending{.uid = uid, .gid = gid}).second;
}

void OpenAhead::Asked(NodeId directory, client::CallTicket ticket) {
  pending_.at(directory).ticket = ticket;
}

std::optional<client::CallTicket> OpenAhead::Wait(NodeId directory, Request& request) {
  const auto found = pending_.find(directory);
  if (found == pending_.end() || found->second.waiting) return std::nullopt;
  const client::CallContext caller = request.context();
  if (caller.uid != found->second.uid || caller.gid != found->second.gid) return std::nullopt;
  found->second.waiting.emplace(std::move(request));
  return found->second.ticket;
}

std::optional<Request> OpenAhead::Came(NodeId directory) {
  auto node = pending_.extract(directory);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped().waiting);
}

}  // namespace rdfs::fs::fuse
