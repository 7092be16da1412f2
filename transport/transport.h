// The transport interface: moves bytes between two processes, and knows nothing of files.
//
// The workflow is the classic one of verbs: register memory in a domain, connect, tell the peer
// about a region by message, move data by one-sided READ and WRITE, say done by message, close.
// Three transports carry it out (verbs/, shm/, tcp/), and fault/ wraps any of them. What differs
// between them is said by Capabilities, never by a type test above this folder.
//
// Threads: a Connection is used by one thread at a time; Domain, MemoryRegion and Transport by any.
// Nothing here starts a thread. Units: bytes; deadlines are CLOCK_BOOTTIME (base/clock.h).
// Sources: the verbs man pages (ibv_post_send(3), rdma_cm(7)), RFC 5040 (RDMAP) for iWARP's
// ordering.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/base/shared_memory.h"
#include "transport/base/status.h"
#include "transport/domain.h"

namespace rdfs::transport {

enum class Kind : std::uint8_t { kTcp = 1, kShm = 2, kVerbs = 3 };
std::string_view Name(Kind kind);                    // "tcp", "shm", "verbs"
std::optional<Kind> KindFromName(std::string_view);  // the reverse

// The largest message that any transport carries: a 64 KiB xattr value and its header fit.
inline constexpr std::size_t kMaxMessageBytes = 128 * 1024;
// A lane's proof travels in the private data of a verbs connect. RDMA_PS_TCP leaves 56 bytes of it,
// and one tells the length: InfiniBand pads with zeros.
inline constexpr std::size_t kMaxTokenBytes = 55;

// Where a connection or a listener is: "verbs://host:port", "tcp://[::1]:7337", "shm:///name".
struct Endpoint {
  Kind kind = Kind::kTcp;
  std::string host;        // name or address, without brackets; for shm the socket's name
  std::uint16_t port = 0;  // 0: the listener takes a free one

  [[nodiscard]] std::string ToString() const;
  static Result<Endpoint> Parse(std::string_view text);
};

// A machine as people name it: "node7", "node7:7337", "[::1]:7337", "[::1]" or a bare "::1".
struct HostAndPort {
  std::string host;        // without brackets
  std::uint16_t port = 0;  // `default_port` where the text has none

  // Errors: kInvalidArgument, in a sentence.
  static Result<HostAndPort> Parse(std::string_view text, std::uint16_t default_port);
};

// What a connection can do; constant for its life.
struct Capabilities {
  Kind kind = Kind::kTcp;
  // The peer's READs and WRITEs move only while this side polls (tcp). Otherwise they are truly
  // one-sided: they complete while the passive process is stopped.
  bool passive_progress = false;
  bool encrypted = false;                // payload is encrypted on the wire
  bool same_host = false;                // the peer is on this host, as far as can be told
  std::uint32_t max_outstanding = 0;     // READs and WRITEs posted and not yet polled
  std::uint64_t max_transfer_bytes = 0;  // of one READ or WRITE
};

using Ticket = std::uint64_t;

struct LocalSlice {
  const MemoryRegion* region = nullptr;  // in the connection's domain
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A region of the peer's, as it told us by message. A value; it grants nothing by itself.
struct RemoteRegion {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t key = 0;
};

// As RemoteRegion travels in messages of the protocols above.
struct RemoteRegionWire {
  Le64 address, length, key;
  static RemoteRegionWire From(const RemoteRegion& r) { return {r.address, r.length, r.key}; }
  [[nodiscard]] RemoteRegion ToRegion() const { return {address, length, key}; }
};
static_assert(sizeof(RemoteRegionWire) == 24);

struct RemoteSlice {
  RemoteRegion region;
  std::uint64_t offset = 0;  // from the region's start; the length is the local slice's
};

// What Poll reports. READs and WRITEs complete exactly once unless the connection dies.
struct Completion {
  enum class Kind : std::uint8_t {
    kRead,     // the bytes are in the local slice
    kWritten,  // the local slice may be reused
    kMessage,  // a message of the peer's
  };
  Kind kind = Kind::kMessage;
  Ticket ticket = 0;  // of kRead and kWritten
  Status status;      // of kRead and kWritten: a refused remote access (shm, tcp), else ok
  ByteSpan message;   // of kMessage: valid until the next Poll, Wait or Send of this connection
};

// Whether a READ may start before the kFree READs posted ahead of it have completed. Nothing orders
// two READs of kAfterEarlierReads.
enum class Order : std::uint8_t { kFree, kAfterEarlierReads };

// A connection between two processes. Created established; see Transport::Connect and Listener.
//
// Ordering, on every transport: messages arrive in the order sent; a message sent after a WRITE was
// posted arrives after the WRITE's bytes. Nothing orders a READ against a later message.
//
// Death: when Poll (or any call) returns an error whose scope is kConnection or kProcess, the
// connection is over and stays over. Tickets without a completion are void then: none will come,
// and their local slices belong to the device until the Connection has been destroyed. The
// destructor ends the connection, waits until the device has let go of every buffer, and says so to
// the peer where it can; it blocks for a bounded, short time.
class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;
  // For status lines: "verbs siw0 10.9.9.1:7338". Never secrets.
  [[nodiscard]] virtual std::string Describe() const = 0;

