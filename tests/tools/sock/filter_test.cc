#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tools/sock/preload/settings.h"

namespace rdfs::sock {
namespace {

sockaddr_storage Four(const char* address, std::uint16_t port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  inet_pton(AF_INET, address, &four.sin_addr);
  sockaddr_storage place{};
  std::memcpy(&place, &four, sizeof(four));
  return place;
}
sockaddr_storage Six(const char* address, std::uint16_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  inet_pton(AF_INET6, address, &six.sin6_addr);
  sockaddr_storage place{};
  std::memcpy(&place, &six, sizeof(six));
  return place;
}

bool Matches(const char* list, const sockaddr_storage& here, const sockaddr_storage& there) {
  Filter filter;
  std::string_view wrong;
  EXPECT_TRUE(filter.Parse(list, wrong)) << list;
  return filter.Matches(here, there);
}

TEST(Filter, KnowsPortsOfBothEnds) {
  const sockaddr_storage here = Four("10.0.0.1", 40000);
  const sockaddr_storage there = Four("10.0.0.2", 5432);
  EXPECT_TRUE(Matches("5432", here, there));
  EXPECT_TRUE(Matches("1,40000", here, there));
  EXPECT_FALSE(Matches("5433", here, there));
  EXPECT_FALSE(Matches("", here, there));
}

TEST(Filter, KnowsTheOtherEndsAddress) {
  const sockaddr_storage here = Four("10.0.0.1", 1);
  EXPECT_TRUE(Matches("10.1.2.3", here, Four("10.1.2.3", 2)));
  EXPECT_FALSE(Matches("10.0.0.1", here, Four("10.1.2.3", 2)));
  EXPECT_TRUE(Matches("10.1.0.0/16", here, Four("10.1.2.3", 2)));
  EXPECT_TRUE(Matches("10.1.2.0/23", here, Four("10.1.3.3", 2)));
  EXPECT_FALSE(Matches("10.1.2.0/24", here, Four("10.1.3.3", 2)));
  EXPECT_TRUE(Matches("0.0.0.0/0", here, Four("10.1.3.3", 2)));
  EXPECT_FALSE(Matches("0.0.0.0/0", here, Six("::1", 2)));
  EXPECT_TRUE(Matches("::1", here, Six("::1", 2)));
  EXPECT_TRUE(Matches("127.0.0.0/8", here, Six("::ffff:127.0.0.1", 2)));
  EXPECT_TRUE(Matches("fe80::/10", here, Six("fe80::1", 2)));
  EXPECT_FALSE(Matches("fe80::/10", here, Six("fec0::1", 2)));
}

TEST(Filter, SaysWhatIsWrong) {
  for (const char* bad :
       {"x", "0", "65536", "10.0.0", "10.0.0.1/33", "::1/129", "1,,2", "10.0.0.1/", "-1", "1 "}) {
    Filter filter;
    std::string_view wrong;
    EXPECT_FALSE(filter.Parse(bad, wrong)) << bad;
  }
  Filter filter;
  std::string_view wrong;
  EXPECT_FALSE(filter.Parse("80,nonsense,81", wrong));
  EXPECT_EQ(wrong, "nonsense");
  std::string many = "1";
  for (std::size_t i = 0; i < Filter::kMostRules; ++i) many += ",1";
  EXPECT_FALSE(filter.Parse(many, wrong));
}

}  // namespace
}  // namespace rdfs::sock
