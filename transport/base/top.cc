#include "transport/base/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>

#include "transport/base/scaled.h"
#include "transport/base/snapshot.h"

namespace rdfs {
namespace {

constexpr std::string_view kHistogram = "rdfs_operation_seconds";

// key="value",key="value" as ToPrometheus writes it. The first one names the program.
void ParseLabels(std::string_view text, Sample& sample) {
  for (bool first = true;; first = false) {
    const std::size_t equals = text.find("=\"");
    if (equals == text.npos) return;
    const std::string_view key = text.substr(0, equals);
    text.remove_prefix(equals + 2);
    std::string value;
    while (!text.empty() && text.front() != '"') {
      if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
      value += text.front();
      text.remove_prefix(1);
    }
    text.remove_prefix(std::min<std::size_t>(2, text.size()));  // the quote and the comma
    if (key == "op") {
      sample.operation = value;
    } else if (key == "le") {
      sample.edge = value;
    } else if (first) {
      sample.program = fmt::format("{} {}", key, value);
    }
  }
}

class Growth {
 public:
  Growth(const Samples& before, const Samples& now) : before_(before), now_(now) {}

  // A program that was started again counts from 0.
  [[nodiscard]] double Of(const Sample& sample) const {
    const double then = At(before_, sample), later = At(now_, sample);
    return later >= then ? later - then : later;
  }
  [[nodiscard]] const Samples& now() const { return now_; }

 private:
  static double At(const Samples& samples, const Sample& sample) {
    const auto found = samples.find(sample);
    return found == samples.end() ? 0 : found->second;
  }

