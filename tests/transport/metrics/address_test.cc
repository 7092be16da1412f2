#include "transport/metrics/address.h"

#include <gtest/gtest.h>

namespace rdfs::metrics {
namespace {

TEST(MetricsAddress, APortIsThisHostsAlone) {
  const auto address = ParseAddress("9464");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 9464);
  EXPECT_EQ(ToString(*address), "127.0.0.1:9464");
  EXPECT_EQ(ParseAddress("0")->port, 0) << "a free one";
  EXPECT_EQ(ParseAddress("localhost:80")->host, "127.0.0.1");
}

TEST(MetricsAddress, OthersAreNamed) {
  EXPECT_EQ(ParseAddress("0.0.0.0:1")->host, "0.0.0.0");
  EXPECT_EQ(ParseAddress("[::]:65535")->host, "::");
  for (const char* text : {"10.0.0.7:9464", "[::1]:9464", "/run/rdfs/metrics"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(ToString(*address), text);
  }
}

TEST(MetricsAddress, WhatOnlyThisHostReachesIsKnown) {
  for (const char* text : {"9464", "127.9.0.1:1", "[::1]:9464", "localhost:9464"}) {
    EXPECT_TRUE(IsLoopback(*ParseAddress(text))) << text;
  }
  for (const char* text : {"10.0.0.7:9464", "0.0.0.0:1", "[::]:1", "[::1:2]:1", "/run/127.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(*ParseAddress(text))) << text;
  }
}

TEST(MetricsAddress, AnythingElseIsRefusedWithTheForms) {
  for (const char* text :
       {"",           "x",     "-1",        "65536",     "99999",       " 9464",
        "9464 ",      ":9464", "10.0.0.7",  "10.0.0.7:", "10.0.0.7:0",  "10.0.0.7:65536",
        "::1",        "[::1]", "::1:9464",  "[::1]9464", "run/metrics", "./metrics",
        "/run/rdfs/", "/a\nb", "[/a]:9464", "\xc6:9464"}) {
    const auto address = ParseAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
    EXPECT_NE(address.status().message().find("ADDRESS:PORT"), std::string::npos);
  }
}

}  // namespace
}  // namespace rdfs::metrics
