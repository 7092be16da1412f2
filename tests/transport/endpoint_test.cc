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

}  // namespace
}  // namespace rdfs::transport
