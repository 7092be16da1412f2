// What supervisor and worker say to each other: packets on a SOCK_SEQPACKET pair, each at most one
// descriptor. Both ends are this program; lengths are checked all the same, since a worker may be
// dying. Values and two calls; any thread.
//
//   worker: kKeep (key, state, fd)  kSetState (key, state)  kDrop (key)  -- no answer
//           kFetch (the key before the one that is wanted)  -- answered by kRecord or kEnd
//   supervisor: kHello (HelloWire as state) once, before anything else
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

inline constexpr std::size_t kMaxKeptKeyBytes = 256;
inline constexpr std::size_t kMaxKeptStateBytes = 16 * 1024;

enum class PacketType : std::uint16_t {
  kKeep = 1,
  kSetState = 2,
  kDrop = 3,
  kFetch = 4,
  kHello = 16,
  kRecord = 17,
  kEnd = 18,
};

struct HelloWire {
  Le64 epoch;
  Le64 max_descriptors;
  Le64 max_state_bytes;
  Le32 restarted;
  std::array<std::byte, 32> secret;
};

struct Packet {
  PacketType type{};
  std::string key;
  std::vector<std::byte> state;
  Fd fd;
};

// Blocks until `deadline` when the peer is slow. Errors: kDisconnected, kDeadlineExceeded, kErrno.
Status SendPacket(int socket, PacketType type, ByteSpan key, ByteSpan state, int fd,
                  Deadline deadline);
// The next packet, or nothing when there is none yet. Errors: kDisconnected (the peer is gone and
// all that it sent was read), kProtocolError, kResourceExhausted (the descriptor did not fit into
// this process), kErrno. Never blocks.
Result<std::optional<Packet>> ReceivePacket(int socket);

}  // namespace rdfs::server
