// What a program's end and the carrier of its user on this host say to each other: PROTOCOL.md,
// "Between hosts", Meeting. Bytes and names only; no I/O, nothing kept.
//
// The end connects to CarrierName(geteuid()), a SOCK_SEQPACKET socket, and both compare
// SO_PEERCRED's uid with their own. It sends Ask. The answer comes when the other host's end has
// asked, too, or within kAskTimeout:
//
//   end  -> carrier  Ask
//   carrier -> end   Channel {memfd, room bell}   or  Refused(reason)
//   end  -> carrier  Joined                       from here on the socket is the data bell
//
// Channel and Joined are those of the meeting on one host (meeting.h): the carrier is the channel's
// host, the end its guest; Channel's cookie is the asker's own, its flags are those of the end on
// the other host. An end that gives up closes the socket.
//
// Whoever started programs that may ask (rdsock, or one that listens) sends Hold instead, on a
// connection of its own, and may close it at once: the carrier stays as long as that process lives.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/sock/peer_socket.h"
#include "transport/base/bytes.h"

namespace rdfs::sock::far {

inline constexpr std::uint32_t kAskVersion = 1;
// From Ask to Channel or Refused. An end that waits longer has lost its carrier.
inline constexpr std::chrono::seconds kAskTimeout{2};

// Of the UNIX socket, abstract: a zero byte comes before it.
std::string CarrierName(uid_t user);

// The first byte of a packet, followed by three zeros. 1 to 5 are the meeting's (PROTOCOL.md).
enum class AskType : std::uint8_t {
  kChannel = 2,
  kJoined = 3,
  kRefused = 4,
  kAsk = 16,
  kHold = 17,
};

// Why a connection stays on TCP. Numbers are never reused.
enum class Refusal : std::uint32_t {
  kNotPaired = 1,    // nobody has paired this user with the other end's address
  kNotYours = 2,     // this user owns no such socket
  kUnreachable = 3,  // the other host's carrier does not answer: it is not running, or a firewall
  kNoRdma = 4,       // there is no RDMA between the two hosts
  kAlone = 5,        // the other end did not ask: it does not run under rdsock, or not yet
  kNoRoom = 6,       // no memory to be registered (ulimit -l), no descriptors, too many
  kDisagree = 7,     // neither end is sure who opened the connection
  kAnotherVersion = 8,
  kNonsense = 9,  // what came was no Ask
};
inline constexpr std::uint32_t kLastRefusal = 9;

struct AskWire {
  AskType type = AskType::kAsk;
  std::array<std::byte, 3> zero{};
  Le32 version = kAskVersion;
  Le64 cookie = 0;  // SO_COOKIE of the asker's socket
  Le32 flags = 0;   // as in Hello: 1 opened the connection, 2 does not know
  std::array<std::uint8_t, 16> here{}, there{};  // addresses, IPv4 as IPv6 has it
  Le16 here_port = 0, there_port = 0;
};
static_assert(sizeof(AskWire) == 56);
static_assert(offsetof(AskWire, cookie) == 8 && offsetof(AskWire, here) == 20);
static_assert(offsetof(AskWire, here_port) == 52);

struct RefusedWire {
  AskType type = AskType::kRefused;
  std::array<std::byte, 3> zero{};
  Le32 reason = 0;
};
static_assert(sizeof(RefusedWire) == 8);

struct HoldWire {
  AskType type = AskType::kHold;
  std::array<std::byte, 3> zero{};
  Le32 version = kAskVersion;
};
static_assert(sizeof(HoldWire) == 8);

struct Ask {
  std::uint64_t cookie = 0;
  std::uint32_t flags = 0;
  TcpPlaces places;
};

AskWire Encode(const Ask& ask);
// None for anything that is no Ask of this version.
std::optional<Ask> DecodeAsk(ByteSpan packet);

}  // namespace rdfs::sock::far
