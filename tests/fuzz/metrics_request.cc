// What is asked of the port for metrics, by whoever reaches it.
#include "tests/fuzz/fuzz.h"
#include "transport/metrics/address.h"
#include "transport/metrics/request.h"

namespace rdfs::fuzz {

void Run(ByteSpan input) {
  Pieces pieces(input);
  const std::string_view first = AsText(pieces.Next());
  const std::string whole = std::string(first) + std::string(AsText(pieces.Next()));
  const auto names = input.size() % 2 == 0 ? metrics::Names::kAny : metrics::Names::kLocal;
  const auto early = metrics::Judge(first, names);
  const auto request = metrics::Judge(whole, names);
  Require(!early || (request && request->status == early->status && request->head == early->head),
          "what was said of the beginning holds");
  if (request) {
    const std::string answer = metrics::MakeAnswer(*request, "rdfs_x 1\n", 0);
    const std::size_t end = answer.find("\r\n\r\n");
    Require(answer.starts_with("HTTP/1.1 ") && end != answer.npos, "it is an answer");
    Require(request->status == 200 || answer.find("rdfs_x") == answer.npos, "refused is refused");
    Require(!request->head || end + 4 == answer.size(), "HEAD has no body");
  } else {
    Require(whole.size() < metrics::kMostRequestBytes, "a long one is not waited for");
  }
  if (const auto address = metrics::ParseAddress(first); address.ok()) {
    const auto again = metrics::ParseAddress(metrics::ToString(*address));
    Require(address->port == 0 || (again.ok() && again->host == address->host &&
                                   again->path == address->path && again->port == address->port),
            "an address says itself");
  }
}

std::vector<Bytes> Seeds() {
  std::vector<Bytes> out;
  for (const auto& [first, second] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"GET /metrics HTTP/1.1\r\nHost: here\r\n", "Accept: */*\r\n\r\n"},
           {"HEAD http://here/metrics?x HTTP/1.0\r\n", "\r\n"},
           {"GET /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n", "\r\n"},
           {"POST / HTTP/1.1\r\nhost:x\r\nContent-Length: 1\r\n\r\n", "x"},
           {"[::1]:9464", ""},
           {"/run/rdfs/metrics", ""}}) {
    Bytes seed;
    PutSized16(seed, AsBytes(first));
    PutSized16(seed, AsBytes(second));
    out.push_back(std::move(seed));
  }
  return out;
}

}  // namespace rdfs::fuzz
