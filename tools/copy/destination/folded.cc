#include "tools/copy/destination/folded.h"

#include <algorithm>

namespace rdfs::copy {
namespace {

constexpr unsigned char kCaseBit = 0x20;

bool IsLetter(unsigned char byte) {
  const auto lower = static_cast<unsigned char>(byte | kCaseBit);
  return lower >= 'a' && lower <= 'z';
}

bool IsAscii(unsigned char byte) { return byte < 0x80; }

// Each letter of ASCII in the other case.
std::string Flipped(std::string name) {
  for (char& byte : name) {
    if (IsLetter(static_cast<unsigned char>(byte))) byte = static_cast<char>(byte ^ kCaseBit);
  }
  return name;
}

}  // namespace

bool IsSpelledOtherwise(const std::string& name, const std::unordered_set<std::string>& listed,
                        const std::unordered_set<std::string>& seen,
                        const std::function<std::optional<FileId>(const std::string&)>& look) {
  const std::string flipped = Flipped(name);
  if (flipped == name) {
    if (std::ranges::all_of(name, IsAscii)) return false;
  } else if (listed.contains(flipped) || !look(flipped)) {
    return false;
  }
  return std::ranges::any_of(seen, [&](const std::string& each) {
    if (listed.contains(each)) return false;
    const auto before = look(each);
    if (!before) return false;
    const auto its = look(name);
    return its && (its == before || its == look(each));
  });
}

}  // namespace rdfs::copy
