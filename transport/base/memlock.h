// How much memory this process may lock, and so register with an RDMA device.
#pragma once

#include <cstdint>

namespace rdfs {

// RLIMIT_MEMLOCK in bytes, or UINT64_MAX without a limit: with CAP_IPC_LOCK, which root in a
// container may lack. Any thread; does not block. Source: getrlimit(2), capabilities(7).
std::uint64_t MemlockLimit();

}  // namespace rdfs
