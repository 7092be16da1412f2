#include "server/record/intent_record.h"

#include <sys/stat.h>

namespace rdfs::server {
namespace {

ObjectStateWire ToWire(const ObjectState& state) {
  return {.device = state.id.device,
          .inode = state.id.inode,
          .generation = state.id.generation,
          .links = state.links,
          .size = state.size,
          .birth_ns = state.birth_ns,
          .type = state.type,
          .exists = state.exists ? 1U : 0U};
}

ObjectState FromWire(const ObjectStateWire& wire) {
  return {.exists = wire.exists != 0,
          .id = {.device = wire.device, .inode = wire.inode, .generation = wire.generation},
          .type = wire.type,
          .links = wire.links,
          .size = wire.size,
          .birth_ns = wire.birth_ns};
}

// fallocate(2)'s FALLOC_FL_COLLAPSE_RANGE and FALLOC_FL_INSERT_RANGE; setxattr(2)'s XATTR_CREATE.
constexpr std::uint32_t kCollapse = 8;
constexpr std::uint32_t kInsert = 32;
constexpr std::uint32_t kCreateOnly = 1;

// Clocks of the file system and of this process may differ by a tick.
constexpr std::uint64_t kTickNs = 20'000'000;

// File systems give the number of an inode that is gone to the next one at once.
bool SameInode(const ObjectState& a, const ObjectState& b) {
  const bool born_together = a.birth_ns == 0 || b.birth_ns == 0 || a.birth_ns == b.birth_ns;
  return a.id == b.id && born_together;
}

bool SameObject(const ObjectState& a, const ObjectState& b) {
  return a.exists == b.exists && (!a.exists || SameInode(a, b));
}

// Something new was to come to a name that was free.
Resolution ResolveMake(const InterruptedIntent& intent, const PriorState& now, std::uint32_t type) {
  if (intent.before.first.exists || !now.first.exists) return Resolution::kRepeat;
  // Somebody has made it since. It was us if it is what we make and was born after we began.
  const bool born_since =
      now.first.birth_ns != 0 && now.first.birth_ns + kTickNs >= intent.before.at_ns;
  const bool of_type = type == 0 || now.first.type == type;
  return born_since && of_type ? Resolution::kDone : Resolution::kAmbiguous;
}

// `second` is the inode that gets another name.
Resolution ResolveLink(const InterruptedIntent& intent, const PriorState& now) {
  if (intent.before.first.exists || !now.first.exists) return Resolution::kRepeat;
  return SameInode(now.first, intent.before.second) ? Resolution::kDone : Resolution::kAmbiguous;
}

Resolution ResolveRemove(const InterruptedIntent& intent, const PriorState& now) {
  if (!intent.before.first.exists) return Resolution::kRepeat;
  if (!now.first.exists) return Resolution::kDone;
  return SameInode(now.first, intent.before.first) ? Resolution::kRepeat : Resolution::kAmbiguous;
}

Resolution ResolveRename(const InterruptedIntent& intent, const PriorState& now) {
  const ObjectState& from = intent.before.first;
  const ObjectState& to = intent.before.second;
  // Nothing to rename, or both names of one file already: repeating does what it would have done.
  if (!from.exists || SameObject(from, to)) return Resolution::kRepeat;
  if (SameObject(now.first, from) && SameObject(now.second, to)) return Resolution::kRepeat;
  if (!SameObject(now.second, from)) return Resolution::kAmbiguous;
  const bool exchange = (intent.flags & fs::kRenameExchange) != 0;
  const bool whiteout = (intent.flags & fs::kRenameWhiteout) != 0;
  if (exchange) return SameObject(now.first, to) ? Resolution::kDone : Resolution::kAmbiguous;
  if (whiteout) {
    return now.first.exists && now.first.type == S_IFCHR ? Resolution::kDone
                                                         : Resolution::kAmbiguous;
  }
  return now.first.exists ? Resolution::kAmbiguous : Resolution::kDone;
}

Resolution ResolveWrite(const InterruptedIntent& intent, const PriorState& now,
                        std::optional<bool> content_matches) {
  if ((intent.flags & fs::kWriteAppend) == 0) return Resolution::kRepeat;
  const std::uint64_t before = intent.before.first.size;
  if (now.first.size == before) return Resolution::kRepeat;
  const bool grown_by_it = intent.length <= ~before && now.first.size == before + intent.length;
  return grown_by_it && content_matches == true ? Resolution::kDone : Resolution::kAmbiguous;
}

Resolution ResolveFallocate(const InterruptedIntent& intent, const PriorState& now) {
  if ((intent.flags & (kCollapse | kInsert)) == 0) return Resolution::kRepeat;
  const std::uint64_t before = intent.before.first.size;
  if (now.first.size == before) return Resolution::kRepeat;
  const bool collapsed = (intent.flags & kCollapse) != 0 && before >= intent.length &&
                         now.first.size == before - intent.length;
  const bool inserted = (intent.flags & kInsert) != 0 && intent.length <= ~before &&
                        now.first.size == before + intent.length;
  return collapsed || inserted ? Resolution::kDone : Resolution::kAmbiguous;
}

Resolution ResolveSetXattr(const InterruptedIntent& intent, const PriorState& now,
                           std::optional<bool> content_matches) {
  const bool create_only = (intent.flags & kCreateOnly) != 0;
  if (!create_only || intent.before.first.exists || !now.first.exists) return Resolution::kRepeat;
  return content_matches == true ? Resolution::kDone : Resolution::kAmbiguous;
}

}  // namespace

PriorStateWire PriorStateWire::From(const PriorState& state) {
  return {.first = ToWire(state.first), .second = ToWire(state.second), .at_ns = state.at_ns};
}

PriorState PriorStateWire::ToState() const {
  return {.first = FromWire(first), .second = FromWire(second), .at_ns = at_ns};
}

Resolution Resolve(const InterruptedIntent& intent, const PriorState& now,
                   std::optional<bool> content_matches) {
  switch (intent.opcode) {
    case fs::Opcode::kWrite:
    case fs::Opcode::kCommit:
      return ResolveWrite(intent, now, content_matches);
    case fs::Opcode::kMkdir:
      return ResolveMake(intent, now, S_IFDIR);
    case fs::Opcode::kSymlink:
      return ResolveMake(intent, now, S_IFLNK);
    case fs::Opcode::kMknod:
      return ResolveMake(intent, now, 0);
    case fs::Opcode::kCreate:
      // Without O_EXCL a file that is there is opened, whoever made it; but ours as who makes it,
      // whom its mode does not bind.
      if (const Resolution made = ResolveMake(intent, now, S_IFREG);
          made == Resolution::kDone || (intent.flags & fs::kOpenExclusive) != 0) {
        return made;
      }
      return Resolution::kRepeat;
    case fs::Opcode::kLink:
      return ResolveLink(intent, now);
    case fs::Opcode::kUnlink:
    case fs::Opcode::kRmdir:
      return ResolveRemove(intent, now);
    case fs::Opcode::kRename:
      return ResolveRename(intent, now);
    case fs::Opcode::kFallocate:
      return ResolveFallocate(intent, now);
    case fs::Opcode::kSetXattr:
      return ResolveSetXattr(intent, now, content_matches);
    case fs::Opcode::kRemoveXattr:
      if (!intent.before.first.exists) return Resolution::kRepeat;
      return now.first.exists ? Resolution::kRepeat : Resolution::kDone;
    default:
      // Absolute: attributes, fsync, copies to a place, opens and locks. Twice is as good as once.
      return Resolution::kRepeat;
  }
}

Resolution ResolveUnrecorded(const InterruptedIntent& intent, const PriorState& now) {
  const auto repeat_if = [](bool safe) {
    return safe ? Resolution::kRepeat : Resolution::kAmbiguous;
  };
  switch (intent.opcode) {
    case fs::Opcode::kWrite:
    case fs::Opcode::kCommit:
      return repeat_if((intent.flags & fs::kWriteAppend) == 0);
    case fs::Opcode::kMkdir:
    case fs::Opcode::kSymlink:
    case fs::Opcode::kMknod:
    case fs::Opcode::kLink:
      return repeat_if(!now.first.exists);
    case fs::Opcode::kCreate:
      return repeat_if(!now.first.exists || (intent.flags & fs::kOpenExclusive) == 0);
    case fs::Opcode::kUnlink:
    case fs::Opcode::kRmdir:
    case fs::Opcode::kRemoveXattr:
      return repeat_if(now.first.exists);
    case fs::Opcode::kRename:
      // What was done left the first name free, but for these two.
      return repeat_if(now.first.exists &&
                       (intent.flags & (fs::kRenameExchange | fs::kRenameWhiteout)) == 0);
    case fs::Opcode::kFallocate:
      return repeat_if((intent.flags & (kCollapse | kInsert)) == 0);
    case fs::Opcode::kSetXattr:
      return repeat_if((intent.flags & kCreateOnly) == 0 || !now.first.exists);
    default:
      return Resolution::kRepeat;  // absolute, as above
  }
}

}  // namespace rdfs::server
