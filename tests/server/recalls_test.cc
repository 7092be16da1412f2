// Recalls of leases, and by which lane they reach their client.
#include <gtest/gtest.h>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

class RecallsTest : public testing::Test {
 protected:
  void Attach(const std::shared_ptr<MemoryLane>& lane) {
    Say(lane, Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{}));
    EXPECT_TRUE(server_.TakeAnswer(lane).ok());
  }
  void Say(const std::shared_ptr<MemoryLane>& lane, Opcode opcode, const Body& body) {
    EXPECT_TRUE(server_.Deliver(lane, Harness::Message(opcode, body.bytes(), server_.NextSequence(),
                                                       lane->session()->id(), server_.caller)));
  }

  Harness server_;
};

TEST_F(RecallsTest, AreSentAgainWhenTheLaneThatTheyWentByEnds) {
  const std::shared_ptr<MemoryLane> first = server_.lane;
  const std::shared_ptr<MemoryLane> last = server_.NewLane(server_.session());
  const std::shared_ptr<MemoryLane> another = server_.NewLane(server_.NewSession(43));
  for (const auto& lane : {first, last, another}) Attach(lane);
  const fs::Handle root = server_.root();
  ASSERT_TRUE(server_.Create(root, "file", fs::kOpenRead | fs::kOpenWrite | fs::kOpenCreate).ok());
  ASSERT_TRUE(server_.Lookup(root, "file").ok());

  Say(another, Opcode::kUnlink, Body().Add(root).Name("file"));
  ASSERT_TRUE(server_.WaitForAnswer(last)) << "nothing was recalled";
  EXPECT_TRUE(first->sent.empty());
  EXPECT_TRUE(another->sent.empty()) << "it did not wait";
  const auto recalls = last->sent;

  server_.core().leases.LaneClosed(last);
  ASSERT_TRUE(server_.WaitForAnswer(first)) << "nobody hears of the recall";
  EXPECT_EQ(first->sent, recalls);
}

// Else recalls would be sent again, and the lane known once more, as often as a client likes.
TEST_F(RecallsTest, ALaneIsAttachedOnce) {
  Attach(server_.lane);
  const Body attach = Body().Add(fs::AttachLaneRequest{});
  EXPECT_FALSE(server_.Deliver(
      server_.lane, Harness::Message(Opcode::kAttachLane, attach.bytes(), server_.NextSequence())));
}

}  // namespace
}  // namespace rdfs::server
