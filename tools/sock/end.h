// One end of a switched connection, as one process sees it: send and receive as the kernel's calls
// do, over the kernel's socket and the channel.
//
// EndMemory is shared by the processes of the end (MAP_SHARED before fork) and by nobody else. It
// holds both halves' machines and their locks; a lock is never held asleep, and one whose holder
// died is repaired by the next. An End is a process's own view of it, any thread; it owns none of
// the descriptors, which stay valid while it lives.
//
// It does not decide when ring or TCP is better: prefer_ring() is told to it.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "tools/sock/ring.h"
#include "tools/sock/switch.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::sock {

// Bytes of each direction that TCP has carried, as the kernel counts them (tcp(7), TCP_INFO): taken
// while no call of this end is in flight. `opened`: this end called connect. Errors: kErrno.
Result<std::uint64_t> SentPosition(int tcp, bool opened);
Result<std::uint64_t> ReceivedPosition(int tcp);

struct EndMemory {
  pthread_mutex_t send_lock, receive_lock;  // shared by processes, robust; neither inside the other
  Sender sender{0, kLeastRingBytes};
  Receiver receiver{0, kLeastRingBytes};
  bool repair_send = false, repair_receive = false;  // under its lock: a holder died
  std::atomic<int> receive_error{0};  // what the kernel's socket said, not yet told to the program

  // In place, once, before the memory is shared.
  static Result<EndMemory*> Create(void* place, int tcp, bool opened, std::uint32_t largest_ring);
};

class End {
 public:
  struct Sockets {
    int tcp = -1;
    Bells bells;
    bool opened = false;  // this end called connect
  };
  End(EndMemory& memory, const Direction& outgoing, const Direction& incoming,
      const Sockets& sockets)
      : memory_(memory), outgoing_(outgoing), incoming_(incoming), sockets_(sockets) {}

  // How many bytes went, or -1 with errno, as send(2) and recv(2) have it for a blocking socket, or
  // with `wait` false for a non-blocking one. ECONNRESET too when the ends could not be kept in
  // step; the kernel's connection is then reset. Sends no signal.
  ssize_t Send(ByteSpan bytes, bool wait);
  ssize_t Receive(MutableByteSpan bytes, bool wait);
  // shutdown(2) of the sending half.
  int ShutdownSend();
  // Makes both directions plain TCP for good, for a program that goes on without the shim: blocks
  // for at most kLeaveTimeout. False when the connection had to be reset.
  bool Leave();

  // Whether to send through the ring, and through how large a one.
  void prefer_ring(bool ring, std::uint64_t ring_bytes = kLeastRingBytes) {
    ring_ = ring;
    ring_bytes_ = ring_bytes;
  }

 private:
  // Where a call stands when the lock is given back.
  enum class Stand : std::uint8_t { kDone, kWantsRoom, kWantsBytes, kWantsTcp, kSoon, kError };

  Stand SendSome(ByteSpan bytes, const Sender::Wish& wish, std::size_t& sent);
  std::size_t SendTcp(const Sender::Action& action, ByteSpan bytes, int& error);
  Stand ReceiveSome(MutableByteSpan bytes, const Receiver::Wish& wish, std::size_t& got);
  std::uint64_t ReceiveTcp(MutableByteSpan bytes);
  void WaitToSend(Stand stand);
  void WaitToReceive(bool leaving);
  void LookForEnd();
  Stand Reset();

  EndMemory& memory_;
  const Direction outgoing_;
  const Direction incoming_;
  const Sockets sockets_;
  bool ring_ = true;
  std::uint64_t ring_bytes_ = kLeastRingBytes;
  // What poll told; never untrue again.
  std::atomic<bool> hung_up_{false};
  std::atomic<bool> tcp_ended_{false};
};

}  // namespace rdfs::sock
