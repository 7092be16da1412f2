#include "transport/base/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "transport/base/json_string.h"
#include "transport/base/printable.h"

namespace rdfs {
namespace {

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// A histogram as https://prometheus.io/docs/instrumenting/exposition_formats/ has it: each bucket
// counts all that the smaller ones count as well.
void AddHistogram(const std::string& labels, const LatencyHistogram& times, std::string& out) {
  constexpr std::string_view kName = "rdfs_operation_seconds";
  std::uint64_t up_to = 0;
  for (std::size_t i = 0; i < times.buckets.size(); ++i) {
    up_to += times.buckets[i];
    const bool last = i + 1 == times.buckets.size();
    const std::string edge =
        last ? "+Inf" : fmt::format("{}", Seconds(LatencyHistogram::UpperEdge(i)));
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", kName, labels, edge, up_to);
  }
  out += fmt::format("{}_sum{{{}}} {}\n", kName, labels, Seconds(times.sum));
  out += fmt::format("{}_count{{{}}} {}\n", kName, labels, up_to);
}

std::string JsonOf(const std::string& text) { return JsonString(text); }
std::string JsonOf(std::uint64_t number) { return std::to_string(number); }
std::string JsonOf(bool yes) { return yes ? "true" : "false"; }
std::string JsonOf(const Snapshot::Value& value) {
  return std::visit([](const auto& each) { return JsonOf(each); }, value);
}

template <typename Pairs>
std::string ObjectOf(const Pairs& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", JsonString(name), JsonOf(value));
  }
  return "{" + out + "}";
}

std::string ObjectOf(const Rates::Speeds& speeds) {
  return fmt::format(
      "{{\"read_bytes_per_second\": {:.1f}, \"written_bytes_per_second\": {:.1f}, "
      "\"requests_per_second\": {:.3f}, \"over_seconds\": {:.3f}}}",
      speeds.read_bytes_per_second, speeds.written_bytes_per_second, speeds.requests_per_second,
      speeds.over_seconds);
}

std::string ArrayOf(const std::vector<Snapshot::Fields>& objects) {
  std::string out;
  for (const Snapshot::Fields& fields : objects) {
    out += (out.empty() ? "" : ", ") + ObjectOf(fields);
  }
  return "[" + out + "]";
}

}  // namespace

