#pragma once

#include <memory>

#include "transport/transport.h"

namespace rdfs::transport::shm {

std::unique_ptr<Transport> MakeTransport();

}  // namespace rdfs::transport::shm
