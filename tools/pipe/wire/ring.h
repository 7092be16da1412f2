// The memory of a stream that travels one-sided: the receiver's ring, and the buffers that a sender
// WRITEs into it from. Of rdsend and rdrecv, and of rdcp between machines.
//
// Blocks for as long as registering memory takes. Errors: kResourceExhausted where memory may not
// be pinned (memlock).
#pragma once

#include <cstdint>
#include <memory>

#include "transport/domain.h"
#include "transport/transport.h"

namespace rdfs::pipe {

struct RingSize {
  std::uint32_t slot_bytes = 0;
  std::uint32_t slots = 0;
};
// As large as helps; over verbs within what this process may pin (memlock).
RingSize ChooseRing(transport::Kind kind);
// For several lanes over TCP, which are there for what is under way over a long distance.
inline constexpr RingSize kWideRing{1 << 20, 32};
// The same for a stream that `threads` use up as it comes: what counts then is that the bytes stay
// in the processor's cache from one copy to the next. Between two processes of one host there is no
// distance to fill: over tcp a ring is less than the second-level cache of a processor (1 MiB and
// more), which the socket's pages have to share; ARCHITECTURE.md has what other sizes cost. Over
// verbs one thread has 4 MiB, which are 1.4 times as fast as 16 (soft-iWARP), and at 25 GB/s what
// comes in 170 us.
RingSize ChooseNearRing(const transport::Capabilities& lane, int threads);

struct Ring {
  std::unique_ptr<transport::MemoryRegion> memory;
  transport::RemoteRegion shared{};
  RingSize size{};
};
// As large as can be pinned: slots of half of `size` as often as it takes, but for `least`.
// `name`: what the memory is called in /proc.
Result<Ring> ShareRing(transport::Connection& lane, transport::Domain& domain, const char* name,
                       RingSize size, std::uint32_t least_slot_bytes);

struct SendBuffers {
  std::unique_ptr<transport::MemoryRegion> memory;
  std::uint32_t count = 0;
};
// As many buffers as the peer's ring has slots, and as large, within `most`, which we would choose
// ourselves.
Result<SendBuffers> MakeSendBuffers(RingSize most, transport::Domain& domain, const char* name,
                                    RingSize ring);

}  // namespace rdfs::pipe