std::string ShortTime(std::chrono::nanoseconds time) {
  double value = static_cast<double>(time.count());
  const char* unit = "ns";
  for (const char* next : {"us", "ms", "s"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, unit);
}

std::string ShortAmount(const Scaled& amount) {
  return fmt::format("{:.{}f} {}", amount.value, amount.value < 10 && !amount.whole ? 1 : 0,
                     amount.unit);
}

std::string ShortRate(double rate) { return fmt::format("{:.{}f}", rate, rate < 10 ? 1 : 0); }

std::string ToText(const Snapshot& snapshot) {
  std::string out;
  for (const auto& [name, value] : snapshot.words) {
    out += fmt::format("{:<24} {}\n", name, Printable(value));
  }
  if (snapshot.rates) out += fmt::format("{:<24} {}\n", "rates", ToString(*snapshot.rates));
  for (const auto& [name, value] : snapshot.lines) {
    out += fmt::format("  {:<22} {}\n", name, Printable(value));
  }
  for (const Figure& figure : snapshot.figures) {
    if (figure.value == 0) continue;
    const std::string name =
        figure.label.empty() ? figure.name : figure.name + " " + Printable(figure.label);
    out += fmt::format("  {:<30} {}\n", name, figure.value);
  }
  for (const auto& [operation, times] : snapshot.latencies) {
    out +=
        fmt::format("  {:<30} {}, p50 {}, p99 {}, longest {}\n", "latency " + Printable(operation),
                    times.count(), ShortTime(times.Percentile(50)), ShortTime(times.Percentile(99)),
                    ShortTime(times.longest));
  }
  return out;
}

std::string ToJson(const Snapshot& snapshot) {
  std::string out = "{";
  for (const auto& [name, value] : snapshot.words) {
    out += fmt::format("{}: {}, ", JsonString(name), JsonString(value));
  }
  out += fmt::format("\"info\": {}, ", ObjectOf(snapshot.info));
  if (snapshot.rates) out += fmt::format("\"rates\": {}, ", ObjectOf(*snapshot.rates));
  if (snapshot.sessions) out += fmt::format("\"sessions\": {}, ", ArrayOf(*snapshot.sessions));
  out += "\"lines\": [";
  for (std::size_t i = 0; i < snapshot.lines.size(); ++i) {
    const auto& [name, value] = snapshot.lines[i];
    out += fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", JsonString(name), JsonString(value));
  }
  out += "], \"figures\": {";
  for (std::size_t i = 0; i < snapshot.figures.size(); ++i) {
    const Figure& figure = snapshot.figures[i];
    const bool first = i == 0 || snapshot.figures[i - 1].name != figure.name;
    const bool last =
        i + 1 == snapshot.figures.size() || snapshot.figures[i + 1].name != figure.name;
    if (i > 0) out += ", ";
    if (first) out += JsonString(figure.name) + ": ";
    if (figure.label.empty()) {
      out += std::to_string(figure.value);
      continue;
    }
    out += fmt::format("{}{}: {}{}", first ? "{" : "", JsonString(figure.label), figure.value,
                       last ? "}" : "");
  }
  out += "}, \"latencies\": {";
  for (std::size_t i = 0; i < snapshot.latencies.size(); ++i) {
    const auto& [operation, times] = snapshot.latencies[i];
    out += fmt::format(
        "{}{}: {{\"count\": {}, \"sum_ns\": {}, \"p50_ns\": {}, \"p99_ns\": {}, \"max_ns\": {}}}",
        i == 0 ? "" : ", ", JsonString(operation), times.count(), times.sum.count(),
        times.Percentile(50).count(), times.Percentile(99).count(), times.longest.count());
  }
  return out + "}}\n";
}

std::string ToPrometheus(const Snapshot& snapshot) {
  std::string out;
  std::string common;
  if (!snapshot.words.empty()) {
    common = fmt::format("{}={}", snapshot.words[0].first, LabelString(snapshot.words[0].second));
  }
  if (!snapshot.info.empty()) {
    out +=
        "# HELP rdfs_info What it is: always 1, the labels say it.\n# TYPE rdfs_info gauge\n"
        "rdfs_info{" +
        common;
    for (const auto& [name, value] : snapshot.info) {
      out += fmt::format("{}{}={}", out.ends_with('{') ? "" : ",", name, LabelString(value));
    }
    out += "} 1\n";
  }
  std::string_view before;
  for (const Figure& figure : snapshot.figures) {
    const std::string name = fmt::format("rdfs_{}{}", figure.name, figure.counter ? "_total" : "");
    if (figure.name != before) {
      out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, figure.help, name,
                         figure.counter ? "counter" : "gauge");
    }
    before = figure.name;
    std::string labels = common;
    if (!figure.label.empty()) {
      labels += fmt::format("{}op={}", labels.empty() ? "" : ",", LabelString(figure.label));
    }
    out += fmt::format("{}{{{}}} {}\n", name, labels, figure.value);
  }
  if (!snapshot.latencies.empty()) {
    out +=
        "# HELP rdfs_operation_seconds How long operations took, from the request to its answer.\n"
        "# TYPE rdfs_operation_seconds histogram\n";
  }
  for (const auto& [operation, times] : snapshot.latencies) {
    const std::string labels =
        fmt::format("{}{}op={}", common, common.empty() ? "" : ",", LabelString(operation));
    AddHistogram(labels, times, out);
  }
  return out;
}

std::string MergeMetrics(const std::vector<std::string>& answers) {
  struct Metric {
    std::string name, comments, samples;
  };
  std::deque<Metric> metrics;
  for (std::string_view text : answers) {
    Metric* metric = nullptr;  // that the lines speak of
    bool first = false;        // nobody before has said what it is
    while (!text.empty()) {
      const std::string line(text.substr(0, text.find('\n')));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      const bool comment = line.starts_with("# ");  // "# TYPE name ..."
      const std::size_t at = comment ? std::min(line.find(' ', 2), line.size() - 1) + 1 : 0;
      const std::string name = comment ? line.substr(at, line.find(' ', at) - at) : "";
      if (metric == nullptr || (comment && metric->name != name)) {
        const auto known = std::ranges::find(metrics, name, &Metric::name);
        first = known == metrics.end();
        metric = first ? &metrics.emplace_back(Metric{name, {}, {}}) : &*known;
      }
      if (!comment) metric->samples += line + '\n';
      if (comment && first) metric->comments += line + '\n';
    }
  }
  std::string out;
  for (const Metric& metric : metrics) out += metric.comments + metric.samples;
  return out;
}

bool TellsRates(std::string_view request) { return request == "status" || request == "json"; }

std::string AnswerRequest(std::string_view request, const Snapshot& snapshot) {
  if (request == "name") return snapshot.words.empty() ? "" : snapshot.words[0].second;
  if (request == "status") return ToText(snapshot);
  if (request == "json") return ToJson(snapshot);
  if (request == "metrics") return ToPrometheus(snapshot);
  return "there is no such request; there are name, status, json and metrics\n";
}

}  // namespace rdfs
