// The active side of the verbs transport: from a host's name to an established connection.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace rdfs::transport::verbs {

// As Transport::Connect. Blocks, on event channels of its own. (Soft-iWARP's driver connects its
// TCP socket inside rdma_connect(3): to a host that drops packets that alone may outlast the
// deadline.)
Result<std::unique_ptr<Connection>> ConnectTo(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline);

}  // namespace rdfs::transport::verbs
