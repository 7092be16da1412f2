#include "tools/pipe/wire/ring.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace rdfs::pipe {

using transport::Access;
using transport::Connection;
using transport::Domain;
using transport::Kind;

RingSize ChooseNearRing(const transport::Capabilities& lane, int threads) {
  const RingSize usual = ChooseRing(lane.kind);
  if (lane.kind == Kind::kVerbs) {
    constexpr std::uint32_t kSlots = 4;
    if (threads > 1) return usual;
    return {std::min(usual.slot_bytes * usual.slots / kSlots, 1U << 20), kSlots};
  }
  if (!lane.same_host) return usual;
  return lane.kind == Kind::kTcp ? RingSize{384 << 10, 2} : RingSize{512 << 10, 4};
}

RingSize ChooseRing(Kind kind) {
  if (kind != Kind::kVerbs) return {1 << 20, 8};
  rlimit limit{};
  const bool bounded = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!bounded || geteuid() == 0 || limit.rlim_cur >= 64U << 20U) return {1 << 20, 16};
  // Half of it: the connection pins some of its own, and both ends may be one user on one host.
  std::uint32_t slot_bytes = 1 << 20;
  while (slot_bytes > 64 << 10 && std::uint64_t{slot_bytes} * 8 > limit.rlim_cur / 2) {
    slot_bytes /= 2;
  }
  return {slot_bytes, 8};
}

Result<Ring> ShareRing(Connection& lane, Domain& domain, const char* name, RingSize size,
                       std::uint32_t least_slot_bytes) {
  for (;;) {
    RDFS_ASSIGN_OR_RETURN(auto memory,
                          SharedMemory::Create(name, std::size_t{size.slot_bytes} * size.slots,
                                               SharedMemory::Peers::kMayWrite));
    RDFS_ASSIGN_OR_RETURN(auto region, domain.Register(std::move(memory), Access::kRemoteWrite));
    const auto shared = lane.Share(*region);
    if (shared.ok()) return Ring{std::move(region), *shared, size};
    if (shared.status().code() != Code::kResourceExhausted || size.slot_bytes <= least_slot_bytes) {
      return shared.status();
    }
    size.slot_bytes /= 2;
  }
}

Result<SendBuffers> MakeSendBuffers(RingSize most, Domain& domain, const char* name,
                                    RingSize ring) {
  const std::uint64_t bytes = std::uint64_t{most.slot_bytes} * most.slots;
  const auto count =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / ring.slot_bytes, 1, ring.slots));
  RDFS_ASSIGN_OR_RETURN(auto memory,
                        SharedMemory::Create(name, std::size_t{count} * ring.slot_bytes,
                                             SharedMemory::Peers::kMayWrite));
  RDFS_ASSIGN_OR_RETURN(auto region, domain.Register(std::move(memory), Access::kLocal));
  return SendBuffers{std::move(region), count};
}

}  // namespace rdfs::pipe
