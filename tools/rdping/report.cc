// The report as a table for people and as JSON for programs.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/rdping/client.h"

namespace rdfs::rdping {
namespace {

std::string SizeName(std::size_t size) {
  if (size % (1U << 20U) == 0) return fmt::format("{} MiB", size >> 20U);
  if (size % (1U << 10U) == 0) return fmt::format("{} KiB", size >> 10U);
  return fmt::format("{} B", size);
}

std::string RateName(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
  return fmt::format("{:.1f} MB/s", bytes_per_second / 1e6);
}

}  // namespace

std::string ToTable(const Report& report) {
  std::set<std::size_t> sizes;
  for (const Row& row : report.rows) {
    for (const Bandwidth& entry : row.bandwidth) sizes.insert(entry.size);
  }
  std::string out = fmt::format("{}: round trips of {} bytes, one at a time; bandwidth by size\n\n",
                                report.peer, report.latency_bytes);
  out += fmt::format("{:<16} {:<8} {:>10} {:>9} {:>9} {:>9} {:>9}", "transport", "operation",
                     "per second", "avg us", "p50 us", "p99 us", "p99.9 us");
  for (const std::size_t size : sizes) out += fmt::format(" {:>11}", SizeName(size));
  out += "\n";
  for (const Row& row : report.rows) {
    const LatencySummary& l = row.latency;
    out += fmt::format("{:<16} {:<8} {:>10.0f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}", row.transport,
                       row.operation, l.per_second, l.average_us, l.p50_us, l.p99_us, l.p999_us);
    for (const std::size_t size : sizes) {
      const auto found = std::ranges::find(row.bandwidth, size, &Bandwidth::size);
      out += fmt::format(" {:>11}",
                         found == row.bandwidth.end() ? "-" : RateName(found->bytes_per_second));
    }
    out += "\n";
  }
  for (const Skipped& skipped : report.skipped) {
    out += fmt::format("\nnot measured: {}: {}", skipped.transport, skipped.reason);
  }
  if (!report.skipped.empty()) out += "\n";
  return out;
}

std::string ToJson(const Report& report) {
  nlohmann::ordered_json out;
  out["peer"] = report.peer;
  out["latency_bytes"] = report.latency_bytes;
  out["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : report.rows) {
    nlohmann::ordered_json entry;
    entry["transport"] = row.transport;
    entry["operation"] = row.operation;
    entry["round_trips"] = row.latency.count;
    entry["round_trips_per_second"] = row.latency.per_second;
    entry["average_us"] = row.latency.average_us;
    entry["p50_us"] = row.latency.p50_us;
    entry["p99_us"] = row.latency.p99_us;
    entry["p99_9_us"] = row.latency.p999_us;
    entry["bandwidth"] = nlohmann::ordered_json::array();
    for (const Bandwidth& bandwidth : row.bandwidth) {
      entry["bandwidth"].push_back(
          {{"bytes", bandwidth.size}, {"bytes_per_second", bandwidth.bytes_per_second}});
    }
    out["rows"].push_back(std::move(entry));
  }
  out["skipped"] = nlohmann::ordered_json::array();
  for (const Skipped& skipped : report.skipped) {
    out["skipped"].push_back({{"transport", skipped.transport}, {"reason", skipped.reason}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace rdfs::rdping
