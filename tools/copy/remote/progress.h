// ProgressTeller: at a far end, tells the caller of a copy that this one does not make with it, or
// that it relays: how much there is to do, once, and now and then how much of it is done.
//
// One thread, the driver's; but for copied(), any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "tools/copy/remote/talk.h"
#include "transport/base/clock.h"

namespace rdfs::copy {

class ProgressTeller {
 public:
  // Without `on` nothing is told. Outlived by `caller`.
  ProgressTeller(Talk& caller, bool on) : caller_(caller), on_(on) {}
  ProgressTeller(const ProgressTeller&) = delete;
  ProgressTeller& operator=(const ProgressTeller&) = delete;

  // For who copies: counts files. Outlived by this.
  [[nodiscard]] Copied copied() {
    return [this](const Entry& entry, const std::string&) {
      if (entry.kind != Kind::kDirectory) ++files_;
    };
  }
  // To be called often. `kept`: see Report::kept.
  Status Turn(std::uint64_t bytes, std::uint64_t kept, const Totals& passed,
              const std::optional<Totals>& totals, TimePoint now);

 private:
  Talk& caller_;
  const bool on_;
  std::atomic<std::uint64_t> files_{0};
  bool totals_told_ = false;
  TimePoint next_{};
};

}  // namespace rdfs::copy
