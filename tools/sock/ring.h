// The channel: memory that the two ends of a connection share, with a ring and a few words for each
// direction, and the bells that wake a sleeping end. PROTOCOL.md, "The channel" and "Wake-ups".
//
// A Channel is one process's mapping of it; a child of fork has it too. What to do with the words
// is decided by switch.h; Carry does it. One process at a time does this for each half of an end
// (the end's lock). Nothing here sleeps or allocates, save Create and Adopt.
//
// The peer's process may store anything anywhere in this memory at any time. So no size or place
// that is used here comes from it: they come from the machine, which has checked them, and bytes
// are copied out once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/sock/switch.h"
#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/base/shared_memory.h"
#include "transport/base/status.h"

namespace rdfs::sock {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::uint32_t kMostRingBytes = 4 * 1024 * 1024;
// What this build's channels are made for.
inline constexpr std::uint32_t kLargestRing = 1024 * 1024;
inline constexpr std::size_t kRingsAt = 4096;

struct ChannelHeader {
  std::array<char, 8> magic{'r', 'd', 's', 'o', 'c', 'k', '1', '\0'};
  Le32 version = 1;
  Le32 largest_ring;
};
static_assert(sizeof(ChannelHeader) == 16);

// In `consumed`: the sender has taken back what lies behind. The receiver's cursor does not move
// any more: it moves by compare-and-swap, so that each byte is one end's.
inline constexpr std::uint64_t kTakenBack = std::uint64_t{1} << 63U;

// The words of one direction; who writes which stands in PROTOCOL.md. A line each for both ends,
// for the sender, for the receiver.
struct DirectionWords {
  alignas(kCacheLine) std::atomic<std::uint64_t> gate;

  alignas(kCacheLine) std::atomic<std::uint64_t> opens;
  std::atomic<std::uint64_t> open_at;
  std::atomic<std::uint64_t> ring_bytes;
  std::atomic<std::uint32_t> writer_armed;
  std::atomic<std::uint32_t> returned;
  std::atomic<std::uint32_t> sender_cpu;
  std::atomic<std::uint32_t> complete;  // far channels only
  std::atomic<std::uint64_t> kept;

  alignas(kCacheLine) std::atomic<std::uint64_t> consumed;
  std::atomic<std::uint64_t> passed;
  std::atomic<std::uint64_t> tcp_reads;
  std::atomic<std::uint32_t> reader_armed;
  std::atomic<std::uint32_t> abandoned;
  std::atomic<std::uint32_t> asks_end;  // far channels only
};
static_assert(sizeof(DirectionWords) == 3 * kCacheLine);
static_assert(offsetof(DirectionWords, writer_armed) == kCacheLine + 24);
static_assert(offsetof(DirectionWords, complete) == kCacheLine + 36);
static_assert(offsetof(DirectionWords, kept) == kCacheLine + 40);
static_assert(offsetof(DirectionWords, reader_armed) == 2 * kCacheLine + 24);
static_assert(offsetof(DirectionWords, asks_end) == 2 * kCacheLine + 32);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// One direction of a channel, as mapped here.
struct Direction {
  DirectionWords* words = nullptr;
  MutableByteSpan ring;  // the largest there may be
};

class Channel {
 public:
  enum class Role : std::uint8_t { kHost, kGuest };

  // `largest_ring`: a power of two from kLeastRingBytes to kMostRingBytes. Memory is used only as
  // far as it is touched. Errors: kInvalidArgument, kErrno.
  static Result<Channel> Create(std::uint32_t largest_ring);
  // What a host sent. Errors: kProtocolError for memory that it could shrink, or that is no channel
  // with rings of that size; kErrno.
  static Result<Channel> Adopt(Fd fd, std::uint32_t largest_ring);

  // -1 for one that was adopted, or has been moved away.
  [[nodiscard]] int fd() const { return memory_ != nullptr ? memory_->fd() : -1; }
  [[nodiscard]] std::uint32_t largest_ring() const { return largest_ring_; }
  // What an end of this role sends, and what it receives.
  [[nodiscard]] Direction Outgoing(Role role) const { return At(role == Role::kHost ? 0 : 1); }
  [[nodiscard]] Direction Incoming(Role role) const { return At(role == Role::kHost ? 1 : 0); }

 private:
  Channel(std::shared_ptr<SharedMemory> memory, std::uint32_t largest_ring)
      : memory_(std::move(memory)), largest_ring_(largest_ring) {}
  [[nodiscard]] Direction At(std::size_t index) const;

  std::shared_ptr<SharedMemory> memory_;
  std::uint32_t largest_ring_;
};

// This end's sockets of the two bells: connected, SOCK_SEQPACKET; -1 for none, which is never
// heard.
struct Bells {
  int data = -1;
  int room = -1;
};
// Wakes who sleeps at the other end. Never sleeps itself; a full socket wakes already.
void Ring(int bell);
// Takes one ring, if one has come: for whoever goes to sleep on the bell. False when the other end
// has closed.
bool TakeRing(int bell);
// Takes every ring that has come, but no more than kMostRings: a peer could ring for ever. False as
// above.
inline constexpr int kMostRings = 64;
bool Empty(int bell);

// What was found before a look, and may be stale.
struct Found {
  bool hung_up = false;    // a bell
  bool failed = false;     // the kernel's socket, with an error: nobody reads or writes any more
  bool tcp_ended = false;  // FIN or an error stands at the head of its queue
  Far far = Far::kEnd;
};
// A view with its looks in the order that switch.h asks for.
SenderView LookAsSender(const Direction& direction, const Found& found);
ReceiverView LookAsReceiver(const Direction& direction, const Found& found);

// Carries out `action` and reports it to the machine, when it is one that concerns the channel;
// false, with nothing done, when it is one of TCP's or ends the call. `bytes`: what kPut takes,
// what kTake fills; at least action.count of them. Returns in `moved` how many of them went.
bool Carry(const Direction& direction, Sender& sender, const Sender::Action& action, ByteSpan bytes,
           const Bells& bells, std::size_t& moved);
bool Carry(const Direction& direction, Receiver& receiver, const Receiver::Action& action,
           MutableByteSpan bytes, const Bells& bells, TimePoint now, std::size_t& moved);

// Bytes [at, at + count) of a ring that uses the first `ring_bytes` of its memory: two pieces, the
// second one often empty. For kResend.
std::array<ByteSpan, 2> Pieces(const Direction& direction, std::uint64_t ring_bytes,
                               std::uint64_t at, std::uint64_t count);

}  // namespace rdfs::sock
