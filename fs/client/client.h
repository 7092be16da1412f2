// The client of one mount, without FUSE: asynchronous calls on a remote directory.
//
//   Mount  the session: one for each mount, shared by all threads. Admission, reconnecting (another
//          lane, another transport, a restarted server), reclaiming open files, counters.
//   Lane   a connection with registered buffers: one for each worker thread, used by that thread
//          only. Every operation of the protocol is a call that returns at once; its callback runs
//          later, inside Poll, exactly once.
//
// A worker's loop, with whatever else it listens to:
//
//   while (running) {
//     bool busy = TakeRequests(lane);              // issues calls
//     busy |= lane.Poll() > 0;                     // runs callbacks, which may issue calls
//     if (busy || !lane.Arm()) continue;           // false: there is something to Poll already
//     poll({fuse_fd, lane.fd()}, until lane.NextTimer());
//   }
//
// Loss of the peer. A call that was not answered when its connection was lost is kept, and sent
// again when the session is back: one that changes something carries its old sequence number and
// kRequestSentBefore, so that the server's record answers and nothing is done twice. A call that is
// still unanswered at its deadline fails once with ETIMEDOUT (it may still be carried out if it was
// sent). New calls wait alike, and succeed when the server is back. An open file that the restarted
// server cannot find again fails with ESTALE from then on. Server errors arrive as Code::kErrno
// with this host's errno and no text; whoever reports to a person adds the sentence.
//
// A hostile server can make calls fail, and lie about its files; it cannot make the client touch
// memory out of bounds, wait for ever or run a callback twice: whatever no correct server sends
// ends that connection.
//
// Mount starts one thread of its own, which sleeps unless a connection has to be made: dialling
// blocks (ssh, name servers), and no worker waits for it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/client/buffer.h"
#include "fs/client/callback.h"
#include "fs/client/open_file.h"
#include "fs/client/types.h"
#include "fs/protocol.h"
#include "transport/base/latency.h"
#include "transport/session/session.h"

