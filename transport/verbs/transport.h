#pragma once

#include <memory>

#include "transport/transport.h"

namespace rdfs::transport::verbs {

std::unique_ptr<Transport> MakeTransport();

}  // namespace rdfs::transport::verbs
