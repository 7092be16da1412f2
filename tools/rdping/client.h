// rdping's client: measures each leg in turn, and nothing else at the time. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/rdping/statistics.h"
#include "transport/base/status.h"
#include "transport/session/key.h"
#include "transport/transport.h"

namespace rdfs::rdping {

struct ClientOptions {
  std::string host;
  std::uint16_t port = 0;
  transport::Key key;
  std::optional<transport::Kind> only;
  bool plaintext = false;
  std::chrono::milliseconds duration{1000};  // of each measurement
  std::size_t latency_bytes = 64;
  std::vector<std::size_t> sizes;  // of the bandwidth columns; empty: the usual ones
};

struct Bandwidth {
  std::size_t size;
  double bytes_per_second;
};

// One row of the table: a transport and an operation.
struct Row {
  std::string transport;  // "kernel tcp", "verbs"
  std::string operation;  // "message", "READ", "WRITE"
  LatencySummary latency;
  std::vector<Bandwidth> bandwidth;
};

struct Skipped {
  std::string transport;
  std::string reason;
};

struct Report {
  std::string peer;
  std::size_t latency_bytes = 0;
  std::vector<Row> rows;
  std::vector<Skipped> skipped;
  Status failed;  // with options.only: why some of its rows or columns are missing
};

// Blocks for about options.duration for each figure. A leg that does not work is skipped with its
// reason, and what was measured of it is kept; with options.only it is an error where that is
// nothing, and else `failed`.
Result<Report> Measure(const ClientOptions& options);

std::string ToTable(const Report& report);
std::string ToJson(const Report& report);

}  // namespace rdfs::rdping
