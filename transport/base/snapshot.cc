#include "transport/base/snapshot.h"

#include <fmt/format.h>

#include <algorithm>

namespace rdfs {
namespace {

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string Plain(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(out, IsControl, '?');
  return out;
}

// A JSON string (RFC 8259, section 7). Bytes that are not ASCII become '?': names need not be
// UTF-8.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += IsControl(c) || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
  }
  return out + '"';
}

}  // namespace

std::string ToText(const Snapshot& snapshot) {
  std::string out;
  for (const auto& [name, value] : snapshot.words) {
    out += fmt::format("{:<24} {}\n", name, Plain(value));
  }
  for (const auto& [name, value] : snapshot.lines) {
    out += fmt::format("  {:<22} {}\n", name, Plain(value));
  }
  for (const Figure& figure : snapshot.figures) {
    if (figure.value == 0) continue;
    const std::string name =
        figure.label.empty() ? figure.name : figure.name + " " + Plain(figure.label);
    out += fmt::format("  {:<30} {}\n", name, figure.value);
  }
  return out;
}

std::string ToJson(const Snapshot& snapshot) {
  std::string out = "{";
  for (const auto& [name, value] : snapshot.words) {
    out += fmt::format("{}: {}, ", Quoted(name), Quoted(value));
  }
  out += "\"lines\": [";
  for (std::size_t i = 0; i < snapshot.lines.size(); ++i) {
    const auto& [name, value] = snapshot.lines[i];
    out += fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", Quoted(name), Quoted(value));
  }
  out += "], \"figures\": {";
  for (std::size_t i = 0; i < snapshot.figures.size(); ++i) {
    const Figure& figure = snapshot.figures[i];
    const bool first = i == 0 || snapshot.figures[i - 1].name != figure.name;
    const bool last =
        i + 1 == snapshot.figures.size() || snapshot.figures[i + 1].name != figure.name;
    if (i > 0) out += ", ";
    if (first) out += Quoted(figure.name) + ": ";
    if (figure.label.empty()) {
      out += std::to_string(figure.value);
      continue;
    }
    out += fmt::format("{}{}: {}{}", first ? "{" : "", Quoted(figure.label), figure.value,
                       last ? "}" : "");
  }
  return out + "}}\n";
}

std::string ToPrometheus(const Snapshot& snapshot) {
  std::string out;
  std::string common;
  if (!snapshot.words.empty()) {
    common = fmt::format("{}={}", snapshot.words[0].first, Quoted(snapshot.words[0].second));
  }
  std::string_view before;
  for (const Figure& figure : snapshot.figures) {
    const std::string name = fmt::format("rdfs_{}{}", figure.name, figure.counter ? "_total" : "");
    if (figure.name != before) {
      out += fmt::format("# TYPE {} {}\n", name, figure.counter ? "counter" : "gauge");
    }
    before = figure.name;
    std::string labels = common;
    if (!figure.label.empty()) {
      labels += fmt::format("{}op={}", labels.empty() ? "" : ",", Quoted(figure.label));
    }
    out += fmt::format("{}{{{}}} {}\n", name, labels, figure.value);
  }
  return out;
}

std::string AnswerRequest(std::string_view request, const Snapshot& snapshot) {
  if (request == "name") return snapshot.words.empty() ? "" : snapshot.words[0].second;
  if (request == "status") return ToText(snapshot);
  if (request == "json") return ToJson(snapshot);
  if (request == "metrics") return ToPrometheus(snapshot);
  return "there is no such request; there are name, status, json and metrics\n";
}

}  // namespace rdfs
