// Sessions on a real kernel RDMA stack: run through tests/rdma/run, which names the address.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "tests/transport/session/server_fixture.h"

namespace rdfs::transport {
namespace {

using std::chrono::seconds;

std::string DeviceAddress() {
  const char* address = std::getenv("RDFS_RDMA_ADDRESS");
  return address == nullptr ? "" : address;
}

class SessionOverRdma : public testing::Test {
 protected:
  // By name: soft-iWARP ties a listener on every address to its device's network interface, and
  // what comes from the same machine comes through `lo` (siw_create_listen).
  static AcceptorOptions OnTheDevice() {
    AcceptorOptions options = ServerOptions();
    options.addresses = {DeviceAddress()};
    return options;
  }
  static DialOptions OverTheDevice(const Server& server) {
    DialOptions options = ClientOptions(server);
    options.host = DeviceAddress();
    return options;
  }
  void SetUp() override { ASSERT_NE(DeviceAddress(), "") << "run this through tests/rdma/run"; }
};

TEST_F(SessionOverRdma, RequiredVerbsMovesBytesAndNamesItsDevice) {
  Server server(OnTheDevice());
  DialOptions options = OverTheDevice(server);
  options.require = Kind::kVerbs;
  const auto session = Session::Dial(std::move(options), Domain::Create("client"));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  for (int i = 0; i < 3; ++i) {
    auto lane = (*session)->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << lane.status().ToString();
    EXPECT_EQ((*lane)->capabilities().kind, Kind::kVerbs);
    ExpectEcho(**lane, "over the device");
    ExpectEcho(**lane, std::string(100'000, 'v'));
  }
  EXPECT_EQ((*session)->ExplainChoice().find("verbs ("), 0U) << (*session)->ExplainChoice();
}

// Not every address is an RDMA device's, and the first need not be.
TEST_F(SessionOverRdma, EveryAddressThatADeviceHasIsListenedOn) {
  AcceptorOptions server_options = OnTheDevice();
  server_options.addresses = {"127.0.0.1", DeviceAddress()};
  const char* address6 = std::getenv("RDFS_RDMA_ADDRESS6");
  if (address6 != nullptr && *address6 != '\0') server_options.addresses.emplace_back(address6);
  Server server(server_options);
  for (auto host = server_options.addresses.begin() + 1; host != server_options.addresses.end();
       ++host) {
    DialOptions options = OverTheDevice(server);
    options.host = *host;
    options.require = Kind::kVerbs;
    const auto session = Session::Dial(std::move(options), Domain::Create("client"));
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    auto lane = (*session)->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << *host << ": " << lane.status().ToString();
    ExpectEcho(**lane, *host);
  }
}

TEST_F(SessionOverRdma, AnotherHostWouldUseVerbsFirst) {
  AcceptorOptions server_options = OnTheDevice();
  server_options.offer = {Kind::kVerbs, Kind::kTcp};
  Server server(std::move(server_options));
  const auto session = Session::Dial(OverTheDevice(server), Domain::Create("client"));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  auto lane = (*session)->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  EXPECT_EQ((*lane)->capabilities().kind, Kind::kVerbs) << (*session)->ExplainChoice();
  ExpectEcho(**lane, "best first");
}

TEST_F(SessionOverRdma, ALaneOfAnEndedSessionIsRefused) {
  Server server(OnTheDevice());
  DialOptions options = OverTheDevice(server);
  options.require = Kind::kVerbs;
  const auto session = Session::Dial(std::move(options), Domain::Create("client"));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  server.Stop();
  const auto lane = (*session)->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_FALSE(lane.ok());
  EXPECT_EQ(lane.status().message().find("verbs is required and does not work: "), 0U)
      << lane.status().message();
}

}  // namespace
}  // namespace rdfs::transport