namespace rdfs::fs::client {

// Makes a session whose opening words (DialOptions::request; service kServiceName) are `request`,
// in `domain`. Blocks at most until `deadline`. Called on the mount's own thread whenever the
// session must be made anew, never twice at a time: it may launch ssh again.
using DialFunction = std::function<Result<std::unique_ptr<transport::Session>>(
    std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain, Deadline deadline)>;

struct MountOptions {
  DialFunction dial;
  std::string export_name;
  std::string host_name;  // ours: for the server's logs
  std::uint32_t uid = 0, gid = 0;
  std::uint32_t flags = 0;  // kMountReadOnly ...
  // How long a call waits for its answer, reconnecting included. Zero: for ever.
  std::chrono::milliseconds timeout{30'000};
  std::chrono::milliseconds dial_timeout{10'000};  // of one attempt to connect
  std::size_t lane_buffer_bytes = 0;               // 0: LaneBufferBytes
  std::size_t lane_staging_bytes = 0;              // wished for at the server; 0: 4 MiB
  // Writes up to this travel inside their message instead of through a staging slot.
  std::size_t inline_write_bytes = 16 * 1024;
  const Clock* clock = nullptr;  // null: the system's
};

// Counted since the mount; sums of all lanes.
struct Counters {
  std::array<std::uint64_t, 128> round_trips{};  // replies, by opcode
  std::uint64_t read_bytes = 0;                  // one-sided
  std::uint64_t written_bytes = 0;               // one-sided
  std::uint64_t inline_read_bytes = 0;           // inside messages
  std::uint64_t inline_written_bytes = 0;
  std::uint64_t grant_hits = 0;    // reads served from cached grants: no message at all
  std::uint64_t grant_misses = 0;  // reads that had to ask
  std::uint64_t grants_discarded =
      0;                      // one-sided reads that came too late and were asked for again
  std::uint64_t retries = 0;  // requests sent again after a loss
  std::uint64_t connections_lost = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t fallbacks = 0;  // transports that were tried in vain before a lesser one
  std::uint64_t timeouts = 0;
  // Calls that have ended, by opcode, however they ended: from the call to its callback, waiting
  // for a server or for a lock included. Those that nobody waits for, to know grants ahead of
  // reads, are not among them.
  std::array<LatencyHistogram, 128> took{};
};

// What the server said at the (latest) mount request.
struct MountInfo {
  NamedFile root;
  std::uint64_t epoch = 0;
  std::uint32_t flags = 0;                 // kGrantReadOnly ...
  std::chrono::milliseconds lease{};       // the session's
  std::chrono::milliseconds attr_lease{};  // how long a name that is not there may be cached
  std::uint32_t max_transfer_bytes = 0;
  std::string transport;                // Session::ExplainChoice(),
  std::optional<transport::Kind> kind;  // and which that is; none before the first lane
};

// For OpenDir: a first page that is enough for most directories, and not dear to make where
// somebody opens one for fsync or fchdir only.
inline constexpr std::uint32_t kFirstPageBytes = 16 * 1024;

struct OpenedDirectory {
  OpenPtr open;
  DirPage first_page;  // as long as the callback lasts
};

class Lane;

// Somebody else is about to change something that this mount may believe something about.
struct RecallNotice {
  std::uint64_t number = 0;
  Handle handle;
  std::uint32_t parts = 0;  // kRecall... of the protocol
  std::string name{};       // with kRecallName; empty: every name in the directory
  // The server was started anew: everything, the rest says nothing.
  [[nodiscard]] bool everything() const { return number == kRecallEarlier; }
};
// Called inside Poll. Lane::AcknowledgeRecall, on this or another lane, says that it is believed no
// more.
using RecallHandler = std::function<void(Lane&, const RecallNotice&)>;

class Mount {
 public:
  virtual ~Mount() = default;  // after all lanes; may block while a dial attempt ends
  // Dials and is admitted; blocks at most until `deadline`. Errors: what dialling or the server
  // answered, kProtocolError for a grant that no correct server sends.
  static Result<std::unique_ptr<Mount>> Create(MountOptions options, Deadline deadline);

  // A lane for one more worker, connected. Blocks at most until `deadline`; any thread. Errors: as
  // Create, kResourceExhausted (memlock: the message says what to do; or the session's only lane,
  // ssh's stream, is another's). At most kMaxLanes.
  virtual Result<std::unique_ptr<Lane>> OpenLane(Deadline deadline) = 0;
  // One more over the same transport as the others have, for who can do without: it neither dials
  // nor tries another transport. Errors: besides, kUnavailable when the session has none to give
  // (its only lane is ssh's stream, or it is being made anew).
  virtual Result<std::unique_ptr<Lane>> OpenLaneBeside(Deadline deadline) = 0;
  static constexpr std::size_t kMaxLanes = 32;

  // How open files are found again by name after a restart; without it only OpenFile::SetHint
  // tells. Before the first lane.
  virtual void SetPathFinder(PathFinder finder) = 0;

  // Without one every recall is acknowledged at once: for who believes nothing. Before the first
  // lane.
  virtual void SetRecallHandler(RecallHandler handler) = 0;

  [[nodiscard]] virtual MountInfo info() const = 0;     // any thread
  [[nodiscard]] virtual Counters counters() const = 0;  // any thread
  // Why the session is not there at the moment; ok when it is. Any thread.
  [[nodiscard]] virtual Status health() const = 0;

 protected:
  Mount() = default;
};

// A ticket names a call for Cancel. Never reused.
using CallTicket = std::uint64_t;

// One thread uses a lane. No call blocks, and no callback ever runs inside a call (nor inside
// Cancel): callbacks run inside Poll only, may issue calls, and must not call Poll. Names and
// values are copied where a call takes a view; slices and their buffers stay the call's until its
// callback. A name that cannot be one (empty, '/', NUL, "." and "..") fails with EINVAL, one too
// long with ENAMETOOLONG, without a message.
class Lane {
 public:
  // Calls without an answer fail with EIO: their callbacks run inside the destructor. Buffers must
  // be gone. Blocks for the bounded, short time in which the connection ends. The last lane ends
  // the session: open files and locks go.
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // ---- The event loop ---------------------------------------------------------------------------
  // Makes progress, runs callbacks; returns how many ran. Hands what was issued to the wire.
  virtual std::size_t Poll() = 0;
  // Its caller has just read the clock: up to the end of the next Poll, or until Arm says true, the
  // lane takes that for the time, and reads the clock only where a stale time could make a lease
  // seem longer than it is. Without this it reads the clock for each call.
  virtual void AsOf(TimePoint now) = 0;
  // That time; the clock's own where none was told.
  [[nodiscard]] virtual TimePoint Now() const = 0;
  // Hands what was issued to the wire without polling; for a worker that goes on to do other
  // things.
  virtual void Flush() = 0;
  // Prepares to sleep: flushes; false when there is something to Poll already. After true, fd()
  // gets readable when there is.
  virtual bool Arm() = 0;
  [[nodiscard]] virtual int fd() const = 0;  // POLLIN, level-triggered, constant for life
  // When Poll must be called next though nothing arrives. TimePoint::max(): never.
  [[nodiscard]] virtual TimePoint NextTimer() const = 0;
  // Any thread: Arm returns false and fd() gets readable once more.
  virtual void Wake() = 0;
  // False while the connection is being made anew: calls wait.
  [[nodiscard]] virtual bool connected() const = 0;
  // Whether a Write of so many bytes would go out whole with the next flush, ahead of no answer.
  [[nodiscard]] virtual bool SendsWriteAtOnce(std::uint32_t bytes) const = 0;
  [[nodiscard]] virtual std::size_t calls_in_flight() const = 0;
  // How many requests the server has been sent so far.
  [[nodiscard]] virtual std::uint64_t requests_sent() const = 0;
  // The shortest time from a request to its answer on this connection; zero before the first.
  [[nodiscard]] virtual std::chrono::nanoseconds round_trip() const = 0;
  // "shm ...": the connection's own description; empty while there is none.
  [[nodiscard]] virtual std::string Describe() const = 0;

  // Gives a call up: what waits at the server (a lock) is interrupted there, what was not sent or
  // has no connection ends with EINTR, and anything else may still end either way. Its callback
  // runs exactly once all the same. An unknown or finished ticket is ignored.
  virtual void Cancel(CallTicket ticket) = 0;
  // As Cancel, from another thread: a FUSE interrupt arrives wherever it likes.
  virtual void CancelFromAnyThread(CallTicket ticket) = 0;
  // Nobody waits for the call any more: it ends with EINTR, whatever the server still does of it,
  // as it would at its deadline. One-sided operations under way are waited for.
  virtual void Abandon(CallTicket ticket) = 0;

  // Inside the callback of a call that changed names and was made with `tell_directories`: what the
  // server says that their directories are like since, in the call's order. None where it has not
  // said, and for any other trace.
  [[nodiscard]] virtual std::span<const Attributes> DirectoriesTold(std::uint64_t trace) const = 0;

  // What was recalled under this number is believed no more.
  virtual void AcknowledgeRecall(std::uint64_t number) = 0;

  // GetAttr or SetAttr have told that this is the file's change cookie now: what the server grants
  // since is as new. If it was another one when the file was opened, or when this was called last,
  // no read that begins from now on, on any lane, is answered from what was granted before.
  virtual void SeeChange(const Handle&, std::uint64_t change) = 0;

  // ---- Registered memory ------------------------------------------------------------------------
  [[nodiscard]] virtual BufferPool& buffers() = 0;

  // ---- Names ------------------------------------------------------------------------------------
  virtual CallTicket Lookup(const CallContext&, const Handle& parent, std::string_view name,
                            Callback<NamedFile> done) = 0;
  virtual CallTicket Readlink(const CallContext&, const Handle&,
                              Callback<std::string_view> done) = 0;
  virtual CallTicket Symlink(const CallContext&, const Handle& parent, std::string_view name,
                             std::string_view target, Callback<NamedFile> done) = 0;
  virtual CallTicket Mknod(const CallContext&, const Handle& parent, std::string_view name,
                           std::uint32_t mode, std::uint32_t umask, DeviceNumber device,
                           Callback<NamedFile> done) = 0;
  virtual CallTicket Mkdir(const CallContext&, const Handle& parent, std::string_view name,
                           std::uint32_t mode, std::uint32_t umask, Callback<NamedFile> done) = 0;
  virtual CallTicket Unlink(const CallContext&, const Handle& parent, std::string_view name,
                            DoneCallback done) = 0;
  virtual CallTicket Rmdir(const CallContext&, const Handle& parent, std::string_view name,
                           DoneCallback done) = 0;
  // `flags`: kRename... of the protocol.
  virtual CallTicket Rename(const CallContext&, const Handle& old_parent, std::string_view old_name,
                            const Handle& new_parent, std::string_view new_name,
                            std::uint32_t flags, DoneCallback done) = 0;
  virtual CallTicket Link(const CallContext&, const Handle& file, const Handle& new_parent,
                          std::string_view new_name, Callback<NamedFile> done) = 0;

  // ---- Attributes -------------------------------------------------------------------------------
  // `open` may be null; with it an unlinked file answers too.
  virtual CallTicket GetAttr(const CallContext&, const Handle&, const OpenPtr& open,
                             Callback<Attributes> done) = 0;
  // A new size drops this client's cached grants of the file before `done` runs.
  virtual CallTicket SetAttr(const CallContext&, const Handle&, const OpenPtr& open,
                             const SetAttributes&, Callback<Attributes> done) = 0;
  virtual CallTicket Access(const CallContext&, const Handle&, std::uint32_t mask,
                            DoneCallback done) = 0;
  virtual CallTicket StatFs(const CallContext&, const Handle&, Callback<client::StatFs> done) = 0;
  virtual CallTicket SetXattr(const CallContext&, const Handle&, std::string_view name,
                              ByteSpan value, std::uint32_t flags, DoneCallback done) = 0;
  // `size` 0: only how much; else ERANGE when it does not fit.
  virtual CallTicket GetXattr(const CallContext&, const Handle&, std::string_view name,
                              std::uint32_t size, Callback<XattrReply> done) = 0;
  virtual CallTicket ListXattr(const CallContext&, const Handle&, std::uint32_t size,
                               Callback<XattrReply> done) = 0;
  virtual CallTicket RemoveXattr(const CallContext&, const Handle&, std::string_view name,
                                 DoneCallback done) = 0;

  // ---- Open files -------------------------------------------------------------------------------
  // `flags`: kOpen... of the protocol (OpenFlagsToWire). A file that changed since this client last
  // opened it loses its cached grants before `done` runs.
  struct Opened {
    OpenPtr open;
    Attributes attributes;
    // Until then a program may be told that its write to the file is done as soon as it has been
    // handed to Write, where kOpenWriteLease asked for that: unless the attributes are recalled,
    // and then the recall is acknowledged behind the last of those writes.
    TimePoint write_lease{};
  };
  virtual CallTicket Open(const CallContext&, const Handle&, std::uint32_t flags,
                          Callback<Opened> done) = 0;
  struct Created {
    OpenPtr open;
    NamedFile file;
    TimePoint write_lease{};
  };
  virtual CallTicket Create(const CallContext&, const Handle& parent, std::string_view name,
                            std::uint32_t flags, std::uint32_t mode, std::uint32_t umask,
                            Callback<Created> done) = 0;
  virtual CallTicket Tmpfile(const CallContext&, const Handle& parent, std::uint32_t flags,
                             std::uint32_t mode, std::uint32_t umask, Callback<Created> done) = 0;
  // Reads into.length bytes (at most kMaxTransferBytes) at `offset`. Comes from granted extents by
  // one-sided READs, without any message where a grant is cached, else inside replies.
  // `want_ahead`: how far behind this read more reads are expected (a sequential reader; at most
  // some MiB): grants for it are fetched before they are needed. `into` lies in a Buffer of this
  // lane.
  virtual CallTicket Read(const CallContext&, const OpenPtr&, std::uint64_t offset,
                          const transport::LocalSlice& into, std::uint32_t want_ahead,
                          Callback<ReadDone> done) = 0;
  // Writes from.length bytes (at most kMaxTransferBytes). `flags`: kWrite... of the protocol.
  // Cached grants that it makes untrue are dropped before `done` runs. `from` lies in a Buffer of
  // this lane. Fewer bytes than asked are written only when the server said so (no space).
  virtual CallTicket Write(const CallContext&, const OpenPtr&, std::uint64_t offset,
                           const transport::LocalSlice& from, std::uint32_t flags,
                           Callback<WriteDone> done) = 0;
  // close(2) of one descriptor: drops the owner's locks. Fails when what was written through it is
  // lost (UnsyncedWrites). Carried out as a Release is.
  virtual CallTicket FlushFile(const CallContext&, const OpenPtr&, std::uint64_t lock_owner,
                               DoneCallback done) = 0;
  // The last close; of directories too. The file must not be used in later calls. It is carried out
  // also where `done` has heard ETIMEDOUT or EINTR, or there are too many calls: as soon as the
  // server can be asked.
  virtual CallTicket Release(const CallContext&, OpenPtr, DoneCallback done) = 0;
  // Fails, once, when what was written to the file may be lost already (UnsyncedWrites).
  virtual CallTicket Fsync(const CallContext&, const OpenPtr&, bool data_only,
                           DoneCallback done) = 0;
  virtual CallTicket Fallocate(const CallContext&, const OpenPtr&, std::uint32_t mode,
                               std::uint64_t offset, std::uint64_t length,
                               Callback<Attributes> done) = 0;
  // `whence`: SEEK_DATA or SEEK_HOLE.
  virtual CallTicket Seek(const CallContext&, const OpenPtr&, std::uint64_t offset,
                          std::uint32_t whence, Callback<std::uint64_t> done) = 0;
  virtual CallTicket CopyFileRange(const CallContext&, const OpenPtr& from,
                                   std::uint64_t from_offset, const OpenPtr& to,
                                   std::uint64_t to_offset, std::uint64_t length,
                                   std::uint32_t flags, Callback<WriteDone> done) = 0;

  // ---- Directories ------------------------------------------------------------------------------
  // With entries from the start on, as ReadDir brings them with attributes, as many as fit
  // `first_page_bytes`; none where it is 0, or where the server had rather not.
  virtual CallTicket OpenDir(const CallContext&, const Handle&, std::uint32_t first_page_bytes,
                             Callback<OpenedDirectory> done) = 0;
  // The entries behind `cookie` (0: from the start), as many as fit `max_bytes` of reply (at most
  // kMaxReaddirBytes). A page without entries is the end. `plus`: with attributes.
  virtual CallTicket ReadDir(const CallContext&, const OpenPtr&, std::uint64_t cookie,
                             std::uint32_t max_bytes, bool plus, Callback<DirPage> done) = 0;
  virtual CallTicket FsyncDir(const CallContext&, const OpenPtr&, bool data_only,
                              DoneCallback done) = 0;

  // ---- Locks ------------------------------------------------------------------------------------
  // The first lock in the way, or kUnlock.
  virtual CallTicket GetLock(const CallContext&, const OpenPtr&, const Lock&, bool flock,
                             Callback<Lock> done) = 0;
  // With `wait` the call has no deadline unless its context sets one; give it up with Cancel.
  virtual CallTicket SetLock(const CallContext&, const OpenPtr&, const Lock&, bool flock, bool wait,
                             DoneCallback done) = 0;

 protected:
  Lane() = default;
};

}  // namespace rdfs::fs::client
