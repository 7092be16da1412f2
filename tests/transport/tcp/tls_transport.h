// The tcp transport with TLS under it, for the conformance suite: sessions put the same pieces
// together in another order (they authenticate first). The PSK is fixed, because nothing is secret
// here.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace rdfs::transport::tcp {

std::unique_ptr<Transport> MakeTlsTransport();

}  // namespace rdfs::transport::tcp
