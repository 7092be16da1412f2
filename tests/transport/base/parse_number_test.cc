#include "transport/base/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace rdfs {
namespace {

TEST(ParseNumber, TakesAWholeTextThatFits) {
  EXPECT_EQ(ParseNumber<std::uint16_t>("0"), 0);
  EXPECT_EQ(ParseNumber<std::uint16_t>("65535"), 65535);
  EXPECT_EQ(ParseNumber<int>("-7"), -7);
  EXPECT_EQ(ParseNumber<unsigned>("007"), 7U);
}

TEST(ParseNumber, TakesNothingElse) {
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1x", "x1", "0x1", "1.5", "65536",
                           "99999999999999999999999999"}) {
    EXPECT_EQ(ParseNumber<std::uint16_t>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseNumber<std::uint16_t>(std::string_view()), std::nullopt);
  // A piece of a longer text ends where it ends.
  EXPECT_EQ(ParseNumber<std::uint16_t>(std::string_view("1234").substr(0, 2)), 12);
}

}  // namespace
}  // namespace rdfs
