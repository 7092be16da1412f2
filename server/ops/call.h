// Call: one request while its handler runs, and what a handler says at its end.
//
// Lives on the dispatcher's stack, on the loop's thread. `body`, `extensions` and what is read from
// them are valid until the handler returns; a handler that goes on later (Outcome::Pending) takes
// what it needs and the Responder along.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fs/protocol.h"
#include "server/inode/inode_table.h"
#include "server/loop/lane.h"
#include "server/loop/worker.h"
#include "server/ops/attr.h"
#include "server/ops/responder.h"
#include "server/session/fs_session.h"
#include "transport/base/bytes.h"

namespace rdfs::server {

class [[nodiscard]] Outcome {
 public:
  static Outcome Ok() { return {Kind::kAnswer, fs::WireError::kOk}; }  // the body is in Call::out
  static Outcome Errno(int error) { return {Kind::kAnswer, fs::ToWire(error)}; }
  static Outcome Error(fs::WireError error) { return {Kind::kAnswer, error}; }
  // The Responder was taken.
  static Outcome Pending() { return {Kind::kPending, fs::WireError::kOk}; }
  // No correct client sends this: the connection ends.
  static Outcome Malformed() { return {Kind::kMalformed, fs::WireError::kMalformed}; }

  // Nothing is done yet, and what it would change is not what it was begun for: begin that as well.
  static Outcome Again() { return {Kind::kAgain, fs::WireError::kAgain}; }

  [[nodiscard]] bool again() const { return kind_ == Kind::kAgain; }
  [[nodiscard]] bool pending() const { return kind_ == Kind::kPending; }
  [[nodiscard]] bool malformed() const { return kind_ == Kind::kMalformed; }
  [[nodiscard]] fs::WireError error() const { return error_; }

 private:
  enum class Kind : std::uint8_t { kAnswer, kPending, kMalformed, kAgain };
  Outcome(Kind kind, fs::WireError error) : kind_(kind), error_(error) {}
  Kind kind_;
  fs::WireError error_;
};

struct Call {
  const fs::RequestHeader& header;
  const fs::Opcode opcode;
  ByteReader body;
  ByteWriter out;
  Worker& worker;
  const LanePtr& lane;
  FsSession& session;
  Responder responder;
  // What is looked at from now on is as new as this: for its lease.
  LeaseTable::Stamp since;
  // What Watch came to: for some directory, and for some other.
  mutable bool watched = false, unwatched = false;
  fs::RequestExtensions extensions{};
  // What the answer says of the directories that were changed (kExtensionDirectories).
  std::vector<fs::AttrWire> directories{};

  // A bound of ClientLimits was reached.
  Outcome Refuse(Refusals::What what, int error) const;
  // The session has no place for a further open file, or has ended meanwhile.
  [[nodiscard]] Outcome RefuseOpen() const;

  // Whether the body was read to its end and nothing was missing: the last thing a decoder asks.
  [[nodiscard]] bool Decoded() const { return body.ok() && body.remaining() == 0; }

  [[nodiscard]] Core& core() const { return worker.core; }
  InodeRef Find(const fs::Handle& handle) const {
    InodeRef ref = session.inodes().Find(handle, worker.identity);
    if (ref.ok()) Watch(ref);
    return ref;
  }
  // Before the inode is looked at: who changes it on this host will be noticed, if that can be.
  void Watch(const InodeRef& ref) const;
  // Names in these have changed: the client is told what they are like now, if it wants to know.
  void TellDirectories(std::initializer_list<const InodeRef*> changed);
  // As whom the request acts; nothing: as the server.
  [[nodiscard]] std::optional<Ids> Caller() const {
    return session.ids().Caller({header.uid, header.gid});
  }
  // Without a lease.
  [[nodiscard]] AttrContext attr_context() const {
    return {.ids = session.ids(),
            .root_device = session.inodes().exported().root_device(),
            .lease_ms = 0};
  }
  // For how long the session may believe what this request has found out about a directory; of
  // anything else, what is in its attributes.
  [[nodiscard]] std::uint32_t Lease(const Inode& directory) const {
    return core().leases.Grant(directory.key, session.id(), since, IsWatched(directory));
  }
  [[nodiscard]] fs::AttrWire Attr(const Inode& inode, const struct statx& stat) const;
  [[nodiscard]] fs::Entry EntryOf(const Inode& parent, const InodeRef& ref,
                                  const struct statx& stat) const {
    return {.handle = ref.inode->handle,
            .attr = S_ISDIR(ref.inode->type) ? DirectoryAttr(ref, stat) : Attr(*ref.inode, stat),
            .entry_lease_ms = Lease(parent)};
  }
  Outcome AnswerEntry(const Inode& parent, const InodeRef& ref, const struct statx& stat) {
    fs::WriteEntry(out, EntryOf(parent, ref, stat));
    return Outcome::Ok();
  }
  [[nodiscard]] bool WrittenByAnother(const Inode& inode) const {
    return core().leases.WrittenByAnother(inode.key, session.id());
  }
  // Looks up what the request has just made and answers its entry.
  Outcome AnswerLookup(const InodeRef& parent, const std::string& name) {
    struct statx stat {};
    const InodeRef made = session.inodes().Lookup(parent, name, stat);
    return made.ok() ? AnswerEntry(*parent.inode, made, stat) : Outcome::Errno(made.error);
  }

  // One that was found by its name may not have been watched when it was looked at.
  [[nodiscard]] fs::AttrWire DirectoryAttr(const InodeRef& ref, const struct statx& seen) const;
  // Whether it has been watched since before the request looked at it, and stays so.
  [[nodiscard]] bool IsWatched(const Inode& directory) const;
};

inline std::string NameFrom(ByteSpan name) { return std::string(AsText(name)); }

}  // namespace rdfs::server
