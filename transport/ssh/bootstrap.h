// The lines with which a program that ssh started and its client begin, before a transport session
// takes the pipes over. One each way:
//
//   to the far end:  MAGIC KEY TEXT\n         KEY: 64 hexadecimal digits, good for this start only
//   back:            \nMAGIC OK\n, or \nMAGIC ERROR SENTENCE\n and the end
//
// TEXT is the program's own; TEXT and SENTENCE are percent-encoded. Whatever a login shell prints
// before the answer is skipped; the answer begins with a line's end in case the shell left a line
// open. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/status.h"

namespace rdfs::transport::ssh {

inline constexpr std::size_t kBootstrapKeyDigits = 64;
inline constexpr std::size_t kMaxBootstrapText = 4096;
// Of a line with its end: the longest text with each byte encoded.
inline constexpr std::size_t kMaxBootstrapLineBytes = 128 + 3 * kMaxBootstrapText;
inline constexpr std::size_t kMaxBootstrapNoiseBytes = 64 * 1024;  // before the answer

// Bytes but letters, digits and "/._~-" as %XX.
std::string PercentEncode(std::string_view text);
std::optional<std::string> PercentDecode(std::string_view text);

struct BootstrapRequest {
  std::string_view key;  // of the parsed line: copy it, then wipe that
  std::string text;
};
// With the line's end.
std::string EncodeBootstrapRequest(std::string_view magic, const BootstrapRequest& request);
// `line` without its end. Errors: kProtocolError, whose message never shows the key.
Result<BootstrapRequest> ParseBootstrapRequest(std::string_view magic, std::string_view line);
std::string EncodeBootstrapReply(std::string_view magic, const Status& outcome);  // with the end
// None: this is not the answer but something that a shell printed. Else how it went: the far
// program's sentence as kUnavailable.
std::optional<Status> ParseBootstrapReply(std::string_view magic, std::string_view line);

}  // namespace rdfs::transport::ssh
