#include "tools/sock/pairing.h"

#include <gtest/gtest.h>

namespace rdfs::sock {
namespace {

using far::Address;

Address At(const char* text) { return *far::ParseAddress(text); }

TEST(Pairing, SidesAreReadAsTheyWereWritten) {
  const Side side{.name = "db-1", .port = 7342, .addresses = {At("10.0.0.2"), At("fd00::2")}};
  EXPECT_EQ(Format(side), "db-1 7342 10.0.0.2 fd00::2");
  const auto read = ParseSide(Format(side));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->name, side.name);
  EXPECT_EQ(read->port, side.port);
  EXPECT_EQ(read->addresses, side.addresses);
  const auto none = ParseSide("a 1");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->addresses.empty());
}

TEST(Pairing, WhatTheOtherSideSaysIsChecked) {
  std::string many = "a 1";
  for (int i = 1; i < 200; ++i) many += " 10.0.0." + std::to_string(i);
  for (const std::string& text :
       std::vector<std::string>{"", " ", "a", "a ", "a x", "a 0", "a 70000", "a -1", "a 1 10.0.0",
                                "a 1 host", "a/b 1", "a\n 1", std::string(65, 'a') + " 1", many}) {
    EXPECT_FALSE(ParseSide(text).ok()) << text;
  }
}

TEST(Pairing, AddressesOfBothHostsNameNeither) {
  EXPECT_EQ(Without({At("10.0.0.2"), At("172.17.0.1")}, {At("10.0.0.1"), At("172.17.0.1")}),
            std::vector<Address>{At("10.0.0.2")});
}

TEST(Pairing, ForgetsByAnyAddress) {
  far::Pairs pairs;
  pairs.pairs.push_back({.name = "a", .key = {}, .port = 1, .addresses = {At("10.0.0.2")}});
  pairs.pairs.push_back(
      {.name = "b", .key = {}, .port = 1, .addresses = {At("10.0.0.3"), At("fd00::3")}});
  EXPECT_FALSE(Forget(pairs, {At("10.0.0.4")}));
  EXPECT_TRUE(Forget(pairs, {At("10.0.0.4"), At("fd00::3")}));
  ASSERT_EQ(pairs.pairs.size(), 1U);
  EXPECT_EQ(pairs.pairs[0].name, "a");
}

}  // namespace
}  // namespace rdfs::sock
