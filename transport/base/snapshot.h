// Snapshot: what a running program says of itself at one moment, as text, JSON and Prometheus's
// exposition format.
//
// Values; pure. Strings may come from peers: whatever a terminal or a parser would take for more
// than text is escaped.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "transport/base/latency.h"
#include "transport/base/rates.h"
#include "transport/base/scaled.h"

namespace rdfs {

struct Figure {
  std::string name;       // "read_bytes"
  std::string_view help;  // what it counts, for who meets it for the first time: a literal
  std::string label;      // of one of several under a name: an operation; else empty
  std::uint64_t value = 0;
  bool counter = true;  // grows only
};

struct OperationTimes {
  std::string operation;
  LatencyHistogram times;
};

struct Snapshot {
  // What it is: "mount" "/mnt". The first one tells it from others of its kind.
  std::vector<std::pair<std::string, std::string>> words;
  // What of them programs want by value, all of it together one metric, rdfs_info: "transport"
  // "tcp".
  std::vector<std::pair<std::string, std::string>> info;
  // How fast it goes, for who asks for text or JSON.
  std::optional<Rates::Speeds> rates;
  // Things of which there are many: "session" and a line each.
  std::vector<std::pair<std::string, std::string>> lines;
  // Of a server: the sessions among them for programs, by value. In JSON only.
  using Value = std::variant<std::string, std::uint64_t, bool>;
  using Fields = std::vector<std::pair<std::string, Value>>;
  std::optional<std::vector<Fields>> sessions;
  std::vector<Figure> figures;
  // How long each kind of operation took, from its request to its answer.
  std::vector<OperationTimes> latencies;

  void Count(std::string name, std::string_view help, std::uint64_t value, std::string label = {}) {
    figures.push_back({std::move(name), help, std::move(label), value, true});
  }
  void Gauge(std::string name, std::string_view help, std::uint64_t value) {
    figures.push_back({std::move(name), help, {}, value, false});
  }
  // Those that did not happen are left out.
  void Latency(std::string operation, const LatencyHistogram& times) {
    if (times.count() > 0) latencies.push_back({std::move(operation), times});
  }
};

std::string ToText(const Snapshot& snapshot);  // without figures that are 0
std::string ToJson(const Snapshot& snapshot);
// Names begin with "rdfs_"; every sample has the first word as a label.
std::string ToPrometheus(const Snapshot& snapshot);
// What several programs answered to that as one: no metric may be spoken of twice.
std::string MergeMetrics(const std::vector<std::string>& answers);

// "8.4 us": two or three digits.
std::string ShortTime(std::chrono::nanoseconds time);

std::string ShortAmount(const Scaled& amount);  // "8.4 MB/s", as short
// Of something that is counted, by the second: less than one has happened, too.
std::string ShortRate(double rate);

// What a ControlSocket answers: "name" (the first word), "status", "json", "metrics".
std::string AnswerRequest(std::string_view request, const Snapshot& snapshot);
// "status", and "json" that has the same: who asks is told rates, too. Prometheus makes its own.
bool TellsRates(std::string_view request);

}  // namespace rdfs
