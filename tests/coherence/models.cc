#include "tests/coherence/models.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdfs::coherence {

bool RegisterModel::Step(State& state, const Call& call) {
  if (call.write) state = call.value;
  return state == call.value;
}

std::string RegisterModel::Tell(const Call& call) {
  return (call.write ? "write " : "read ") + std::to_string(call.value);
}

bool NamesModel::Step(State& state, const Call& call) {
  std::uint64_t& name = state[call.name];
  std::uint64_t& other = state[call.other];
  switch (call.kind) {
    case Kind::kCreate:
      if (call.error != 0) return call.error == EEXIST && name != 0;
      return std::exchange(name, call.inode) == 0;
    case Kind::kLink:
      if (call.error == ENOENT) return name == 0;
      if (call.error != 0) return call.error == EEXIST && other != 0;
      return name != 0 && std::exchange(other, name) == 0;
    case Kind::kRename:
      if (call.error != 0) return call.error == ENOENT && name == 0;
      // Two names of one inode both stay (rename(2)). A kernel looks both up before it asks: where
      // another mount's rename of the same comes between, it finds one inode, and is done.
      if (name == 0) return other != 0;
      if (name == other) return true;
      other = std::exchange(name, 0);
      return true;
    case Kind::kUnlink:
      if (call.error != 0) return call.error == ENOENT && name == 0;
      return std::exchange(name, 0) != 0;
    case Kind::kLook:
      return name == call.inode;
  }
  return false;
}

std::string NamesModel::Tell(const Call& call) {
  static constexpr std::array kWords{"create", "link", "rename", "unlink", "look at"};
  std::string out = kWords.at(static_cast<std::size_t>(call.kind));
  out += " " + std::to_string(call.name);
  if (call.kind == Kind::kLink || call.kind == Kind::kRename) {
    out += " to " + std::to_string(call.other);
  }
  if (call.error != 0) return out + ": errno " + std::to_string(call.error);
  if (call.inode != 0) out += ": inode " + std::to_string(call.inode);
  return out;
}

bool LocksModel::Step(State& state, const Call& call) {
  const auto of_owner = [&](const Held& held) { return held.owner == call.owner; };
  const auto within = [&](const Held& held) {
    return held.byte >= call.start && held.byte <= call.end;
  };
  const bool conflict = std::ranges::any_of(state, [&](const Held& held) {
    return !of_owner(held) && within(held) && (held.exclusive || call.exclusive);
  });
  const auto drop = [&] {
    std::erase_if(state, [&](const Held& held) { return of_owner(held) && within(held); });
  };
  switch (call.kind) {
    case Kind::kGranted:
      if (conflict) return false;
      drop();
      for (std::uint64_t byte = call.start; byte <= call.end; ++byte) {
        state.push_back({.byte = byte, .owner = call.owner, .exclusive = call.exclusive});
      }
      std::ranges::sort(state);
      return true;
    case Kind::kRefused:
      if (call.flock) drop();
      return conflict;
    case Kind::kUnlock:
      drop();
      return true;
    case Kind::kLost:
      std::erase_if(state, of_owner);
      return true;
  }
  return false;
}

std::string LocksModel::Tell(const Call& call) {
  static constexpr std::array kWords{"granted", "refused", "unlocked", "lost"};
  std::string out = kWords.at(static_cast<std::size_t>(call.kind));
  out += call.exclusive ? " exclusive " : " shared ";
  out += std::to_string(call.start) + "-" + std::to_string(call.end);
  return out + " of owner " + std::to_string(call.owner);
}

}  // namespace rdfs::coherence
