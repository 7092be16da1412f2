#include "transport/domain.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace rdfs::transport {
namespace {

using Peers = SharedMemory::Peers;

// Counts what is registered with it; refuses everything when told to.
class CountingAttachment final : public Attachment {
 public:
  CountingAttachment(int& alive, bool refuse) : alive_(alive), refuse_(refuse) {}
  Result<std::unique_ptr<Registration>> Register(const SharedMemory&, Access) override {
    if (refuse_) return Status(Code::kResourceExhausted, "memlock");
    return std::unique_ptr<Registration>(std::make_unique<Counted>(alive_));
  }

 private:
  struct Counted final : Registration {
    explicit Counted(int& count) : alive(count) { ++alive; }
    ~Counted() override { --alive; }
    int& alive;
  };
  int& alive_;
  bool refuse_;
};

std::shared_ptr<SharedMemory> Memory(Peers peers) {
  return *SharedMemory::Create("t", 4096, peers);
}

TEST(Domain, ATransportThatJoinsLateGetsEveryRegion) {
  const auto domain = Domain::Create("class");
  auto early = domain->Register(Memory(Peers::kReadOnly), Access::kRemoteRead);
  ASSERT_TRUE(early.ok());
  int alive = 0;
  const auto make = [&]() -> Result<std::unique_ptr<Attachment>> {
    return std::unique_ptr<Attachment>(std::make_unique<CountingAttachment>(alive, false));
  };
  const int device = 0;
  ASSERT_EQ(*domain->Attach(&device, make), 0U);
  ASSERT_EQ(*domain->Attach(&device, make), 0U);
  EXPECT_EQ(alive, 1);
  auto late = domain->Register(Memory(Peers::kMayWrite), Access::kRemoteWrite);
  EXPECT_EQ(alive, 2);
  (*early).reset();
  EXPECT_EQ(alive, 1);
  EXPECT_NE((*late)->registration(0), nullptr);
  EXPECT_EQ((*late)->registration(1), nullptr);
}

TEST(Domain, ATransportThatCannotRegisterSaysWhy) {
  const auto domain = Domain::Create("class");
  int alive = 0;
  const int device = 0;
  ASSERT_TRUE(domain
                  ->Attach(&device,
                           [&]() -> Result<std::unique_ptr<Attachment>> {
                             return std::unique_ptr<Attachment>(
                                 std::make_unique<CountingAttachment>(alive, true));
                           })
                  .ok());
  auto region = domain->Register(Memory(Peers::kMayWrite), Access::kLocal);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ((*region)->registration(0), nullptr);
  EXPECT_EQ((*region)->registration_error(0).code(), Code::kResourceExhausted);
}

TEST(Domain, TcpAndShmLeaveRoomForManyDevices) {
  const auto domain = Domain::Create("class");
  int alive = 0;
  const auto make = [&]() -> Result<std::unique_ptr<Attachment>> {
    return std::unique_ptr<Attachment>(std::make_unique<CountingAttachment>(alive, false));
  };
  constexpr std::size_t kTcpAndShm = 2;
  constexpr std::size_t kDevices = 32;
  std::array<char, kTcpAndShm + kDevices> keys{};
  for (const char& key : keys) ASSERT_TRUE(domain->Attach(&key, make).ok());
  auto region = domain->Register(Memory(Peers::kMayWrite), Access::kLocal);
  ASSERT_TRUE(region.ok());
  EXPECT_NE((*region)->registration(keys.size() - 1), nullptr);
  const char beyond = 0;
  EXPECT_EQ(domain->Attach(&beyond, make).status().code(), Code::kResourceExhausted);
}

TEST(Domain, NoRegionIsBothReadableAndWritableByAPeer) {
  const auto domain = Domain::Create("class");
  EXPECT_FALSE(domain->Register(Memory(Peers::kMayWrite), Access::kRemoteRead).ok());
  EXPECT_FALSE(domain->Register(Memory(Peers::kReadOnly), Access::kRemoteWrite).ok());
}

}  // namespace
}  // namespace rdfs::transport
