#include "transport/verbs/errors.h"

#include <fmt/core.h>

#include <cerrno>
#include <limits>

#include "transport/base/memlock.h"
#include "transport/verbs/devices.h"

namespace rdfs::transport::verbs {
namespace {

// The groups of errno that mean the same whichever call answers with them.
Status Explain(int errno_value, std::string_view what) {
  switch (errno_value) {
    case ENOMEM:
      return {Code::kResourceExhausted, errno_value,
              fmt::format("{}: the device or the memory that may be locked is used up; {}", what,
                          MemlockRemedy())};
    case EACCES:
    case EPERM:
      return {Code::kUnavailable, errno_value,
              fmt::format("{}: no permission for /dev/infiniband/*; they should have mode 0666, "
                          "which the package rdma-core sees to",
                          what)};
    case ENODEV:
    case ENOENT:
    case ENXIO:
      return {Code::kUnavailable, errno_value,
              fmt::format("{}: no RDMA device leads there, or its driver is not loaded; see "
                          "'rdma link' and 'modprobe rdma_ucm'",
                          what)};
    default:
      return Status::FromErrno(errno_value, what);
  }
}

std::string_view KindName(WorkKind kind) {
  switch (kind) {
    case WorkKind::kReceive:
      return "receive";
    case WorkKind::kSend:
      return "SEND";
    case WorkKind::kRead:
      return "READ";
    case WorkKind::kWrite:
      return "WRITE";
  }
  return "operation";
}

std::string Size(std::size_t bytes) {
  constexpr std::size_t kKiB = 1024;
  return bytes < kKiB * kKiB ? fmt::format("{} KiB", (bytes + kKiB - 1) / kKiB)
                             : fmt::format("{} MiB", (bytes + kKiB * kKiB - 1) / (kKiB * kKiB));
}

}  // namespace

std::string MemlockRemedy() {
  const std::uint64_t limit = MemlockLimit();
  if (limit == std::numeric_limits<std::uint64_t>::max()) {
    return "free some memory: its limit (memlock) is not what stops us";
  }
  return fmt::format("this process may lock {} KiB (ulimit -l); {}", limit / 1024, kMemlockRemedy);
}

Status FromReturned(int errno_value, std::string_view what) { return Explain(errno_value, what); }

Status FromErrno(std::string_view what) { return Explain(errno, what); }

Status FromRegistration(int errno_value, std::size_t bytes, std::string_view device) {
  const std::string what = fmt::format("cannot lock {} for {}", Size(bytes), device);
  // Drivers answer a pin above RLIMIT_MEMLOCK with ENOMEM (ib_umem_get); some with EAGAIN, as
  // mlock(2) does.
  return Explain(errno_value == EAGAIN ? ENOMEM : errno_value, what);
}

Status FromCompletion(ibv_wc_status status, WorkKind kind) {
  const std::string_view name = KindName(kind);
  switch (status) {
    case IBV_WC_SUCCESS:
      return {};
    case IBV_WC_WR_FLUSH_ERR:
      // The queue pair had ended before this work was done; the reason shows elsewhere, if at all.
      return {Code::kDisconnected, "the peer ended the RDMA connection"};
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return {Code::kDisconnected,
              fmt::format("the peer's device refused a {}: the peer does not share that memory, or "
                          "not for this ({})",
                          name, ibv_wc_status_str(status))};
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {Code::kDisconnected,
              fmt::format("the peer's device no longer answers (a {} was repeated in vain); is the "
                          "host up and the network whole?",
                          name)};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {Code::kProtocolError,
              "the peer granted receive buffers that it had not posted (receiver not ready)"};
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
      if (kind == WorkKind::kReceive) {
        return {Code::kProtocolError, "the peer sent a frame larger than a receive buffer"};
      }
      [[fallthrough]];
    default:
      return {Code::kDisconnected,
              fmt::format("a {} failed in the RDMA device: {}", name, ibv_wc_status_str(status))};
  }
}

Status FromListen(int errno_value, const Endpoint& endpoint) {
  if (errno_value == EADDRINUSE) {
    return {Code::kErrno, EADDRINUSE,
            fmt::format("the RDMA port {} is taken, by another server or (iWARP) by a TCP socket; "
                        "choose another port",
                        endpoint.port)};
  }
  if (errno_value == EACCES && endpoint.port != 0 && endpoint.port < 1024) {
    return {Code::kUnavailable, EACCES,
            fmt::format("the RDMA port {} is root's, as all below 1024 are; choose another port",
                        endpoint.port)};
  }
  if (errno_value == EADDRNOTAVAIL || errno_value == ENODEV) {
    return {Code::kUnavailable, errno_value,
            fmt::format("'{}' is no address of an RDMA device of this host; see 'rdma link'",
                        endpoint.host)};
  }
  return Explain(errno_value, fmt::format("cannot listen at {}", endpoint.ToString()));
}

}  // namespace rdfs::transport::verbs
