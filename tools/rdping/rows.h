// Rows of the report as they are measured. One thread, the caller's.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/rdping/client.h"

namespace rdfs::rdping {

// Appends the row of one transport and operation: `latency()`, then `bandwidth(size)` for each of
// `sizes`. Where one of these fails the row keeps what was measured before it, and nothing is
// appended where that is nothing.
template <typename MeasureLatency, typename MeasureBandwidth>
Status AddRow(Report& report, std::string_view transport, std::string_view operation,
              const std::vector<std::size_t>& sizes, MeasureLatency latency,
              MeasureBandwidth bandwidth) {
  Row row{std::string(transport), std::string(operation), {}, {}};
  RDFS_ASSIGN_OR_RETURN(row.latency, latency());
  Status status;
  for (const std::size_t size : sizes) {
    const Result<double> rate = bandwidth(size);
    if (!rate.ok()) {
      status = rate.status();
      break;
    }
    row.bandwidth.push_back({size, *rate});
  }
  report.rows.push_back(std::move(row));
  return status;
}

}  // namespace rdfs::rdping
