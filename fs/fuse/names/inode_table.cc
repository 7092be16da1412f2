#include "fs/fuse/names/inode_table.h"

#include <algorithm>
#include <utility>

namespace rdfs::fs::fuse {

InodeTable::InodeTable(const Handle& root) {
  Node node;
  node.handle = root;
  node.lookups = 1;  // the kernel never forgets the root
  nodes_.emplace(kRootNode, std::move(node));
  by_handle_.emplace(root, kRootNode);
}

const InodeTable::Node* InodeTable::FindLocked(NodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

InodeTable::Node* InodeTable::FindLocked(NodeId node) {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

void InodeTable::RemovePlaceLocked(const PlaceKey& place) {
  const auto found = by_place_.find(place);
  if (found == by_place_.end()) return;
  const PlaceKey gone = found->first;  // `place` may be the node's own
  if (Node* node = FindLocked(found->second)) std::erase(node->places, gone);
  by_place_.erase(found);
  if (Node* parent = FindLocked(gone.parent)) {
    --parent->children;
    EraseIfUnusedLocked(gone.parent);
  }
}

void InodeTable::AddPlaceLocked(NodeId id, PlaceKey place) {
  Node* node = FindLocked(id);
  if (id == kRootNode || node == nullptr) return;
  if (!node->places.empty() && node->places.back() == place) return;
  // Another file may have been there before, or this one, but not last.
  RemovePlaceLocked(place);
  if (node->places.size() == kMostPlaces) RemovePlaceLocked(node->places.front());
  // A parent that is not known has nothing to count: its number is nobody else's, ever.
  if (Node* parent = FindLocked(place.parent)) ++parent->children;
  node->places.push_back(place);
  by_place_[std::move(place)] = id;
}

// An open file's directory may be forgotten before the file, when its name has changed elsewhere;
// a server that was started again needs the whole way.
void InodeTable::EraseIfUnusedLocked(NodeId id) {
  const Node* node = FindLocked(id);
  if (node == nullptr || id == kRootNode || node->lookups > 0 || node->children > 0) return;
  while (!nodes_.at(id).places.empty()) RemovePlaceLocked(nodes_.at(id).places.back());
  by_handle_.erase(nodes_.at(id).handle);
  nodes_.erase(id);
}

std::optional<NodeId> InodeTable::FindNode(const Handle& handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return std::nullopt;
  return found->second;
}

NodeId InodeTable::Remember(const Handle& handle, NodeId parent, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = by_handle_.try_emplace(handle, next_);
  const NodeId id = entry->second;
  if (added) {
    ++next_;
    nodes_[id].handle = handle;
  }
  ++nodes_[id].lookups;
  if (!name.empty()) AddPlaceLocked(id, {parent, std::string(name)});
  return id;
}

void InodeTable::Forget(NodeId id, std::uint64_t lookups) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr || id == kRootNode) return;
  node->lookups -= std::min(node->lookups, lookups);
  EraseIfUnusedLocked(id);
}

std::optional<Handle> InodeTable::Find(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  if (node == nullptr) return std::nullopt;
  return node->handle;
}

std::optional<InodeTable::Place> InodeTable::FindPlace(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  if (node == nullptr || node->places.empty()) return std::nullopt;
  const PlaceKey& last = node->places.back();
  const Node* parent = FindLocked(last.parent);
  if (parent == nullptr) return std::nullopt;
  return Place{parent->handle, last.name};
}

void InodeTable::Renamed(NodeId parent, std::string_view name, NodeId new_parent,
                         std::string_view new_name, bool exchange) {
  const std::lock_guard lock(mutex_);
  const PlaceKey from{parent, std::string(name)}, to{new_parent, std::string(new_name)};
  const auto at = [this](const PlaceKey& place) -> NodeId {
    const auto found = by_place_.find(place);
    return found == by_place_.end() ? 0 : found->second;
  };
  const NodeId moved = at(from), other = at(to);
  if (moved == other) return;  // nothing known, or two names of one file
  // The new ones first: without a place a directory may be nobody's any more.
  if (moved != 0) AddPlaceLocked(moved, to);
  if (other != 0 && exchange) AddPlaceLocked(other, from);
  if (moved == 0) RemovePlaceLocked(to);
  if (other == 0 || !exchange) RemovePlaceLocked(from);
}

void InodeTable::Removed(NodeId parent, std::string_view name) {
  const std::lock_guard lock(mutex_);
  RemovePlaceLocked({parent, std::string(name)});
}

std::optional<InodeTable::Path> InodeTable::PathLocked(const PlaceKey& place) const {
  Path steps;
  const PlaceKey* at = &place;
  // Hints may be out of date and even form a ring: no path is longer than there are nodes.
  while (steps.size() <= nodes_.size()) {
    const Node* parent = FindLocked(at->parent);
    const auto child = by_place_.find(*at);
    if (parent == nullptr || child == by_place_.end()) return std::nullopt;
    steps.push_back({parent->handle, at->name, nodes_.at(child->second).handle});
    if (at->parent == kRootNode) {
      std::ranges::reverse(steps);
      return steps;
    }
    if (parent->places.empty()) return std::nullopt;
    at = &parent->places.back();
  }
  return std::nullopt;
}

std::optional<InodeTable::Path> InodeTable::PathTo(NodeId id) const {
  const std::optional<Handle> handle = Find(id);
  std::vector<Path> ways = handle ? WaysTo(*handle) : std::vector<Path>();
  if (ways.empty()) return std::nullopt;
  return std::move(ways.front());
}

std::vector<InodeTable::Path> InodeTable::WaysTo(const Handle& handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return {};
  if (found->second == kRootNode) return {Path()};
  std::vector<Path> ways;
  const Node& node = nodes_.at(found->second);
  for (auto place = node.places.rbegin(); place != node.places.rend(); ++place) {
    if (auto path = PathLocked(*place)) ways.push_back(*std::move(path));
  }
  return ways;
}

bool InodeTable::Opened(NodeId id, std::uint64_t change, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return false;
  ++node->opens;
  const bool same = node->pages_change == change;
  const bool only_ours = node->changed_since && node->lease_covers && now < node->covered_until();
  const bool others_changed_it = !same && node->may_have_pages && !only_ours;
  if (others_changed_it) {
    node->pages_go_until = now + kAnswerTravel;
    ++node->standing;
  }
  const bool keeps = same && now >= node->pages_go_until;
  if (!keeps) ++node->pages_gone;
  node->pages_change = change;
  node->changed_since = false;
  node->lease_covers = now < node->lease_until && node->leased_change == change;
  return keeps;
}

void InodeTable::Closed(NodeId id) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  if (node->opens > 0) --node->opens;
  node->write_lease_until = {};
  node->covers_until = {};
}

