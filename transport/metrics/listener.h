// A listening socket for a Server.
#pragma once

#include "transport/base/fd.h"
#include "transport/metrics/address.h"

namespace rdfs::metrics {

// `address` gets the port that it is, and its host in the usual spelling. Errors as Server::Listen.
Result<Fd> Listen(Address& address);

}  // namespace rdfs::metrics
