#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tools/sock/preload/settings.h"

namespace rdfs::sock {
namespace {

constexpr unsigned kAddressBits = 128;
constexpr unsigned kFourBits = 96;  // before an IPv4 address in its IPv6 form

// Every address as IPv6 has it.
std::array<std::uint8_t, 16> SixOf(const in_addr& four) {
  std::array<std::uint8_t, 16> six{};
  six[10] = six[11] = 0xff;
  std::memcpy(&six[12], &four, sizeof(four));
  return six;
}

std::array<std::uint8_t, 16> AddressOf(const sockaddr_storage& place) {
  std::array<std::uint8_t, 16> six{};
  if (place.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &place, sizeof(four));
    return SixOf(four.sin_addr);
  }
  sockaddr_in6 address;
  std::memcpy(&address, &place, sizeof(address));
  std::memcpy(six.data(), &address.sin6_addr, six.size());
  return six;
}

std::uint16_t PortOf(const sockaddr_storage& place) {
  // At the same place in both families.
  sockaddr_in four;
  std::memcpy(&four, &place, sizeof(four));
  return ntohs(four.sin_port);
}

bool SameBits(const std::array<std::uint8_t, 16>& one, const std::array<std::uint8_t, 16>& other,
              unsigned bits) {
  const std::size_t whole = bits / 8;
  if (std::memcmp(one.data(), other.data(), whole) != 0) return false;
  if (bits % 8 == 0) return true;
  return ((one[whole] ^ other[whole]) >> (8 - bits % 8)) == 0;
}

bool ParseNumber(std::string_view text, unsigned most, unsigned& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= most;
}

}  // namespace

bool Filter::ParseRule(std::string_view text, Rule& rule) {
  unsigned port = 0;
  if (ParseNumber(text, 65535, port)) {
    rule.port = static_cast<std::uint16_t>(port);
    return port != 0;
  }
  const std::size_t slash = text.find('/');
  const std::string_view address = text.substr(0, slash);
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (address.empty() || address.size() >= name.size()) return false;
  std::copy(address.begin(), address.end(), name.begin());
  in_addr four{};
  const bool is_four = inet_pton(AF_INET, name.data(), &four) == 1;
  if (is_four) rule.address = SixOf(four);
  if (!is_four && inet_pton(AF_INET6, name.data(), rule.address.data()) != 1) return false;
  const unsigned before = is_four ? kFourBits : 0;
  unsigned bits = kAddressBits - before;
  if (slash != std::string_view::npos &&
      !ParseNumber(text.substr(slash + 1), kAddressBits - before, bits)) {
    return false;
  }
  rule.bits = before + bits;
  return true;
}

bool Filter::Parse(std::string_view text, std::string_view& wrong) {
  Filter parsed;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    wrong = part;
    if (parsed.count_ == kMostRules || !ParseRule(part, parsed.rules_[parsed.count_])) return false;
    ++parsed.count_;
  }
  *this = parsed;
  return true;
}

bool Filter::Matches(const sockaddr_storage& here, const sockaddr_storage& there) const {
  const auto matches = [&](const Rule& rule) {
    if (rule.port != 0) return rule.port == PortOf(here) || rule.port == PortOf(there);
    return SameBits(rule.address, AddressOf(there), rule.bits);
  };
  return std::any_of(rules_.begin(), rules_.begin() + static_cast<std::ptrdiff_t>(count_), matches);
}

}  // namespace rdfs::sock
