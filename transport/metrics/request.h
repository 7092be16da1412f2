// What is asked of a MetricsServer, and what it answers: of HTTP/1.1 as much as a GET of one
// document needs (RFC 9110, RFC 9112). A library would bring more than this is: the ones that
// Debian keeps bring TLS, threads or an event loop along.
//
// Pure. Whoever connects may be hostile: nothing here looks at more than kMostRequestBytes, and
// what is not understood is refused with the status that says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace rdfs::metrics {

// Request line and header fields together.
inline constexpr std::size_t kMostRequestBytes = 8192;

struct Request {
  // 200, or why not: 400 malformed, 404 another document, 405 another method than GET and HEAD, 421
  // a name that is not this host's, 431 too long, 505 not HTTP/1.
  unsigned status = 200;
  bool head = false;  // the answer's header alone is wanted
};

// By which names it may be asked. Behind a loopback address only by addresses and as "localhost":
// the browser of a local user sends there, by a name of its own, what a web page asks for whose
// name has come to mean this host, and the page reads the answer (DNS rebinding).
enum class Names : std::uint8_t { kAny, kLocal };

// Judges what has come so far; nothing while its end is still to come. What it has said of the
// beginning of some bytes it says of all of them.
std::optional<Request> Judge(std::string_view received, Names names);

// Nothing more came in time.
inline constexpr Request kTooSlow{.status = 408};

// The whole answer. `body`: the metrics, for status 200; else a sentence is made. `now` for the
// Date.
std::string MakeAnswer(const Request& request, std::string_view body, std::time_t now);

}  // namespace rdfs::metrics
