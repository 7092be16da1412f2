#include "transport/verbs/transport.h"

#include <infiniband/verbs.h>

#include "transport/base/log.h"
#include "transport/verbs/connect.h"
#include "transport/verbs/devices.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/listener.h"

namespace rdfs::transport::verbs {
namespace {

class VerbsTransport final : public Transport {
 public:
  [[nodiscard]] Kind kind() const override { return Kind::kVerbs; }
  [[nodiscard]] Viability Probe() const override { return ProbeDevices(); }
  Result<std::unique_ptr<Listener>> Listen(const Endpoint& endpoint) override {
    return VerbsListener::Create(endpoint);
  }
  Result<std::unique_ptr<Connection>> Connect(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline) override {
    return ConnectTo(endpoint, domain, token, deadline);
  }
};

}  // namespace

std::unique_ptr<Transport> MakeTransport() {
  // Our programs start others (ssh, fusermount3). Regions are MADV_DONTFORK of their own, but the
  // queues that the drivers pin are not: without this call, a fork on a kernel before 5.12 leaves
  // the device writing to pages that this process no longer sees. Newer kernels copy pinned pages
  // at the fork, and there the call does nothing. Calling it again does nothing either.
  if (const int error = ibv_fork_init(); error != 0) {
    LogDebug("{}", FromReturned(error, "cannot make the RDMA library safe for fork").message());
  }
  return std::make_unique<VerbsTransport>();
}

}  // namespace rdfs::transport::verbs