  // Queues one message made of `parts`, in order behind what was posted before. The bytes are
  // copied: the parts may be reused at once. Never blocks; there is no completion. Errors:
  // kInvalidArgument above kMaxMessageBytes, else the connection is over.
  virtual Status Send(std::span<const ByteSpan> parts) = 0;
  Status Send(ByteSpan message) { return Send(std::span<const ByteSpan>(&message, 1)); }

  // Bytes of messages (and of answers to the peer's READs, tcp) queued and not yet taken by the
  // wire. A server stops polling a peer that does not read above kBacklogLimit; a client never
  // stops.
  [[nodiscard]] virtual std::size_t backlog_bytes() const = 0;
  static constexpr std::size_t kBacklogLimit = 4 << 20;
  // Of these, the bytes that are kept for it in memory of their own: answers to READs lie in the
  // region.
  [[nodiscard]] virtual std::size_t kept_bytes() const { return backlog_bytes(); }
  // What this end's processor has moved for it since the beginning (tcp): where neither a NIC nor a
  // mapping does, a peer's READs and WRITEs take a server's time, and no message tells of them.
  [[nodiscard]] virtual std::uint64_t carried_bytes() const { return 0; }

  // Queues a one-sided READ or WRITE; the local slice is left alone until its completion. Never
  // blocks. Errors: kBusy when capabilities().max_outstanding are in flight, kInvalidArgument for a
  // slice outside its region or a transfer above max_transfer_bytes. A remote range that the peer
  // did not share (or not for this) completes with an error on tcp and shm, and ends the connection
  // on verbs, as the hardware does it.
  virtual Result<Ticket> Read(const LocalSlice& to, const RemoteSlice& from,
                              Order order = Order::kFree) = 0;
  virtual Result<Ticket> Write(const LocalSlice& from, const RemoteSlice& to) = 0;

  // Hands what is queued to the wire: one doorbell, one writev. Poll does it too; a caller that
  // goes on to do something else calls it after its last post. Never blocks.
  virtual Status Flush() = 0;

  // Makes progress and fills `out`; returns how many, 0 when there is nothing. Never blocks.
  virtual Result<std::size_t> Poll(std::span<Completion> out) = 0;

  // To sleep: Arm() until true (false: Poll first), wait until fd(), constant for life, is readable
  // (level-triggered), Poll. Meanwhile messages may be sent; a READ or WRITE takes another Arm.
  virtual Result<bool> Arm() = 0;
  [[nodiscard]] virtual int fd() const = 0;

  // The memory of a region of the peer's itself, where it is mapped here (shm) and open for WRITEs:
  // what is written there by any thread needs no WRITE, and a message sent afterwards arrives
  // behind it. Empty elsewhere. The mapping lasts as long as `keep`, longer than the connection or
  // the peer's sharing may: then it is nobody's.
  struct PeerMemory {
    std::shared_ptr<SharedMemory> keep;
    MutableByteSpan bytes;
  };
  virtual PeerMemory Reach(const RemoteRegion& /*region*/) { return {}; }

  // Whether `region` may be the local side of READs and WRITEs. Errors: kResourceExhausted (this
  // transport could not register it: memlock; the message says so).
  [[nodiscard]] virtual Status MayMove(const MemoryRegion& /*region*/) const { return {}; }

