#include "transport/base/resolve.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

namespace rdfs {
namespace {

std::uint16_t PortOf(const addrinfo& address) {
  return address.ai_family == AF_INET
             ? ntohs(reinterpret_cast<const sockaddr_in*>(address.ai_addr)->sin_port)
             : ntohs(reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_port);
}

TEST(ResolveHost, NamesAndAddresses) {
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    const auto list = ResolveHost(host, 7340, 0, DeadlineAfter(std::chrono::seconds(10)));
    ASSERT_TRUE(list.ok()) << list.status().message();
    EXPECT_EQ(PortOf(**list), 7340) << host;
  }
  EXPECT_TRUE(ResolveHost("", 0, AI_PASSIVE, DeadlineAfter(std::chrono::seconds(10))).ok());
}

// An address asks nobody, however late it is; who is asked may take longer than there is time.
TEST(ResolveHost, ADeadlineEndsIt) {
  EXPECT_TRUE(ResolveHost("127.0.0.1", 1, 0, TimePoint()).ok());
  const Status late = ResolveHost("rdfs-no-such-host.invalid", 1, 0, TimePoint()).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.message();
  EXPECT_NE(late.message().find("'rdfs-no-such-host.invalid'"), std::string::npos);
}

TEST(ResolveHost, WhatNobodyKnows) {
  const Status status =
      ResolveHost("rdfs-no-such-host.invalid", 1, 0, DeadlineAfter(std::chrono::seconds(60)))
          .status();
  EXPECT_EQ(status.code(), Code::kNotFound) << status.message();
}

}  // namespace
}  // namespace rdfs
