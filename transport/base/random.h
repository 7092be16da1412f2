// Random bytes from the kernel (getrandom(2)). Never fails: without them nothing here is safe, so
// the process aborts. Any thread.
#pragma once

#include <cstdint>

#include "transport/base/bytes.h"

namespace rdfs {

void FillRandom(MutableByteSpan out);
std::uint64_t RandomU64();

}  // namespace rdfs