  // Lets the peer reach `region` with what its access allows. The descriptor is to be sent by
  // message, and works for the peer once that message has arrived. No round trip, but may make
  // system calls: not for the data path. Sharing again returns the same descriptor. Errors:
  // kInvalidArgument (local or foreign region), kResourceExhausted (this transport could not
  // register it: memlock; the message says so).
  virtual Result<RemoteRegion> Share(const MemoryRegion& region) = 0;
  // Takes it back. tcp and shm: no READ or WRITE of it that the peer starts later succeeds (shm: a
  // mapping that the peer already has lasts while it keeps it). verbs: only ending the region does.
  virtual void Unshare(const MemoryRegion& region) = 0;

  // Poll until there is something or `deadline`; returns 0 at the deadline. Spins for about as long
  // as a wake-up costs while that keeps paying off, then sleeps: an idle caller burns no CPU.
  virtual Result<std::size_t> Wait(std::span<Completion> out, Deadline deadline);
  // How long Wait may spin while that pays off: 100 us unless told otherwise. For a program that
  // measures the wire and has nothing else to do.
  void SpinAtMost(std::chrono::nanoseconds most) { spin_ = most_spin_ = most; }

  // Before a thread that changes its credentials (setfsuid(2)) takes the connection over: the
  // kernel refuses such threads some calls of RDMA. Called on a thread that has the process's own;
  // verbs starts one of its own there, which makes those calls from then on.
  virtual void KeepCredentials() {}

  // The peer is not waited for: what was sent may not arrive. The destructor then does not wait for
  // its goodbye to leave, as it does over verbs and tcp, for longest when nobody takes it.
  virtual void Abandon() {}

 protected:
  Connection() = default;
  // False when spinning cannot help, as when the peer needs this very processor to answer.
  [[nodiscard]] virtual bool SpinningPays() const { return true; }

 private:
  Result<std::size_t> Look(std::span<Completion> out, std::int64_t times);
  // Both set `now` when they find nothing; Sleep always.
  Result<std::size_t> Spin(std::span<Completion> out, Deadline deadline, TimePoint& now);
  Result<std::size_t> Sleep(std::span<Completion> out, Deadline deadline, TimePoint& now);
  // How long Wait spins: doubled when that found something and after a short sleep, which a longer
  // spin would have saved; halved after a long one.
  std::chrono::nanoseconds spin_{20'000};
  std::chrono::nanoseconds most_spin_{100'000};
  std::chrono::nanoseconds look_cost_{1'000};  // of one Poll that finds nothing, as last measured
};

// A peer that has sent its token, which nobody has verified yet. Tells of it after the answer, too.
class Incoming {
 public:
  virtual ~Incoming() = default;
  [[nodiscard]] virtual ByteSpan token() const = 0;
  // What can be told about the peer before it is trusted: an address, or a uid for shm.
  [[nodiscard]] virtual std::string peer() const = 0;
  // Completes the connection in `domain`: the peer's Connect returns. Never blocks: what the peer
  // still has to do happens under Poll. The Incoming is used up.
  virtual Result<std::unique_ptr<Connection>> Accept(const std::shared_ptr<Domain>& domain) = 0;
  // The peer's Connect fails with this code and message.
  virtual void Reject(const Status& why) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  [[nodiscard]] virtual Endpoint endpoint() const = 0;  // with the port that was taken
  [[nodiscard]] virtual int fd() const = 0;             // readable when Accept may have something
  // The next peer whose token has arrived, or null. Never blocks; a peer that sends its token
  // slowly or not at all delays nobody, and is dropped after 5 s.
  virtual Result<std::unique_ptr<Incoming>> Accept() = 0;
};

// Whether a transport can work on this machine, and if not why and what to do about it: one
// sentence.
struct Viability {
  bool viable = false;
  std::string reason;
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual Kind kind() const = 0;
  [[nodiscard]] virtual Viability Probe() const = 0;
  // `endpoint.host` empty: every address. Errors: kUnavailable, kErrno (address in use ...).
  virtual Result<std::unique_ptr<Listener>> Listen(const Endpoint& endpoint) = 0;
  // Blocks until the peer has accepted or `deadline`. `token` (at most kMaxTokenBytes) is what the
  // peer's Incoming shows. Tries each address of a host name. Errors: kUnavailable, kNotFound
  // (host), kDisconnected (refused), kDeadlineExceeded, or what the peer rejected with.
  virtual Result<std::unique_ptr<Connection>> Connect(const Endpoint& endpoint,
                                                      const std::shared_ptr<Domain>& domain,
                                                      ByteSpan token, Deadline deadline) = 0;
};

}  // namespace rdfs::transport
