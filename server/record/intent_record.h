// What an intent remembers, and what to do about one that a crash left open. Pure values.
#pragma once

#include <cstdint>
#include <optional>

#include "fs/protocol.h"
#include "server/pool/extent_version.h"
#include "transport/base/bytes.h"

namespace rdfs::server {

// What was true of one name or inode at one moment, as far as the operation is concerned. Fields
// that do not matter to the operation stay 0 on both sides.
struct ObjectState {
  bool exists = false;     // the name, or for xattrs the attribute
  FileId id{};             // of what the name refers to
  std::uint32_t type = 0;  // S_IFMT bits
  std::uint64_t links = 0;
  std::uint64_t size = 0;
  std::uint64_t birth_ns = 0;  // STATX_BTIME since 1970, 0: unknown
  friend bool operator==(const ObjectState&, const ObjectState&) = default;
};

// The state that an operation starts from, or is found in later: `first` is the name or file that
// it is about, `second` a rename's new name, or the inode that a link gives another name to.
struct PriorState {
  ObjectState first{}, second{};
  std::uint64_t at_ns = 0;  // CLOCK_REALTIME
  // False: a directory or file of the request could not be found, so that nothing is known. Not in
  // the ring.
  bool known = true;
};

// As it stands in the ring.
struct ObjectStateWire {
  Le64 device, inode, generation, links, size, birth_ns;
  Le32 type, exists;
};
struct PriorStateWire {
  ObjectStateWire first, second;
  Le64 at_ns;
  static PriorStateWire From(const PriorState& state);
  [[nodiscard]] PriorState ToState() const;
};
static_assert(sizeof(PriorStateWire) == 120);

enum class Resolution : std::uint8_t {
  kRepeat,     // it did not happen, or doing it again changes nothing
  kDone,       // it happened: answer as if it had just been done
  kAmbiguous,  // nobody can tell: answer EIO, never do it again
};

struct InterruptedIntent {
  fs::Opcode opcode{};
  PriorState before;
  // What of the arguments decides (the request was sent again with the same digest, so they are at
  // hand): for kWrite and kCommit whether it appends; rename's, create's and xattr's flags;
  // fallocate's mode; a length where one counts.
  std::uint32_t flags = 0;
  std::uint64_t length = 0;
};

// `now` is the state found after the restart. `content_matches`: of an append whose file has grown
// by its length, whether the bytes there are those of the request; of an xattr, whether the value
// is; nullopt: not looked at.
Resolution Resolve(const InterruptedIntent& intent, const PriorState& now,
                   std::optional<bool> content_matches);
// Of a request that an earlier server may have carried out or not, and of which there is no record
// any more: `intent.before` says nothing.
Resolution ResolveUnrecorded(const InterruptedIntent& intent, const PriorState& now);

}  // namespace rdfs::server
