#include "fs/fuse/inode_table.h"

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

void InodeTable::ClearPlaceLocked(NodeId id) {
  Node* node = FindLocked(id);
  if (node == nullptr || node->parent == 0) return;
  const auto found = by_place_.find({node->parent, node->name});
  if (found != by_place_.end() && found->second == id) by_place_.erase(found);
  const NodeId above = std::exchange(node->parent, 0);
  node->name.clear();
  if (Node* parent = FindLocked(above); parent != nullptr) {
    --parent->children;
    EraseIfUnusedLocked(above);
  }
}

// An open file's directory may be forgotten before the file, when its name has changed elsewhere;
// a server that was started again needs the whole way.
void InodeTable::EraseIfUnusedLocked(NodeId id) {
  const Node* node = FindLocked(id);
  if (node == nullptr || id == kRootNode || node->lookups > 0 || node->children > 0) return;
  ClearPlaceLocked(id);
  by_handle_.erase(nodes_.at(id).handle);
  nodes_.erase(id);
}

void InodeTable::SetPlaceLocked(NodeId id, NodeId parent, std::string_view name) {
  Node* node = FindLocked(id);
  if (id == kRootNode || node == nullptr) return;
  if (node->parent == parent && node->name == name) return;
  ClearPlaceLocked(id);
  PlaceKey key{parent, std::string(name)};
  const auto previous = by_place_.find(key);
  // Another file was there before: it has lost this name, and keeps no place until it is seen
  // again.
  if (previous != by_place_.end()) ClearPlaceLocked(previous->second);
  // One that is not known has nothing to count: its number is nobody else's, ever.
  if (Node* above = FindLocked(parent); above != nullptr) ++above->children;
  node->parent = parent;
  node->name = name;
  by_place_[std::move(key)] = id;
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
  if (!name.empty()) SetPlaceLocked(id, parent, name);
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
  if (node == nullptr || node->parent == 0) return std::nullopt;
  const Node* parent = FindLocked(node->parent);
  if (parent == nullptr) return std::nullopt;
  return Place{parent->handle, node->name};
}

void InodeTable::Renamed(NodeId parent, std::string_view name, NodeId new_parent,
                         std::string_view new_name, bool exchange) {
  const std::lock_guard lock(mutex_);
  const auto at = [this](NodeId where, std::string_view what) -> NodeId {
    const auto found = by_place_.find({where, std::string(what)});
    return found == by_place_.end() ? 0 : found->second;
  };
  const NodeId moved = at(parent, name);
  const NodeId other = at(new_parent, new_name);
  if (moved == other) return;  // nothing known, or two names of one file
  if (other != 0) ClearPlaceLocked(other);
  if (moved != 0) SetPlaceLocked(moved, new_parent, new_name);
  if (exchange && other != 0) SetPlaceLocked(other, parent, name);
}

void InodeTable::Removed(NodeId parent, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = by_place_.find({parent, std::string(name)});
  if (found != by_place_.end()) ClearPlaceLocked(found->second);
}

std::optional<std::vector<InodeTable::Step>> InodeTable::PathTo(NodeId id) const {
  const std::lock_guard lock(mutex_);
  std::vector<Step> steps;
  // Hints may be out of date and even form a ring: no path is longer than there are nodes.
  while (id != kRootNode) {
    const Node* node = FindLocked(id);
    if (node == nullptr || node->parent == 0 || steps.size() > nodes_.size()) return std::nullopt;
    const Node* parent = FindLocked(node->parent);
    if (parent == nullptr) return std::nullopt;
    steps.push_back({parent->handle, node->name, node->handle});
    id = node->parent;
  }
  std::ranges::reverse(steps);
  return steps;
}

std::optional<std::vector<InodeTable::Step>> InodeTable::PathTo(const Handle& handle) const {
  NodeId node = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(handle);
    if (found == by_handle_.end()) return std::nullopt;
    node = found->second;
  }
  return PathTo(node);
}

std::uint64_t InodeTable::change_at_open(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node == nullptr ? 0 : node->change_at_open;
}

void InodeTable::set_change_at_open(NodeId id, std::uint64_t change) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->change_at_open = change;
}

void InodeTable::SetLease(NodeId id, TimePoint until, std::uint64_t change,
                          std::chrono::milliseconds lease) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr || until - lease < node->changed_at || until <= node->lease_until) return;
  node->lease_until = until;
  node->leased_change = change;
}

void InodeTable::EndLease(NodeId id) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  node->lease_until = {};
  node->without_xattrs = 0;
}

void InodeTable::OwnChange(NodeId id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Node* node = FindLocked(id);
  if (node == nullptr) return;
  node->changed_at = now;
  node->leased_change = 0;
}

TimePoint InodeTable::lease_until(NodeId id) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node == nullptr ? TimePoint{} : node->lease_until;
}

bool InodeTable::PagesAreCurrent(NodeId id, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const Node* node = FindLocked(id);
  return node != nullptr && now < node->lease_until && node->leased_change != 0 &&
         node->leased_change == node->change_at_open;
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

void InodeTable::SetWithoutCapabilityUntil(NodeId id, TimePoint until) {
  const std::lock_guard lock(mutex_);
  if (Node* node = FindLocked(id)) node->no_capability_until = until;
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

std::vector<NodeId> InodeTable::ForgetCapabilities() {
  std::vector<NodeId> all;
  const std::lock_guard lock(mutex_);
  all.reserve(nodes_.size());
  for (auto& [id, node] : nodes_) {
    node.no_capability_until = {};
    all.push_back(id);
  }
  return all;
}

std::size_t InodeTable::size() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

}  // namespace rdfs::fs::fuse
