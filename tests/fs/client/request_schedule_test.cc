// Seeded schedules in virtual time: calls, lost connections at any step, late, duplicate and
// invented answers, deadlines. What must hold: each call ends exactly once, a mutating request is
// carried out at most once by a server that keeps records, nothing is acknowledged that may be sent
// again, and everything is given back in the end.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "fs/client/request_table.h"

namespace rdfs::fs::client {
namespace {

using Verdict = RequestTable::Verdict;
using std::chrono::milliseconds;

struct Message {
  std::uint64_t sequence;
  Opcode opcode;
};

// What DESIGN asks of the server: a record of each sequence until it is acknowledged.
class RecordingServer {
 public:
  void Receive(const Message& request, bool sent_before, std::uint64_t acknowledged,
               const std::optional<RequestTable::Answered>& answered) {
    EXPECT_LT(acknowledged, request.sequence) << "asks for what it says to have an answer to";
    records_.erase(records_.begin(), records_.upper_bound(acknowledged));
    for (const std::uint64_t one : answered.value_or(RequestTable::Answered{})) {
      EXPECT_NE(one, request.sequence);
      told_ += records_.erase(one);
    }
    most_records_ = std::max(most_records_, records_.size());
    if (records_.insert(request.sequence).second) {
      EXPECT_TRUE(executed_.insert(request.sequence).second) << "carried out twice";
      (void)sent_before;
    } else {
      EXPECT_TRUE(sent_before);
    }
    answers_.push_back(request);
  }
  std::deque<Message> answers_;
  std::size_t most_records_ = 0;
  std::size_t told_ = 0;  // of those that were acknowledged one by one

 private:
  std::set<std::uint64_t> records_;
  std::set<std::uint64_t> executed_;
};

class Schedule {
 public:
  explicit Schedule(unsigned seed) : random_(seed) {}

  void Run() {
    for (int step = 0; step < 4000; ++step) {
      now_ += milliseconds(Below(5));
      Step();
      for (const Slot slot : table_.Expire(now_)) End(slot);
    }
    // Let everything end: the server answers what it has, the rest meets its deadline.
    while (!server_.answers_.empty()) Answer();
    now_ += std::chrono::hours(1);
    for (const Slot slot : table_.Expire(now_)) End(slot);
    table_.ConnectionLost();
    table_.LocalOperationsOver();
    EXPECT_EQ(table_.open_calls(), 0U);
    EXPECT_EQ(table_.on_wire(), 0U);
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(ended_.size(), begun_);
    const std::uint64_t last = sequences_.Take(1);
    sequences_.SetOldest(1, SequenceCounter::kIdle);
    EXPECT_EQ(sequences_.Acknowledged(), last);
  }

 private:
  unsigned Below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

  void Step() {
    switch (Below(12)) {
      case 0:
      case 1:
      case 2:
        return Begin();
      case 3:
      case 4:
      case 5:
        return Send();
      case 6:
      case 7:
      case 8:
        return Answer();
      case 9:
        return Invent();
      case 10:
        return GiveUpOne();
      default:
        if (Below(10) == 0) Lose();
    }
  }

  void Begin() {
    const std::optional<Slot> slot = table_.Open(now_ + milliseconds(20 + Below(2000)));
    ASSERT_TRUE(slot);
    ASSERT_TRUE(live_.emplace(*slot, table_.TicketOf(*slot)).second);
    ++begun_;
    table_.Queue(*slot, Below(2) == 0 ? Opcode::kMkdir : Opcode::kLookup);
  }

  void Send() {
    const std::optional<Slot> slot = table_.Next();
    if (!slot) return;
    // The table knows the opcode; the schedule learns it by asking with both.
    const RequestTable::Sent sent = table_.MarkSent(*slot);
    const std::uint64_t acknowledged = sequences_.Acknowledged();
    server_.Receive({sent.sequence, Opcode::kMkdir}, sent.sent_before, acknowledged,
                    table_.TakeAnswered(acknowledged));
  }

