// What happens on a connection before a lane may use it: AttachLane, and reclaiming open files.
//
// Blocking, on the mount's thread (or the caller's, for a lane's first connection): one request at
// a time, with a deadline. The connection is over after any error.
#pragma once

#include <span>
#include <string_view>

#include "fs/client/mailbox.h"
#include "fs/client/open_file.h"
#include "fs/client/session_state.h"
#include "fs/client/types.h"

namespace rdfs::fs::client {

class Attacher {
 public:
  // `link` has connection, session and epoch set; it outlives this. `cell` of `sequences` is the
  // caller's alone during the attacher's life.
  Attacher(LaneLink& link, SequenceCounter& sequences, std::size_t cell, Deadline deadline)
      : link_(link), sequences_(sequences), cell_(cell), deadline_(deadline) {}

  // Asks for staging, fills in the rest of the link; tells the server which `transport` the session
  // uses and why (Session::ExplainChoice). Errors: kDisconnected and others of the connection,
  // kDeadlineExceeded, kProtocolError; kUnknownSession of the server as kNotFound.
  Status Attach(std::uint32_t lane, std::uint32_t staging_bytes, std::string_view transport);
  enum class Reclaimed : std::uint8_t {
    kSettled,       // known under a new number, or gone for good (it, or a lock): marked as lost
    kWithoutLocks,  // known; others are waited for before the server gives locks (kGrace)
    kNotNow,        // the server could not (an I/O error, no descriptors left): worth asking again
    kRefused,       // it may not (permissions): whoever uses the file asks again, and is told why
  };
  // Makes the server know `open` and its locks again, under a new number. `finder`, where there is
  // one, tells the way to a file that the server does not know by handle. Errors: as Attach.
  Result<Reclaimed> Reclaim(OpenFile& open, const PathFinder& finder);
  // In a grace period: all that there was has been reclaimed, nobody needs to wait for us.
  Status EndGrace();
  // Says goodbye, over a connection that other answers may still come on.
  Status EndSession();

 private:
  struct Answer {
    WireError error;
    ByteSpan body;  // valid until the next call
  };
  // `owner`, where there is one, is who asks.
  Result<Answer> Ask(Opcode opcode, ByteSpan body, const OpenFile* owner = nullptr,
                     ByteSpan extension = {});
  Result<Answer> AskToReclaim(const OpenFile& open);
  Result<Reclaimed> ReclaimLocks(OpenFile& open);
  // Looks every name on the way up, which makes the server know the handles; kStale when they do
  // not lead to the same files any more.
  Result<WireError> Walk(const OpenFile& open, const std::vector<PathStep>& steps);
  Result<std::optional<Answer>> OnMessage(ByteSpan message, Opcode opcode, std::uint64_t sequence);

  LaneLink& link_;
  SequenceCounter& sequences_;
  const std::size_t cell_;
  const Deadline deadline_;
  std::vector<std::byte> answer_;
  bool ending_ = false;
};

// Whether the server may answer otherwise when it is asked again a moment later.
bool MayPass(int errno_value);

// What makes `open` known to the server again: the opcode, and its body into `writer`.
Opcode EncodeReclaim(const OpenFile& open, ByteWriter& writer);
// Names that lead from the root to the file, best first: to where it was seen, and to where it was
// opened.
std::vector<Path> WaysTo(const OpenFile& open, const PathFinder& finder);
inline constexpr std::size_t kMaxReclaimBytes =
    sizeof(ReclaimOpenRequest) + 2 * (2 + kMaxHandleBytes) + 2 + kMaxNameBytes;

// The body of kReclaimLock.
LockRequest EncodeReclaimLock(const OpenFile& open, const HeldLocks::Held& held);
// One of its locks was refused: somebody else may have it by now, so the file answers EIO.
void LoseLock(OpenFile& open);

// What may follow the body of a message; its bytes are not looked at.
struct Extensions {
  ByteSpan directories;  // kExtensionDirectories
};
// False where they are malformed, or one must be understood and is not known.
bool ReadExtensions(ByteReader& reader, Extensions& out);

// Arenas that a server may have announced on one lane at a time.
inline constexpr std::size_t kMaxArenas = 16384;
// Recalls that may come before a lane is attached.
inline constexpr std::size_t kMaxRecalls = 16384;

}  // namespace rdfs::fs::client