std::uint64_t InodeTable::pages_change(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node == nullptr ? 0 : node->pages_change;
}

bool InodeTable::SetLease(NodeId id, TimePoint until, std::uint64_t change,
                          std::chrono::nanoseconds lease, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return true;
  if (until - lease < node->changed_at) return false;
  // Another cookie than the one that a lease vouches for: that lease is over.
  const bool contradicts = node->leased_change != 0 && node->leased_change != change;
  if (until <= node->lease_until && !contradicts) return true;
  if (contradicts) ++node->standing;
  const TimePoint covered = node->covered_until();
  const bool goes_on = until - lease < covered && now < covered && !contradicts;
  if (goes_on && node->lease_covers) {
    node->pages_change = change;
    node->changed_since = false;
  } else {
    if (!goes_on) node->lease_began = now;
    node->lease_covers = change != 0 && node->pages_change == change;
    if (node->lease_covers) node->changed_since = false;
  }
  node->lease_until = until;
  node->leased_change = change;
  return true;
}

void InodeTable::EndLease(NodeId id) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  EndLease(*node);
}

void InodeTable::EndLease(Node& node) {
  ++node.standing;
  node.lease_until = {};
  node.lease_covers = false;
  node.write_lease_until = {};
  node.covers_until = {};
  node.without_xattrs = 0;
}

void InodeTable::SetWriteLease(NodeId id, TimePoint until, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  node->write_lease_until = until;
  if (now < node->covered_until()) node->covers_until = std::max(node->covers_until, until);
}

TimePoint InodeTable::write_lease_until(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node == nullptr ? TimePoint{} : node->write_lease_until;
}

void InodeTable::OwnChange(NodeId id, TimePoint now, bool content) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  ++node->standing;
  node->changed_at = now;
  node->leased_change = 0;
  if (content) node->changed_since = true;
}

std::uint64_t InodeTable::pages_gone(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node == nullptr ? 0 : node->pages_gone;
}

bool InodeTable::ChangedLately(NodeId id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && now < node->changed_at + kLately;
}

TimePoint InodeTable::lease_until(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node == nullptr ? TimePoint{} : node->lease_until;
}

bool InodeTable::PagesAreCurrent(NodeId id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && now < node->lease_until && now >= node->pages_go_until &&
         node->leased_change != 0 && node->leased_change == node->pages_change;
}

bool InodeTable::PagesHold(NodeId id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && now < node->lease_until && now >= node->pages_go_until &&
         node->lease_covers;
}

bool InodeTable::PagesAreOld(NodeId id, std::uint64_t change, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  if (node == nullptr || !node->may_have_pages || node->opens == 0) return false;
  if (!node->changed_since) return node->pages_change != change;
  return !node->lease_covers || now >= node->covered_until();
}

