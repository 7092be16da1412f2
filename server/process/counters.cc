#include "server/process/counters.h"

#include <fmt/format.h>

namespace rdfs::server {

void Counters::AddTo(Snapshot& out) const {
  out.Count("malformed", "Messages that made no sense and ended their connection.", malformed);
  out.Count("lanes_opened", "Connections for data that clients made.", lanes_opened);
  out.Count("sessions_started", "Mounts that began.", sessions_started);
  out.Count("sessions_expired", "Mounts given up because nothing was heard of them.",
            sessions_expired);
  out.Count("replayed", "Answers given a second time, to requests sent again after a loss.",
            replayed);
  out.Count("changed_outside", "Changes noticed that other programs on this host made.",
            changed_outside);
  // All of one name together, as the formats want them.
  using Member = std::atomic<std::uint64_t> PerOpcode::*;
  const auto add = [&](const char* name, const char* help, Member member) {
    for (std::size_t i = 0; i < kOpcodes; ++i) {
      if (opcodes_[i].requests.load(std::memory_order_relaxed) == 0) continue;
      out.Count(name, help, (opcodes_[i].*member).load(std::memory_order_relaxed),
                std::string(fs::OpcodeName(static_cast<fs::Opcode>(i))));
    }
  };
  add("requests", "Requests that came.", &PerOpcode::requests);
  add("request_errors", "Requests answered with an error.", &PerOpcode::errors);
  add("request_bytes", "Bytes of files that requests read or wrote.", &PerOpcode::bytes);
}

Rates::Totals Counters::Totals() const {
  Rates::Totals out;
  for (std::size_t i = 0; i < kOpcodes; ++i) {
    const std::uint64_t bytes = opcodes_[i].bytes.load(std::memory_order_relaxed);
    (i == IndexOf(fs::Opcode::kRead) ? out.read_bytes : out.written_bytes) += bytes;
    out.requests += opcodes_[i].requests.load(std::memory_order_relaxed);
  }
  return out;
}

std::string Counters::ToString() {
  std::string out = fmt::format(
      "sessions {} (expired {}), lanes {}, malformed {}, replayed {}, changed outside {}",
      sessions_started.load(), sessions_expired.load(), lanes_opened.load(), malformed.load(),
      replayed.load(), changed_outside.load());
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
