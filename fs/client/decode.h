// Decoding of what several replies carry. A failed decode leaves the reader not ok(). Pure.
#pragma once

#include "fs/client/types.h"

namespace rdfs::fs::client {

NamedFile DecodeNamedFile(ByteReader& reader, TimePoint asked);
Attributes DecodeAttributes(ByteReader& reader, TimePoint asked);

}  // namespace rdfs::fs::client
