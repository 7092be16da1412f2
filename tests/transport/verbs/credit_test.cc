#include "transport/verbs/credit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "transport/verbs/frame.h"

namespace rdfs::transport::verbs {
namespace {

constexpr std::uint32_t kSlots = 64;

CreditLedger Opened(std::uint32_t peer_slots) {
  CreditLedger ledger(kSlots, kOpeningCredits);
  EXPECT_TRUE(ledger.OnOpening(peer_slots));
  return ledger;
}

TEST(CreditLedger, AFewFramesMayGoBeforeThePeersOpening) {
  CreditLedger ledger(kSlots, kOpeningCredits);
  EXPECT_EQ(ledger.available(), kOpeningCredits);
  EXPECT_EQ(ledger.messages_allowed(), kOpeningCredits - 1U);
  EXPECT_EQ(ledger.TakeForFrame(), kSlots - kOpeningCredits);
  EXPECT_EQ(ledger.owed(), 0U);
  ASSERT_TRUE(ledger.OnOpening(kSlots));
  ledger.OnFrame(kSlots - kOpeningCredits);
  EXPECT_EQ(ledger.available(), kSlots - 1);
  EXPECT_EQ(ledger.used(), 1U);
}

TEST(CreditLedger, AGrantOfAnySizeIsClampedToWhatWasUsed) {
  CreditLedger ledger = Opened(kSlots);
  ledger.OnFrame(0xffffffffU);
  EXPECT_EQ(ledger.available(), kSlots);
  ledger.OnFrame(0xffffffffU);
  EXPECT_EQ(ledger.available(), kSlots);
  EXPECT_EQ(ledger.used(), 0U);
  (void)ledger.TakeForFrame();
  ledger.OnFrame(2);
  EXPECT_EQ(ledger.available(), kSlots);
}

TEST(CreditLedger, AnOpeningOfAnySizeIsClamped) {
  CreditLedger ledger = Opened(0xffffffffU);
  ledger.OnFrame(0xffffffffU);
  EXPECT_EQ(ledger.available(), CreditLedger::kMaxSlots);
}

TEST(CreditLedger, AnOpeningBelowTheOpeningCreditsIsImpossible) {
  CreditLedger ledger(kSlots, kOpeningCredits);
  EXPECT_FALSE(ledger.OnOpening(kOpeningCredits - 1));
  EXPECT_FALSE(ledger.OnOpening(0));
  EXPECT_TRUE(ledger.OnOpening(kOpeningCredits));
}

TEST(CreditLedger, MessagesLeaveTheLastCreditToAFrameOfCredits) {
  CreditLedger ledger = Opened(kOpeningCredits);
  while (ledger.messages_allowed() > 0) (void)ledger.TakeForFrame();
  EXPECT_EQ(ledger.available(), 1U);
  EXPECT_FALSE(ledger.credit_frame_due());
  ledger.OnReposted(kSlots / 2);
  EXPECT_TRUE(ledger.credit_frame_due());
  EXPECT_EQ(ledger.TakeForFrame(), kSlots / 2);
  ledger.OnReposted(kSlots);
  EXPECT_FALSE(ledger.credit_frame_due()) << "nothing is left to pay for it";
}

TEST(CreditLedger, WhatIsOwedNeverExceedsWhatThereIs) {
  CreditLedger ledger = Opened(kSlots);
  (void)ledger.TakeForFrame();
  ledger.OnReposted(kSlots);
  ledger.OnReposted(kSlots);
  EXPECT_EQ(ledger.owed(), kSlots);
}

// One side of a connection whose wire delivers late, in order.
struct Side {
  struct Frame {
    bool opening, message;
    std::uint32_t credits;
  };

  CreditLedger ledger{kSlots, kOpeningCredits};
  std::deque<Frame> wire;  // on its way to the other side
  int to_send = 0;
  int received = 0;
  std::uint32_t posted = kSlots;

  void SendWhatGoes() {
    for (; to_send > 0 && ledger.messages_allowed() > 0; --to_send) {
      wire.push_back({false, true, ledger.TakeForFrame()});
    }
    if (ledger.credit_frame_due()) wire.push_back({false, false, ledger.TakeForFrame()});
  }
  // Takes one frame of the other side's; false when it found no receive.
  bool Take(Side& from) {
    if (posted == 0) return false;
    --posted;
    const Frame frame = from.wire.front();
    from.wire.pop_front();
    if (frame.opening && !ledger.OnOpening(kSlots)) return false;
    ledger.OnFrame(frame.credits);
    received += frame.message ? 1 : 0;
    return true;
  }
  void RepostSome(std::uint32_t count) {
    count = std::min(count, kSlots - posted);
    posted += count;
    ledger.OnReposted(count);
  }
};

// Random schedules: no frame ever finds no receive, and everything arrives, whoever sends.
TEST(CreditLedger, NeitherOverrunsNorDeadlocksUnderAnySchedule) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    std::array<Side, 2> sides;
    const std::array<int, 2> total = {static_cast<int>(random() % 2000),
                                      static_cast<int>(random() % 2000)};
    for (std::size_t i = 0; i < 2; ++i) {
      sides[i].to_send = total[i];
      sides[i].wire.push_back({true, false, sides[i].ledger.TakeForFrame()});
    }
    int idle = 0;
    while ((sides[0].received < total[1] || sides[1].received < total[0]) && idle < 10'000) {
      Side& side = sides[random() % 2];
      Side& other = &side == &sides[0] ? sides[1] : sides[0];
      ++idle;
      switch (random() % 3) {
        case 0:
          side.SendWhatGoes();
          break;
        case 1:
          if (other.wire.empty()) break;
          ASSERT_TRUE(side.Take(other)) << "seed " << seed << ": a frame found no receive";
          idle = 0;
          break;
        default:
          side.RepostSome(static_cast<std::uint32_t>(random() % kSlots));
      }
    }
    EXPECT_EQ(sides[0].received, total[1]) << "seed " << seed;
    EXPECT_EQ(sides[1].received, total[0]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rdfs::transport::verbs
