#include "server/counters.h"

#include <fmt/format.h>

namespace rdfs::server {

std::string Counters::ToString() {
  std::string out = fmt::format("sessions {} (expired {}), lanes {}, malformed {}, replayed {}, changed outside {}",
                                sessions_started.load(), sessions_expired.load(),
                                lanes_opened.load(), malformed.load(), replayed.load(), changed_outside.load());
  for (std::size_t i = 0; i < kOpcodes; ++i) {
    const std::uint64_t requests = opcodes_[i].requests.load(std::memory_order_relaxed);
    if (requests == 0) continue;
    out += fmt::format("\n  {:<16} {} requests, {} errors, {} bytes",
                       fs::OpcodeName(static_cast<fs::Opcode>(i)), requests,
                       opcodes_[i].errors.load(), opcodes_[i].bytes.load());
  }
  return out;
}

}  // namespace rdfs::server
