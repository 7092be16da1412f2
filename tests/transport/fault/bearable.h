// The faults that a caller has to live with: completions and messages that come late, and posts
// that are to be tried again.
#pragma once

#include "transport/fault/transport.h"

namespace rdfs::transport::fault {

inline constexpr Plan kBearable{
    .seed = 20261120, .delay_completion = 2'000, .delay_polls = 5, .busy = 1'500};

}  // namespace rdfs::transport::fault
