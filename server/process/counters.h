// Counters: what the server has done, for SIGUSR1, the end, and tests. Any thread; relaxed atomics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "fs/protocol.h"
#include "transport/base/rates.h"
#include "transport/base/snapshot.h"

namespace rdfs::server {

class Counters {
 public:
  struct PerOpcode {
    std::atomic<std::uint64_t> requests{0};
    std::atomic<std::uint64_t> errors{0};
    std::atomic<std::uint64_t> bytes{0};  // of file content, both ways
  };
  // Opcodes are small numbers; what is not known counts as 0.
  static constexpr std::size_t kOpcodes = 96;

  static std::size_t IndexOf(fs::Opcode opcode) {
    const auto index = static_cast<std::size_t>(opcode);
    return index < kOpcodes ? index : 0;
  }
  PerOpcode& Of(fs::Opcode opcode) { return opcodes_[IndexOf(opcode)]; }
  std::atomic<std::uint64_t> malformed{0};
  std::atomic<std::uint64_t> lanes_opened{0};
  std::atomic<std::uint64_t> sessions_started{0};
  std::atomic<std::uint64_t> sessions_expired{0};
  std::atomic<std::uint64_t> replayed{0};         // answers given a second time
  std::atomic<std::uint64_t> changed_outside{0};  // noticed changes by others on this host

  void AddTo(Snapshot& out) const;
  // Of all requests; what is granted to be read counts as read.
  [[nodiscard]] Rates::Totals Totals() const;
  // One line for each opcode that was used.
  [[nodiscard]] std::string ToString();

 private:
  std::array<PerOpcode, kOpcodes> opcodes_;
};

}  // namespace rdfs::server
