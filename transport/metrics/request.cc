#include "transport/metrics/request.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

#include "transport/base/printable.h"

namespace rdfs::metrics {
namespace {

constexpr std::string_view kDocument = "/metrics";

bool IsTokenCharacter(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != kOthers.npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, IsTokenCharacter);
}

// Nothing that a request line or a field may have in it (RFC 9110, section 5.5).
bool IsForbidden(char c) { return IsControl(c) && c != '\t' && c != '\r' && c != '\n'; }

// Takes a line and its end, which is CRLF or, of who is careless, LF alone (RFC 9112, section 2.2).
std::optional<std::string_view> TakeLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The header, up to the empty line behind it.
std::optional<std::string_view> HeaderIn(std::string_view received) {
  std::string_view rest = received;
  while (const auto line = TakeLine(rest)) {
    if (line->empty()) return received.substr(0, received.size() - rest.size());
  }
  return std::nullopt;
}

bool EqualsIgnoringCase(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
  });
}

struct RequestLine {
  std::string_view method, target, version;
};

std::optional<RequestLine> ParseRequestLine(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == line.npos || first == last) return std::nullopt;
  const RequestLine out{.method = line.substr(0, first),
                        .target = line.substr(first + 1, last - first - 1),
                        .version = line.substr(last + 1)};
  const bool blank = out.target.find_first_of(" \t\r") != out.target.npos;
  if (!IsToken(out.method) || out.target.empty() || blank) return std::nullopt;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool version = out.version.size() == 8 && out.version.starts_with("HTTP/") &&
                       is_digit(out.version[5]) && out.version[6] == '.' &&
                       is_digit(out.version[7]);
  if (!version) return std::nullopt;
  return out;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

struct Hosts {
  unsigned count = 0;
  std::string_view last;
};

// The Host fields; nothing where a field is none.
std::optional<Hosts> FindHosts(std::string_view fields) {
  Hosts hosts;
  while (const auto line = TakeLine(fields)) {
    if (line->empty()) break;
    const std::size_t colon = line->find(':');
    if (colon == line->npos || line->find('\r') != line->npos) return std::nullopt;
    const std::string_view name = line->substr(0, colon);
    if (!IsToken(name)) return std::nullopt;  // also one folded from the line before
    if (EqualsIgnoringCase(name, "host")) {
      ++hosts.count;
      hosts.last = Trimmed(line->substr(colon + 1));
    }
  }
  return hosts;
}

// "localhost", "127.0.0.1:9464", "[::1]:9464": nobody else can have these for a name.
bool IsLocal(std::string_view host) {
  const std::size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  std::string name(host.substr(0, end));
  std::array<char, sizeof(in6_addr)> address{};
  if (name.starts_with('[')) return inet_pton(AF_INET6, name.c_str() + 1, address.data()) == 1;
  return EqualsIgnoringCase(name, "localhost") ||
         inet_pton(AF_INET, name.c_str(), address.data()) == 1;
}

// "/metrics?x" and "http://host/metrics" are "/metrics".
std::string_view PathOf(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (target.size() >= kScheme.size() &&
      EqualsIgnoringCase(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  return target.substr(0, target.find('?'));
}

struct Reason {
  unsigned status;
  std::string_view phrase, sentence;
};
constexpr auto kReasons = std::to_array<Reason>({
    {200, "OK", ""},
    {400, "Bad Request", "this is no request of HTTP/1.1"},
    {404, "Not Found", "there is only /metrics here"},
    {405, "Method Not Allowed", "ask with GET"},
    {408, "Request Timeout", "the request did not come in time"},
    {421, "Misdirected Request", "ask by the address, or as localhost"},
    {431, "Request Header Fields Too Large", "the request is too long"},
    {505, "HTTP Version Not Supported", "ask by HTTP/1.1"},
});

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section 5.6.7), in whatever locale.
std::string HttpDate(std::time_t now) {
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm at{};
  if (gmtime_r(&now, &at) == nullptr) at = {};
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<std::size_t>(at.tm_wday)], at.tm_mday,
                     kMonths[static_cast<std::size_t>(at.tm_mon)], at.tm_year + 1900, at.tm_hour,
                     at.tm_min, at.tm_sec);
}

}  // namespace

std::optional<Request> Judge(std::string_view received, Names names) {
  const bool full = received.size() >= kMostRequestBytes;
  received = received.substr(0, kMostRequestBytes);
  const auto header = HeaderIn(received);
  if (std::ranges::any_of(header.value_or(received), IsForbidden)) return Request{.status = 400};
  if (!header) return full ? std::optional(Request{.status = 431}) : std::nullopt;

  std::string_view rest = *header;
  const auto line = ParseRequestLine(TakeLine(rest).value_or(""));
  if (!line) return Request{.status = 400};
  if (!line->version.starts_with("HTTP/1.")) return Request{.status = 505};
  const auto hosts = FindHosts(rest);
  if (!hosts || hosts->count > 1 || (hosts->count == 0 && line->version != "HTTP/1.0")) {
    return Request{.status = 400};
  }
  if (names == Names::kLocal && hosts->count == 1 && !IsLocal(hosts->last)) {
    return Request{.status = 421};
  }
  Request request{.head = line->method == "HEAD"};
  if (line->method != "GET" && !request.head) {
    request.status = 405;
  } else if (PathOf(line->target) != kDocument) {
    request.status = 404;
  }
  return request;
}

std::string MakeAnswer(const Request& request, std::string_view body, std::time_t now) {
  const auto* const reason = std::ranges::find(kReasons, request.status, &Reason::status);
  const std::string sentence = std::string(reason->sentence) + "\n";
  if (request.status != 200) body = sentence;
  std::string out = fmt::format(
      "HTTP/1.1 {} {}\r\n"
      "Date: {}\r\n"
      "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\n"
      "Cache-Control: no-store\r\n"
      "Connection: close\r\n",
      request.status, reason->phrase, HttpDate(now), body.size());
  if (request.status == 405) out += "Allow: GET, HEAD\r\n";
  out += "\r\n";
  if (!request.head) out += body;
  return out;
}

}  // namespace rdfs::metrics
