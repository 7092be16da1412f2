#include "transport/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace rdfs {

void FillRandom(MutableByteSpan out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      std::abort();
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::uint64_t RandomU64() {
  std::uint64_t value = 0;
  FillRandom(std::as_writable_bytes(std::span<std::uint64_t, 1>(&value, 1)));
  return value;
}

}  // namespace rdfs
