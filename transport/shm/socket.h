// PacketSocket: one end of a connected UNIX SOCK_SEQPACKET socket: packets with at most one
// descriptor each, and the kernel's word on who is at the other end.
//
// Owned by a Connection (or by whoever is setting one up), used by its thread. Non-blocking.
// Sources: unix(7), cmsg(3).
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"
#include "transport/shm/wire.h"

namespace rdfs::transport::shm {

struct Packet {
  std::array<std::byte, kMaxPacketBytes> buffer;
  std::size_t size = 0;
  Fd fd;  // what came with it
  [[nodiscard]] ByteSpan bytes() const { return ByteSpan(buffer).first(size); }
  [[nodiscard]] PacketType type() const { return static_cast<PacketType>(buffer[0]); }
};

class PacketSocket {
 public:
  enum class Event { kPacket, kNothing, kEnd };

  explicit PacketSocket(Fd fd) : fd_(std::move(fd)) {}

  // One packet. kEnd when the peer has gone. kProtocolError for a packet that is too long or
  // carries several descriptors, kResourceExhausted when its descriptor found no place here.
  Result<Event> Receive(Packet& packet);
  // The same of a stranger, who has no descriptor to give: the kernel drops what comes along, and
  // the packet is refused. Taken in and closed, a stranger's file might keep us waiting.
  Result<Event> ReceiveBytes(Packet& packet);
  // False when the socket is full. `fd` is -1 for none. kDisconnected when the peer has gone,
  // kResourceExhausted when too many descriptors are on their way.
  Result<bool> Send(ByteSpan packet, int fd);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Who connected, or who listened: as of then (SO_PEERCRED).
  [[nodiscard]] Result<uid_t> PeerUid() const;

 private:
  Result<Event> Receive(Packet& packet, std::span<char> control);

  Fd fd_;
};

// Whether the peer of `socket`, or of all that a listening one accepts from here on, may send
// descriptors along. Where the kernel does not know how to forbid it (before Linux 6.16), it may.
void AllowDescriptors(int socket, bool allowed);

// The abstract name `name` as an address. kInvalidArgument when it is empty or too long.
struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};
Result<AbstractAddress> MakeAbstractAddress(const std::string& name);

}  // namespace rdfs::transport::shm