// What was read again while that went on may be older than a lease that began meanwhile.
void InodeTable::PagesDropped(NodeId id, std::uint64_t change, TimePoint started, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  ++node->pages_gone;
  node->lease_covers = now < node->lease_until && node->lease_began <= started;
  node->pages_change = node->lease_covers ? node->leased_change : change;
  node->changed_since = node->lease_covers && node->pages_change == 0;
}

bool InodeTable::Tell(NodeId id, const AttrWire& attr, std::optional<TimePoint> now) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return false;
  auto& told = node->told;
  const bool same = told.known && told.size == attr.size && told.mode == attr.mode &&
                    told.uid == attr.uid && told.gid == attr.gid;
  if (same) return !now || *now >= told.since;
  told = {.known = true,
          .mode = attr.mode,
          .uid = attr.uid,
          .gid = attr.gid,
          .size = attr.size,
          .since = now ? *now + kAnswerTravel : TimePoint{}};
  return false;
}

bool InodeTable::MayEndBefore(NodeId id, const End& end) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  if (node == nullptr || end.at == 0 || node->cut_at >= end.asked) return false;
  return !node->told.known || node->told.size < end.at;
}

void InodeTable::Cut(NodeId id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->cut_at = now;
}

void InodeTable::Written(NodeId id, std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->told.size = std::max<std::uint64_t>(node->told.size, end);
}

void InodeTable::EndsAt(NodeId id, std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node != nullptr && end < node->told.size) node->told.known = false;
}

void InodeTable::ForgetTold(NodeId id) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->told.known = false;
}

bool InodeTable::may_have_pages(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && node->may_have_pages;
}

void InodeTable::SetMayHavePages(NodeId id) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->may_have_pages = true;
}

std::optional<InodeTable::Standing> InodeTable::FindStanding(NodeId id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  if (node == nullptr || now >= node->lease_until) return std::nullopt;
  return Standing{.number = node->standing, .until = node->lease_until};
}

void InodeTable::EndStanding(NodeId id) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) ++node->standing;
}

void InodeTable::SetWithoutXattr(NodeId id, std::uint8_t xattrs, TimePoint asked) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr || asked < node->changed_at) return;
  if (asked >= node->without_until) node->without_xattrs = 0;
  if (node->without_xattrs == 0) node->without_until = node->lease_until;
  node->without_xattrs |= xattrs;
}

bool InodeTable::KnownWithoutXattr(NodeId id, std::uint8_t xattrs, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && (node->without_xattrs & xattrs) != 0 && now < node->without_until;
}

void InodeTable::ForgetXattrs(NodeId id) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->without_xattrs = 0;
}

std::optional<NodeId> InodeTable::FindChild(NodeId parent, std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_place_.find({parent, std::string(name)});
  if (found == by_place_.end()) return std::nullopt;
  return found->second;
}

bool InodeTable::KnownWithoutCapability(NodeId id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && now < node->no_capability_until;
}

void InodeTable::SetWithoutCapability(NodeId id, TimePoint asked, TimePoint until) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node != nullptr && asked >= node->changed_at) node->no_capability_until = until;
}

void InodeTable::ForgetCapability(NodeId id) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->no_capability_until = {};
}

void InodeTable::SetRemovedDirectory(NodeId node, const AttrWire& attr) {
  const std::lock_guard lock(mutex_);
  if (Node* found = FindLocked(node)) found->removed = std::make_unique<AttrWire>(attr);
}

std::optional<AttrWire> InodeTable::removed_directory(NodeId node) const {
  const std::lock_guard lock(mutex_);
  const Node* found = FindLocked(node);
  if (found == nullptr || found->removed == nullptr) return std::nullopt;
  return *found->removed;
}

bool InodeTable::may_be_locked(NodeId node) const {
  const std::lock_guard lock(mutex_);
  const Node* found = FindLocked(node);
  return found != nullptr && found->may_be_locked;
}

void InodeTable::SetMayBeLocked(NodeId node) {
  const std::lock_guard lock(mutex_);
  if (Node* found = FindLocked(node)) found->may_be_locked = true;
}

std::vector<NodeId> InodeTable::EndAllLeases() {
  std::vector<NodeId> all;
  const std::lock_guard lock(mutex_);
  all.reserve(nodes_.size());
  for (auto& [id, node] : nodes_) {
    EndLease(node);
    node.no_capability_until = {};
    all.push_back(id);
  }
  return all;
}

std::vector<NodeId> InodeTable::All() const {
  std::vector<NodeId> all;
  const std::lock_guard lock(mutex_);
  all.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) all.push_back(id);
  return all;
}

std::size_t InodeTable::size() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

}  // namespace rdfs::fs::fuse
