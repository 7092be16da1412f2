#include <gtest/gtest.h>

#include "transport/transport.h"

namespace rdfs::transport {
namespace {

TEST(Endpoint, ParsesWhatItPrints) {
  for (const char* text : {"tcp://node7:7337", "verbs://10.0.0.1:7338", "tcp://[::1]:1",
                           "verbs://[fe80::1%ib0]:65535", "shm:///rdfs-1"}) {
    const auto endpoint = Endpoint::Parse(text);
    ASSERT_TRUE(endpoint.ok()) << text;
    EXPECT_EQ(endpoint->ToString(), text);
  }
}

TEST(Endpoint, RefusesWhatItCannotMean) {
  for (const char* text : {"", "node7", "udp://a:1", "tcp://a", "tcp://a:", "tcp://a:65536",
                           "tcp://a:7x", "tcp://::1:7337", "shm://x", "shm:///"}) {
    EXPECT_FALSE(Endpoint::Parse(text).ok()) << text;
  }
}

TEST(HostAndPort, TakesWhatPeopleType) {
  const struct {
    const char* text;
    const char* host;
    std::uint16_t port;
  } cases[] = {{"node7", "node7", 99},
               {"node7:12", "node7", 12},
               {"10.0.0.1:1", "10.0.0.1", 1},
               {"[::1]:65535", "::1", 65535},
               {"[::1]", "::1", 99},
               {"::1", "::1", 99},
               {"fe80::1%ib0", "fe80::1%ib0", 99}};
  for (const auto& expected : cases) {
    const auto parsed = HostAndPort::Parse(expected.text, 99);
    ASSERT_TRUE(parsed.ok()) << expected.text;
    EXPECT_EQ(parsed->host, expected.host);
    EXPECT_EQ(parsed->port, expected.port);
  }
  for (const char* text :
       {"", ":1", "node7:", "node7:0", "node7:65536", "node7:http", "[::1]:", "[::1", "[::1]x"}) {
    EXPECT_FALSE(HostAndPort::Parse(text, 99).ok()) << text;
  }
}

}  // namespace
}  // namespace rdfs::transport
