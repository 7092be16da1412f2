// What rdping's two ends say to each other, over lanes of a session with the service "ping".
//
// A message begins with PingMessage; kEcho and kStream carry padding behind it up to their size.
// The server grants GrantWords when it admits the session, and describes its memory when a lane
// asks.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/transport.h"

namespace rdfs::rdping {

inline constexpr std::string_view kServiceName = "ping";
inline constexpr std::uint16_t kDefaultPort = 7339;  // beside rdfsd's 7337 and its verbs port 7338
inline constexpr std::size_t kRegionBytes = 16 << 20;

enum class Op : std::uint32_t {
  kEcho = 1,       // the server sends it back
  kStream = 2,     // counted only
  kStreamEnd = 3,  // the server answers it when all before it has arrived
  kRegions = 4,    // the server answers RegionsReply
};

// How long either end spins for the other, as programs that measure do (perftest for ever): the
// figures are the wire's, not the scheduler's. rdfs itself goes to sleep after 100 us.
inline constexpr std::chrono::milliseconds kSpin{20};
// On a machine of one processor whoever spins may keep the other end from answering.
inline bool SpinningMeasures() { return sysconf(_SC_NPROCESSORS_ONLN) > 1; }

struct PingMessage {
  Le32 op;
  Le32 size;  // of the whole message
};

struct RegionsReply {
  PingMessage header;
  transport::RemoteRegionWire readable, writable;  // kRegionBytes each; length 0: not to be had
};

using Pass = std::array<std::uint8_t, 16>;

struct GrantWords {
  Le16 tcp_port;  // where plain TCP sockets are echoed: the peer to compare with
  Pass pass{};    // for that port: whoever has been granted a session
};

// On a plain TCP connection: the client sends one of these, then talks as it says.
struct TcpHello {
  Le32 op;    // kEcho: messages of `size` are sent back; kStream: bytes are swallowed until the
  Le32 size;  // client shuts its half down, and then one byte is sent back
  Pass pass{};
};

}  // namespace rdfs::rdping
