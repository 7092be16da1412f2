// The shm transport: the interface of ../transport.h between two processes of one host.
//
// They meet at a UNIX socket in the abstract namespace, over which they pass descriptors of shared
// memory: the ring of each direction for messages, and registered regions, which each maps of the
// other. So one-sided operations are copies by the end that asks, and the other does nothing.
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
