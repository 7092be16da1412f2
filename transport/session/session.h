// Session: the client's end of one mount or one tool run. Dial authenticates; lanes carry the work.
//
// Dial makes the vestibule (a TCP connection, or a stream such as ssh's stdio), both ends prove the
// key over the whole transcript, TLS covers the stream where the peer is on another host, and only
// then do addresses, ports and the upper layer's request travel. OpenLane opens connections over
// the best transport that works: shm on the same host, verbs where both ends have a device, tcp,
// and last the stream itself; legs() tells what was tried and why the better ones were not used.
//
// Threads: Dial and what opens lanes by one thread at a time, but OpenStreamLane, which may be
// called beside OpenDirectLane; a lane belongs to whoever took it. The vestibule stays open while
// the Session lives: the server drops the ticket when it ends, or soon after it has become a lane.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/session/derive.h"
#include "transport/session/key.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace rdfs::transport {

inline constexpr std::uint16_t kDefaultPort = 7337;
// A service that every server has: its lanes carry nothing, and only show which legs work (rdinfo).
inline constexpr std::string_view kProbeService = "probe";

struct DialOptions {
  std::string host;
  // Other addresses of that server, where it listens as well: tried in turn when `host` does not
  // answer, and lanes over verbs and tcp go over all of them, one after the other.
  std::vector<std::string> other_hosts{};
  std::uint16_t port = kDefaultPort;
  // When set, this is the vestibule instead of a TCP connection to host:port (the host's name is
  // still used to reach the ports that the server names), and the last leg.
  std::unique_ptr<tcp::ByteStream> stream;
  Key key;                          // empty: only a server that asks for no key
  std::string key_name;             // which of the server's keys; empty: its first
  std::optional<Kind> require;      // refuse everything else
  bool plaintext = false;           // no TLS though the peer is on another host
  bool require_encryption = false;  // no verbs, and TLS everywhere but on the same host
  bool encrypt_always = false;      // and there too
  std::string service;              // which upper layer: "fs", "ping", "pipe"
  std::vector<std::byte> request;   // its opening words, sent after authentication; at most 4 KiB
  Deadline deadline{};
  std::optional<Deadline> connect_deadline{};  // of the connection alone, if sooner
};

// One leg of the choice: the transport, and why it is not used (or ok).
struct LegReport {
  Kind kind;
  bool stdio = false;  // the vestibule's own stream
  Status status;
  bool failed = false;  // it was tried; else what status says was known before
};

class Session {
 public:
  virtual ~Session() = default;
  // Blocks until authenticated and admitted, or the deadline. Errors: those of ConnectSocket,
  // kAuthenticationFailed, kVersionMismatch, and whatever the upper layer at the server answered.
  static Result<std::unique_ptr<Session>> Dial(DialOptions options, std::shared_ptr<Domain> domain);

  [[nodiscard]] virtual std::uint64_t id() const = 0;
  // What the server's upper layer answered to `request`.
  [[nodiscard]] virtual ByteSpan grant() const = 0;
  [[nodiscard]] virtual const std::shared_ptr<Domain>& domain() const = 0;
  // A secret of this session alone, the same as SessionRequest::exporter at the server: upper
  // layers derive keys of their own from it.
  [[nodiscard]] virtual session::Secret32 exporter() const = 0;
  // Blocks at most until `deadline`; a leg that is silent costs at most 3 s, the stream excepted.
  // The first lane decides the transport; later lanes use the same and fall back alike.
  virtual Result<std::unique_ptr<Connection>> OpenLane(Deadline deadline) = 0;
  // The same in two steps, for who has work that will not wait until legs have failed to answer:
  // the given stream itself as a lane, at once, and any of the other legs. The server takes lanes
  // for 15 s behind the first of these.
  virtual Result<std::unique_ptr<Connection>> OpenStreamLane(Deadline deadline) = 0;
  virtual Result<std::unique_ptr<Connection>> OpenDirectLane(Deadline deadline) = 0;
  // As OpenLane, over `kind` only (rdping, rdinfo). The choice is left alone.
  virtual Result<std::unique_ptr<Connection>> OpenLaneOver(Kind kind, Deadline deadline) = 0;
  // A lane over `kind` works, and its user cannot use it (memory that a device could not register):
  // lanes to come take the next leg, and `why` is told as if this one had failed.
  virtual void RuleOut(Kind kind, Status why) = 0;
  // The legs as tried so far, best first. Empty before the first OpenLane.
  [[nodiscard]] virtual const std::vector<LegReport>& legs() const = 0;
  // "verbs (siw0)", "tcp with TLS; not verbs: no RDMA device here (...); not shm: another host".
  [[nodiscard]] virtual std::string ExplainChoice() const = 0;
};

}  // namespace rdfs::transport
