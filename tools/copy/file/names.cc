#include "tools/copy/file/names.h"

#include <fmt/core.h>

#include <array>

namespace rdfs::copy {
namespace {

// The length of the UTF-8 sequence that `bytes` begins with; 0 when it begins with none (RFC 3629).
std::size_t SequenceLength(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = at(0);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80) return 0;
  }
  if (first == 0xE0 && at(1) < 0xA0) return 0;   // overlong
  if (first == 0xED && at(1) >= 0xA0) return 0;  // surrogates
  if (first == 0xF0 && at(1) < 0x90) return 0;   // overlong
  if (first == 0xF4 && at(1) >= 0x90) return 0;  // beyond U+10FFFF
  return length;
}

// C0, DEL and C1 controls, and what turns text around or hides it (bidirectional controls,
// zero-width characters): a terminal must not see them.
bool IsUnsafe(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
  if (sequence.size() == 2) return first == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
  static constexpr std::array<std::string_view, 5> kHidden{
      "\xE2\x80\x8B\xE2\x80\x8F", "\xE2\x80\xA8\xE2\x80\xAE", "\xE2\x81\xA0\xE2\x81\xA9",
      "\xEF\xBB\xBF\xEF\xBB\xBF", "\xEF\xBF\xB9\xEF\xBF\xBB"};
  for (const std::string_view range : kHidden) {
    if (sequence >= range.substr(0, 3) && sequence <= range.substr(3) && sequence.size() == 3) {
      return true;
    }
  }
  return false;
}

void AppendEscaped(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    switch (byte) {
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
  }
}

}  // namespace

Status CheckName(std::string_view name) {
  const char* why = name.empty()                                ? "is empty"
                    : name == "." || name == ".."               ? "names another directory"
                    : name.size() > kMaxNameBytes               ? "is longer than 255 bytes"
                    : name.find('/') != std::string_view::npos  ? "has a slash in it"
                    : name.find('\0') != std::string_view::npos ? "has a NUL in it"
                                                                : nullptr;
  if (why == nullptr) return {};
  return {Code::kProtocolError, fmt::format("the name '{}' {}", Shown(name.substr(0, 300)), why)};
}

Status CheckPath(std::string_view path) {
  if (path.empty()) return {};
  for (;;) {
    const std::size_t slash = path.find('/');
    RDFS_RETURN_IF_ERROR(CheckName(path.substr(0, slash)));
    if (slash == std::string_view::npos) return {};
    path.remove_prefix(slash + 1);
  }
}

std::string Joined(std::string_view folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  if (name.empty()) return std::string(folder);
  std::string out;
  out.reserve(folder.size() + 1 + name.size());
  out.append(folder).append(1, '/').append(name);
  return out;
}

std::string_view FolderOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view NameOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string Shown(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t length = SequenceLength(bytes);
    const std::string_view sequence = bytes.substr(0, length == 0 ? 1 : length);
    if (length == 0 || IsUnsafe(sequence)) {
      AppendEscaped(out, sequence);
    } else if (sequence == "\\") {
      out += "\\\\";
    } else {
      out += sequence;
    }
    bytes.remove_prefix(sequence.size());
  }
  return out;
}

}  // namespace rdfs::copy