  const Samples& before_;
  const Samples& now_;
};

std::size_t BucketOfEdge(const std::string& edge) {
  const double seconds = std::strtod(edge.c_str(), nullptr);
  if (!std::isfinite(seconds)) return LatencyHistogram::kBuckets - 1;
  return LatencyHistogram::BucketOf(std::chrono::nanoseconds(std::llround(seconds * 1e9)));
}

LatencyHistogram HistogramOf(const Growth& growth, const std::string& program,
                             const std::string& operation) {
  LatencyHistogram up_to;  // as Prometheus counts: all that smaller ones count, too
  const Sample first{program, std::string(kHistogram) + "_bucket", operation, {}};
  for (auto at = growth.now().lower_bound(first); at != growth.now().end(); ++at) {
    const Sample& sample = at->first;
    if (sample.program != program || sample.metric != first.metric || sample.operation != operation)
      break;
    up_to.buckets[BucketOfEdge(sample.edge)] =
        static_cast<std::uint64_t>(std::max(0.0, growth.Of(sample)));
  }
  LatencyHistogram out;
  for (std::size_t i = 0; i < up_to.buckets.size(); ++i) {
    const std::uint64_t less = i == 0 ? 0 : up_to.buckets[i - 1];
    out.buckets[i] = up_to.buckets[i] - std::min(less, up_to.buckets[i]);
  }
  const double sum = growth.Of({program, std::string(kHistogram) + "_sum", operation, {}});
  out.sum = std::chrono::nanoseconds(std::llround(sum * 1e9));
  out.longest = LatencyHistogram::UpperEdge(LatencyHistogram::kBuckets - 1);
  return out;
}

std::string OperationLines(const Growth& growth, const std::string& program, double seconds) {
  struct Row {
    std::string operation;
    LatencyHistogram times;
  };
  std::vector<Row> rows;
  for (const auto& [sample, value] : growth.now()) {
    if (sample.program != program || sample.metric != std::string(kHistogram) + "_count") continue;
    Row row{sample.operation, HistogramOf(growth, program, sample.operation)};
    if (row.times.count() > 0) rows.push_back(std::move(row));
  }
  if (rows.empty()) return {};
  std::ranges::stable_sort(rows, std::ranges::greater(),
                           [](const Row& row) { return row.times.count(); });
  std::string out =
      fmt::format("  {:<24}{:>12}{:>12}{:>12}\n", "operation", "per second", "mean", "p99");
  for (const auto& [operation, times] : rows) {
    const auto count = times.count();
    out += fmt::format(
        "  {:<24}{:>12}{:>12}{:>12}\n", operation, ShortRate(static_cast<double>(count) / seconds),
        ShortTime(times.sum / static_cast<std::int64_t>(count)), ShortTime(times.Percentile(99)));
  }
  return out;
}

// "rdfs_read_bytes_total": "read bytes".
std::string NameOf(std::string_view metric) {
  if (metric.starts_with("rdfs_")) metric.remove_prefix(5);
  if (metric.ends_with("_total")) metric.remove_suffix(6);
  std::string out(metric);
  std::ranges::replace(out, '_', ' ');
  return out;
}

// Of "rdfs_grant_hits_total" and its misses: how often it was at hand. Empty: it is no such metric.
std::string HitLine(const Growth& growth, const Sample& sample, double seconds) {
  constexpr std::string_view kHits = "_hits_total";
  if (!sample.metric.ends_with(kHits)) return {};
  const std::string stem = sample.metric.substr(0, sample.metric.size() - kHits.size());
  Sample misses = sample;
  misses.metric = stem + "_misses_total";
  const double hits = growth.Of(sample);
  const double all = hits + growth.Of(misses);
  if (all <= 0) return {};
  return fmt::format("  {:<24}{:>12}  of {} per second\n", NameOf(stem) + " hits",
                     fmt::format("{:.1f} %", 100 * hits / all), ShortRate(all / seconds));
}

std::string FigureLine(const Growth& growth, const Sample& sample, double value, double seconds) {
  const std::string name = NameOf(sample.metric);
  const bool bytes = name.ends_with("bytes");
  if (sample.metric.ends_with("_total")) {
    const double rate = growth.Of(sample) / seconds;
    if (rate <= 0) return {};
    return fmt::format("  {:<24}{:>12}\n", name,
                       bytes ? ShortAmount(ScaleByteRate(rate)) : ShortRate(rate) + "/s");
  }
  if (value <= 0) return {};
  return fmt::format("  {:<24}{:>12}\n", name,
                     bytes ? ShortAmount(ScaleBytes(value)) : fmt::format("{:.0f}", value));
}

std::string FigureLines(const Growth& growth, const std::string& program, double seconds) {
  std::string rates, hits, amounts;
  for (const auto& [sample, value] : growth.now()) {
    const bool shown_above = sample.metric.starts_with(kHistogram) || !sample.operation.empty();
    const bool no_figure =
        sample.metric.ends_with("_misses_total") || sample.metric.ends_with("_info");
    if (sample.program != program || shown_above || no_figure) continue;
    if (sample.metric.ends_with("_hits_total")) {
      hits += HitLine(growth, sample, seconds);
    } else {
      (sample.metric.ends_with("_total") ? rates : amounts) +=
          FigureLine(growth, sample, value, seconds);
    }
  }
  return hits + rates + amounts;
}

// "name{labels} value".
void ParseLine(std::string_view line, Samples& samples) {
  const std::size_t blank = line.rfind(' ');
  if (line.starts_with('#') || blank == line.npos) return;
  const std::string_view name = line.substr(0, blank);
  const std::size_t brace = std::min(name.find('{'), name.size());
  Sample sample;
  sample.metric = name.substr(0, brace);
  if (brace < name.size()) ParseLabels(name.substr(brace + 1), sample);
  samples[std::move(sample)] = std::strtod(std::string(line.substr(blank + 1)).c_str(), nullptr);
}

}  // namespace

Samples ParseMetrics(const std::vector<std::string>& answers) {
  Samples samples;
  for (std::string_view text : answers) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      ParseLine(line, samples);
    }
  }
  return samples;
}

std::string TopTable(const Samples& before, const Samples& now, double seconds) {
  std::set<std::string> programs;
  for (const auto& [sample, value] : now) programs.insert(sample.program);
  const Growth growth(before, now);
  std::string out;
  for (const std::string& program : programs) {
    out += program + '\n' + OperationLines(growth, program, seconds) +
           FigureLines(growth, program, seconds) + '\n';
  }
  return out;
}

}  // namespace rdfs
