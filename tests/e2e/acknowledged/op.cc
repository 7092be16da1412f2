#include "tests/e2e/acknowledged/op.h"

#include <fmt/format.h>

#include <array>
#include <sstream>

namespace rdfs::acknowledged {
namespace {

constexpr std::array<const char*, static_cast<std::size_t>(Kind::kCount)> kKinds = {
    "create", "open",   "unlink", "rename", "link",  "mkdir", "rmdir", "chmod", "truncate", "look",
    "write",  "shrink", "read",   "sync",   "close", "log",   "claim", "take",  "grab"};

}  // namespace

std::string Op::ToText() const {
  return fmt::format("{} {} {} {} {} {} {} {} {}", number, kKinds[static_cast<std::size_t>(kind)],
                     mount, slot, file, other, offset, length, flags);
}

std::optional<Op> Op::FromText(const std::string& text) {
  std::istringstream in(text);
  Op op;
  std::string word;
  in >> op.number >> word >> op.mount >> op.slot >> op.file >> op.other >> op.offset >> op.length >>
      op.flags;
  if (!in) return std::nullopt;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (word != kKinds[i]) continue;
    op.kind = static_cast<Kind>(i);
    return op;
  }
  return std::nullopt;
}

std::string DirectoryName(int directory) {
  return directory == 0 ? std::string() : fmt::format("d{}", directory);
}
std::string FileName(int file) {
  const std::string name = fmt::format("n{}", file % kNamesEach);
  return DirectoryOf(file) == 0 ? name : DirectoryName(DirectoryOf(file)) + "/" + name;
}
std::string ThreadDirectory(int thread) { return fmt::format("thread-{}", thread); }

std::string Stamp(int thread, std::uint64_t number, std::uint64_t offset, std::uint32_t length) {
  // A line of 32 bytes wherever 32 divides the place, so that bytes in a wrong place are seen.
  std::string out;
  out.reserve(length + 64);
  const std::uint64_t first = offset / 32 * 32;
  for (std::uint64_t at = first; at < offset + length; at += 32) {
    out += fmt::format("{:02d} {:010d} {:017d}\n", thread % 100, number % 10'000'000'000ULL, at);
  }
  return out.substr(offset - first, length);
}

std::string Record(int thread, std::uint64_t number) {
  std::string out = fmt::format("{} {} ", thread, number);
  out.resize(kRecordBytes - 1, '.');
  return out + "\n";
}
std::string ClaimName(int number) { return fmt::format("shared/claim-{}", number); }
std::string FreeName(int number) { return fmt::format("shared/free-{}", number); }
std::string TakenName(int number, int thread) {
  return fmt::format("shared/taken-{}-{}", number, thread);
}
std::string GiftName(int number) { return fmt::format("shared/gift-{}", number); }

}  // namespace rdfs::acknowledged
