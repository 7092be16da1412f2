// The verbs transport: the interface of ../transport.h over RDMA devices (InfiniBand, RoCE, iWARP),
// by libibverbs and librdmacm.
//
// The connection manager (cm.h) makes connections. Messages are SENDs, paid for with credits
// (credit.h); one-sided operations are READs and WRITEs that the devices carry out: the program at
// the passive end does nothing.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace rdfs::transport::verbs {

std::unique_ptr<Transport> MakeTransport();

}  // namespace rdfs::transport::verbs
