// Amounts and rates of bytes for a person: a number that is short, and its unit. Whoever shows them
// says with how many digits.
#pragma once

#include <array>
#include <cstddef>

namespace rdfs {

struct Scaled {
  double value = 0;
  const char* unit = "";
  bool whole = true;  // the smallest unit: it has no fractions
};

inline Scaled Scale(double value, double step, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  for (; value >= step && unit + 1 < units.size(); ++unit) value /= step;
  return {value, units[unit], unit == 0};
}

inline Scaled ScaleBytes(double bytes) {
  return Scale(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

// As network people count.
inline Scaled ScaleByteRate(double bytes_per_second) {
  return Scale(bytes_per_second, 1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

}  // namespace rdfs