  void Answer() {
    if (server_.answers_.empty()) return;
    // In any order.
    const std::size_t index = random_() % server_.answers_.size();
    const Message answer = server_.answers_[index];
    server_.answers_.erase(server_.answers_.begin() + static_cast<std::ptrdiff_t>(index));
    RequestTable::Arrival arrival = table_.OnReply(answer.sequence, Opcode::kMkdir);
    if (arrival.verdict == Verdict::kUnknown) {
      arrival = table_.OnReply(answer.sequence, Opcode::kLookup);
    }
    ASSERT_NE(arrival.verdict, Verdict::kUnknown);
    EXPECT_EQ(table_.OnReply(answer.sequence, Opcode::kMkdir).verdict, Verdict::kUnknown);
    if (arrival.verdict == Verdict::kLate) return;
    if (Below(4) == 0) {
      table_.Queue(arrival.slot, Opcode::kMkdir);  // a call of several requests
    } else if (Below(4) == 0) {
      table_.QueueAt(arrival.slot, Opcode::kMkdir, now_ + milliseconds(50));
    } else {
      End(arrival.slot);
    }
  }

  void Invent() {
    const std::uint64_t sequence = random_();
    EXPECT_EQ(table_.OnReply(sequence, Opcode::kMkdir).verdict, Verdict::kUnknown);
  }

  void GiveUpOne() {
    if (live_.empty()) return;
    End(std::next(live_.begin(), Below(static_cast<unsigned>(live_.size())))->first);
  }

  void Lose() {
    server_.answers_.clear();
    EXPECT_TRUE(table_.ConnectionLost().idle.empty());
  }

  void End(Slot slot) {
    const auto found = live_.find(slot);
    ASSERT_NE(found, live_.end());
    EXPECT_TRUE(ended_.insert(found->second).second) << "ended twice";
    live_.erase(found);
    table_.Finish(slot);
  }

  std::mt19937_64 random_;
  TimePoint now_{std::chrono::hours(1)};
  SequenceCounter sequences_;
  RequestTable table_{sequences_, 0, 16};
  RecordingServer server_;
  std::map<Slot, std::uint64_t> live_;
  std::set<std::uint64_t> ended_;
  std::size_t begun_ = 0;
};

TEST(RequestSchedule, EveryCallEndsOnceAndNothingIsDoneTwice) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule(seed).Run();
    if (testing::Test::HasFailure()) return;
  }
}

// One request is answered last; those behind it may not fill the record with theirs meanwhile.
TEST(RequestSchedule, OneThatTakesLongKeepsNoRecordsOfOthers) {
  SequenceCounter sequences;
  RequestTable table(sequences, 0, 16);
  RecordingServer server;
  const auto ask = [&] {
    const Slot slot = *table.Open(TimePoint::max());
    table.Queue(slot, Opcode::kMkdir);
    const RequestTable::Sent sent = table.MarkSent(slot);
    const std::uint64_t acknowledged = sequences.Acknowledged();
    server.Receive({sent.sequence, Opcode::kMkdir}, false, acknowledged,
                   table.TakeAnswered(acknowledged));
    return std::pair(slot, sent.sequence);
  };
  const auto slow = ask();
  for (int i = 0; i < 5000; ++i) {
    const auto [slot, sequence] = ask();
    EXPECT_EQ(table.OnReply(sequence, Opcode::kMkdir).verdict, Verdict::kDeliver);
    table.Finish(slot);
  }
  EXPECT_GT(server.told_, 4900U);
  EXPECT_LE(server.most_records_, 2 * kMostAnswered);
  EXPECT_EQ(table.OnReply(slow.second, Opcode::kMkdir).verdict, Verdict::kDeliver);
  EXPECT_EQ(sequences.Acknowledged(), 5001U);
}

}  // namespace
}  // namespace rdfs::fs::client
