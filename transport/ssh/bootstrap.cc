#include "transport/ssh/bootstrap.h"

#include "transport/base/printable.h"

namespace rdfs::transport::ssh {
namespace {

constexpr std::string_view kHexDigits = "0123456789ABCDEF";

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/._~-").find(c) != std::string_view::npos;
}

std::optional<unsigned> HexValue(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

// Takes `word` and the blank behind it off the front of `line`.
bool TakeWord(std::string_view& line, std::string_view word) {
  if (line.size() <= word.size() || !line.starts_with(word) || line[word.size()] != ' ') {
    return false;
  }
  line.remove_prefix(word.size() + 1);
  return true;
}

}  // namespace

std::string PercentEncode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (IsPlain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kHexDigits[byte >> 4U];
    out += kHexDigits[byte & 15U];
  }
  return out;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (IsPlain(text[i])) {
      out += text[i];
      continue;
    }
    if (text[i] != '%' || text.size() - i < 3) return std::nullopt;
    const std::optional<unsigned> high = HexValue(text[i + 1]);
    const std::optional<unsigned> low = HexValue(text[i + 2]);
    if (!high || !low) return std::nullopt;
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

std::string EncodeBootstrapRequest(std::string_view magic, const BootstrapRequest& request) {
  std::string line;
  line.reserve(kMaxBootstrapLineBytes);  // so that the key is not left behind by growing
  line.append(magic).append(" ").append(request.key).append(" ");
  line.append(PercentEncode(request.text)).append("\n");
  return line;
}

Result<BootstrapRequest> ParseBootstrapRequest(std::string_view magic, std::string_view line) {
  const Status malformed(Code::kProtocolError,
                         "the other end is not of this version: its first line is not '" +
                             std::string(magic) +
                             " KEY TEXT'; install the same version of rdfs on both hosts");
  if (line.size() >= kMaxBootstrapLineBytes || !TakeWord(line, magic)) return malformed;
  BootstrapRequest request;
  request.key = line.substr(0, kBootstrapKeyDigits);
  for (const char c : request.key) {
    if (!HexValue(c)) return malformed;
  }
  if (request.key.size() != kBootstrapKeyDigits || !TakeWord(line, request.key)) return malformed;
  std::optional<std::string> text = PercentDecode(line);
  if (!text || text->empty() || text->size() >= kMaxBootstrapText ||
      text->find('\0') != std::string::npos) {
    return malformed;
  }
  request.text = *std::move(text);
  return request;
}

std::string EncodeBootstrapReply(std::string_view magic, const Status& outcome) {
  const std::string line = "\n" + std::string(magic);
  if (outcome.ok()) return line + " OK\n";
  return line + " ERROR " +
         PercentEncode(std::string_view(outcome.message()).substr(0, kMaxBootstrapText)) + "\n";
}

std::optional<Status> ParseBootstrapReply(std::string_view magic, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);  // a terminal was asked for
  if (!TakeWord(line, magic)) return std::nullopt;
  if (line == "OK") return Status::Ok();
  if (!TakeWord(line, "ERROR")) return std::nullopt;
  const std::optional<std::string> sentence = PercentDecode(line);
  if (!sentence) return std::nullopt;
  return Status(Code::kUnavailable, Printable(*sentence));
}

}  // namespace rdfs::transport::ssh
