// What a running program says of itself when names in it come from peers, and what it is asked.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "transport/base/snapshot.h"

namespace rdfs::fuzz {
namespace {

bool IsPlain(std::string_view text) {
  unsigned char before = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) return false;
    if (before == 0xc2 && byte >= 0x80 && byte < 0xa0) return false;
    before = byte;
  }
  return true;
}

}  // namespace

void Run(ByteSpan input) {
  Pieces pieces(input);
  Snapshot snapshot;
  const std::string request(AsText(pieces.Next()));
  snapshot.words.emplace_back("mount", AsText(pieces.Next()));
  snapshot.lines.emplace_back("session", AsText(pieces.Next()));
  const std::string label(AsText(pieces.Next()));
  snapshot.info.emplace_back("transport", label);
  snapshot.rates.emplace();
  snapshot.sessions.emplace().push_back({{"client", label}, {"open_files", std::uint64_t{1}}});
  snapshot.Count("operations", "Operations.", 7, label);
  snapshot.Gauge("sessions", "Sessions.", 1);
  LatencyHistogram times;
  times.buckets[3] = 1;
  snapshot.Latency(label, times);
  Require(IsPlain(ToText(snapshot)), "a terminal may show it");
  const auto json = nlohmann::json::parse(ToJson(snapshot), nullptr, false);
  Require(!json.is_discarded() && json.size() == 7, "it is JSON");
  const std::string metrics = ToPrometheus(snapshot);
  Require(IsPlain(metrics) && IsPlain(ToJson(snapshot)), "a terminal may show them");
  constexpr auto kLines = static_cast<std::ptrdiff_t>(13 + LatencyHistogram::kBuckets);
  Require(std::ranges::count(metrics, '\n') == kLines, "a line is a sample");
  Require(MergeMetrics({metrics}) == metrics, "one program's are as they are");
  (void)MergeMetrics({request, metrics});
  (void)AnswerRequest(request, snapshot);
}

std::vector<Bytes> Seeds() {
  Bytes out;
  for (const std::string_view text : {"status", "/mnt/a \"b\"", "host\nname", "read"}) {
    PutSized16(out, AsBytes(text));
  }
  return {out};
}

}  // namespace rdfs::fuzz
