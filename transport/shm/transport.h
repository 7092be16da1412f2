#pragma once

#include <cstddef>
#include <memory>

#include "transport/shm/wire.h"
#include "transport/transport.h"

namespace rdfs::transport::shm {

// `peer_regions`: how many regions each peer of its listeners may share at a time; 0 where its
// memory is never read or written from this side, since each costs a mapping. One more ends the
// connection.
std::unique_ptr<Transport> MakeTransport(std::size_t peer_regions = kMaxRegions);

}  // namespace rdfs::transport::shm
