// How much memory this process may lock, and so register with an RDMA device.
#pragma once

#include <cstdint>
#include <string_view>

namespace rdfs {

// How the limit is lifted; whoever tells a user of it ends the sentence so.
inline constexpr std::string_view kMemlockRemedy =
    "put the line '* - memlock unlimited' into /etc/security/limits.d/rdfs.conf and log in again "
    "(for a systemd service: LimitMEMLOCK=infinity)";

// RLIMIT_MEMLOCK in bytes, or UINT64_MAX without a limit: with CAP_IPC_LOCK, which root in a
// container may lack, and which lifts no limit in a user namespace. Any thread; does not block.
// Source: getrlimit(2), capabilities(7).
std::uint64_t MemlockLimit();

}  // namespace rdfs
