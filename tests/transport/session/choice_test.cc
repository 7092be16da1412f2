#include "transport/session/choice.h"

#include <gtest/gtest.h>

namespace rdfs::transport::session {
namespace {

ChoiceInput Everything() {
  ChoiceInput input;
  input.offers = {{Kind::kShm, true, 0, "rdfs-1", ""},
                  {Kind::kVerbs, true, 7338, "", ""},
                  {Kind::kTcp, true, 7337, "", ""}};
  input.same_host = true;
  input.shm = input.verbs = {true, ""};
  return input;
}

std::string Tried(const std::vector<LegReport>& legs) {
  std::string out;
  for (const LegReport& leg : legs) {
    if (!leg.status.ok()) continue;
    out += out.empty() ? "" : " ";
    out += leg.stdio ? "stream" : Name(leg.kind);
  }
  return out;
}

TEST(Choice, TriesTheBestFirst) { EXPECT_EQ(Tried(PlanLegs(Everything())), "shm verbs tcp"); }

TEST(Choice, TheStreamComesLast) {
  ChoiceInput input = Everything();
  input.has_stream = input.stream_lane = true;
  EXPECT_EQ(Tried(PlanLegs(input)), "shm verbs tcp stream");
  input.stream_lane = false;
  EXPECT_EQ(Tried(PlanLegs(input)), "shm verbs tcp");
}

TEST(Choice, AnotherHostHasNoSharedMemory) {
  ChoiceInput input = Everything();
  input.same_host = false;
  const auto legs = PlanLegs(input);
  EXPECT_EQ(Tried(legs), "verbs tcp");
  EXPECT_EQ(Explain(legs, 1, Protection::kTls, "siw0"),
            "verbs (siw0); not shm: the server is on another host");
}

TEST(Choice, SaysWhyBetterLegsAreNotUsed) {
  ChoiceInput input = Everything();
  input.same_host = false;
  input.verbs = {false, "no RDMA device on this machine (rdma link shows none)."};
  const auto legs = PlanLegs(input);
  EXPECT_EQ(Explain(legs, 2, Protection::kTls, ""),
            "tcp with TLS; not verbs: no RDMA device on this machine (rdma link shows none); not "
            "shm: the server is on another host");
}

TEST(Choice, SaysWhyTheServerDoesNotOfferALeg) {
  ChoiceInput input = Everything();
  input.offers[1] = {Kind::kVerbs, false, 0, "", "no RDMA device there"};
  input.offers.erase(input.offers.begin());
  const auto legs = PlanLegs(input);
  EXPECT_EQ(Explain(legs, 2, Protection::kSameHost, ""),
            "tcp (plaintext, same host); not verbs: the server says: no RDMA device there; not "
            "shm: the server does not offer it");
}

TEST(Choice, TheBestLegNeedsNoExcuse) {
  const auto legs = PlanLegs(Everything());
  EXPECT_EQ(Explain(legs, 0, Protection::kSameHost, ""), "shm");
  EXPECT_EQ(Explain(legs, std::nullopt, Protection::kSameHost, ""), "no transport in use yet");
}

TEST(Choice, EncryptionRulesVerbsOut) {
  ChoiceInput input = Everything();
  input.require_encryption = true;
  EXPECT_EQ(Tried(PlanLegs(input)), "shm tcp");
}

TEST(Choice, RequireTriesNothingElse) {
  ChoiceInput input = Everything();
  input.has_stream = input.stream_lane = true;
  input.require = Kind::kVerbs;
  EXPECT_EQ(Tried(PlanLegs(input)), "verbs");
  input.require = Kind::kTcp;
  EXPECT_EQ(Tried(PlanLegs(input)), "tcp stream");
  input.require = Kind::kVerbs;
  input.verbs = {false, "no RDMA device on this machine"};
  const Status status = NothingWorks(PlanLegs(input), input.require);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(),
            "verbs is required and does not work: no RDMA device on this machine");
}

TEST(Choice, WhenNothingWorksEveryReasonIsTold) {
  ChoiceInput input = Everything();
  input.same_host = false;
  input.verbs = {false, "no device"};
  auto legs = PlanLegs(input);
  legs[2].status = Status(Code::kDisconnected, "connection refused");
  const Status status = NothingWorks(legs, std::nullopt);
  EXPECT_EQ(status.message(),
            "no transport works; shm: the server is on another host; verbs: no device; tcp: "
            "connection refused");
  EXPECT_EQ(status.code(), Code::kDisconnected);
}

}  // namespace
}  // namespace rdfs::transport::session
