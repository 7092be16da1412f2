// What two processes on one host say to each other over the UNIX socket, and how the memory that
// they share is laid out. Each packet of the SOCK_SEQPACKET socket is one of these.
//
//   connector                         acceptor
//      Preface, token         ->
//                             <-      Accept + channel memory     (or Reject, message)
//      Share + memory, Unshare, Bell in both directions, until either end closes
//
// Version 1. A peer of another version is rejected with kVersionMismatch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/base/bytes.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace rdfs::transport::shm {

inline constexpr std::uint64_t kMagic = 0x316d'6873'7366'6472;  // "rdfsshm1" little-endian
inline constexpr std::uint16_t kVersion = 1;

enum class PacketType : std::uint8_t {
  kPreface = 1,
  kAccept = 2,
  kReject = 3,
  kBell = 4,     // nothing but the type: wake up
  kShare = 5,    // with one descriptor
  kUnshare = 6,  // as kShare, without one
};

struct PrefaceWire {
  PacketType type = PacketType::kPreface;
  std::uint8_t token_bytes = 0;  // they follow
  Le16 version = kVersion;
  Le64 magic = kMagic;
};
static_assert(sizeof(PrefaceWire) == 12);

struct AcceptWire {
  PacketType type = PacketType::kAccept;
  std::uint8_t reserved = 0;
  Le16 version = kVersion;
  Le32 channel_bytes;
};
static_assert(sizeof(AcceptWire) == 8);

inline constexpr std::size_t kMaxRejectMessage = 1024;
struct RejectWire {
  PacketType type = PacketType::kReject;
  std::uint8_t code = 0;  // a Code
  Le16 message_bytes;     // they follow
  Le32 errno_value;
};
static_assert(sizeof(RejectWire) == 8);

struct ShareWire {
  PacketType type = PacketType::kShare;
  std::uint8_t access = 0;  // an Access: kRemoteRead or kRemoteWrite
  Le16 slot;                // of ChannelLayout::live
  Le64 key;
  Le64 size;
};
static_assert(sizeof(ShareWire) == 20);

// The longest packet of all.
inline constexpr std::size_t kMaxPacketBytes = sizeof(RejectWire) + kMaxRejectMessage;
static_assert(sizeof(PrefaceWire) + kMaxTokenBytes <= kMaxPacketBytes);

// What each process tells the other besides messages. Written by its owner, save that the peer
// clears the two flags when it acts on them.
struct alignas(kCacheLine) SideState {
  std::atomic<std::uint32_t> asleep{0};   // ring the bell after publishing a message
  std::atomic<std::uint32_t> blocked{0};  // ring the bell after giving room back
  std::atomic<std::uint32_t> cpu{~0U};    // where this process last ran
};
static_assert(sizeof(SideState) == kCacheLine);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Three quarters of a ring must fit the largest message (see RingReader::Take).
inline constexpr std::size_t kRingBytes = 256 * 1024;
static_assert(RecordBytes(kMaxMessageBytes) <= kRingBytes / 4 * 3);

// Regions that one side of a connection may share at a time. Each costs the peer a descriptor and a
// mapping: 512 arenas of 64 MiB are 32 GiB.
inline constexpr std::size_t kMaxRegions = 512;

// For each region that a side shares its key, and 0 from the moment on when the region is taken
// back or ends: a correct peer looks here before it touches the region, and so needs no message.
using LiveKeys = std::array<std::atomic<std::uint64_t>, kMaxRegions>;

// [0] is the acceptor's (its state; the ring it writes), [1] the connector's.
struct ChannelLayout {
  SideState sides[2];
  RingCursors cursors[2];
  alignas(4096) LiveKeys live[2];
  // Rings begin on a page of their own.
  alignas(4096) std::byte rings[2][kRingBytes];
};
static_assert(sizeof(ChannelLayout) == 3 * 4096 + 2 * kRingBytes);

}  // namespace rdfs::transport::shm
