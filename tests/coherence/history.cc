#include "tests/coherence/history.h"

#include <algorithm>
#include <map>

namespace rdfs::coherence {
namespace {

struct Zone {
  std::uint64_t value = 0;
  std::uint64_t first_end = Operation::kNever;
  std::uint64_t last_begin = 0;
  bool written = false;
  bool read = false;
  std::uint64_t written_from = 0;
  std::uint64_t first_read_end = Operation::kNever;

  [[nodiscard]] bool forward() const { return first_end < last_begin; }
  [[nodiscard]] std::uint64_t low() const { return std::min(first_end, last_begin); }
  [[nodiscard]] std::uint64_t high() const { return std::max(first_end, last_begin); }
};

std::map<std::uint64_t, Zone> ZonesOf(const std::vector<Operation>& history) {
  std::map<std::uint64_t, Zone> zones;
  zones[0] = {.first_end = 0, .written = true};  // before everything else
  for (const Operation& operation : history) {
    Zone& zone = zones[operation.value];
    zone.value = operation.value;
    zone.first_end = std::min(zone.first_end, operation.end);
    zone.last_begin = std::max(zone.last_begin, operation.begin);
    if (operation.write) {
      zone.written = true;
      zone.written_from = operation.begin;
    } else {
      zone.read = true;
      zone.first_read_end = std::min(zone.first_read_end, operation.end);
    }
  }
  // A write that never ended and that nobody saw has not happened.
  std::erase_if(zones, [](const auto& entry) {
    return !entry.second.read && entry.second.first_end == Operation::kNever;
  });
  return zones;
}

std::string Name(const Zone& zone) { return "value " + std::to_string(zone.value); }

}  // namespace

std::string WhyNotLinearizable(const std::vector<Operation>& history) {
  std::vector<Zone> forward;
  std::vector<Zone> backward;
  for (const auto& [value, zone] : ZonesOf(history)) {
    if (!zone.written) return Name(zone) + " was read and never written";
    if (zone.first_read_end < zone.written_from) return Name(zone) + " was read too early";
    (zone.forward() ? forward : backward).push_back(zone);
  }
  std::sort(forward.begin(), forward.end(),
            [](const Zone& a, const Zone& b) { return a.low() < b.low(); });
  for (std::size_t i = 1; i < forward.size(); ++i) {
    if (forward[i].low() < forward[i - 1].high()) {
      return Name(forward[i - 1]) + " was seen after " + Name(forward[i]) + " and before it";
    }
  }
  for (const Zone& inner : backward) {
    const auto behind =
        std::upper_bound(forward.begin(), forward.end(), inner.low(),
                         [](std::uint64_t at, const Zone& zone) { return at < zone.low(); });
    if (behind == forward.begin()) continue;
    const Zone& outer = *(behind - 1);
    if (inner.high() < outer.high()) return Name(outer) + " was seen after " + Name(inner);
  }
  return {};
}

}  // namespace rdfs::coherence
