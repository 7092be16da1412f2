// Both ends together in virtual time, thousands of seeded schedules: messages are delayed, records
// are made and stored in any order, and either end may fail or vanish at any step. Whatever
// happens, the sender succeeds only when the receiver has everything, and nobody waits for ever.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tools/pipe/receive/receive_state.h"
#include "tools/pipe/send/send_state.h"

namespace rdfs::pipe {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class Schedule {
 public:
  explicit Schedule(unsigned seed) : random_(seed) {
    records_ = Below(40);
    slots_ = 1 + Below(6);
    buffers_ = 1 + Below(6);
    sabotage_ = Below(3) == 0 ? Below(200) : ~0U;
    kind_ = Below(4);
  }

  void Run() {
    Welcome welcome;
    welcome.slot_bytes = 4096;
    welcome.slots = slots_;
    welcome.ring.length = std::uint64_t{4096} * slots_;
    receiver_.OnOpened(welcome, now_, from_receiver_);
    for (unsigned step = 0; !(sender_.over() && receiver_.over()); ++step) {
      ASSERT_LT(step, 20000U) << "nobody ends it";
      if (step == sabotage_) Sabotage();
      Step();
      Collect();
    }
  }

  void Check() {
    EXPECT_TRUE(finished_ || !sender_.status().ok());
    EXPECT_TRUE(finished_ || !receiver_.status().ok());
    if (sabotage_ == ~0U) {
      EXPECT_TRUE(sender_.status().ok()) << sender_.status().message();
      EXPECT_TRUE(receiver_.status().ok()) << receiver_.status().message();
    }
    EXPECT_LE(most_unstored_, slots_);
  }

 private:
  unsigned Below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

  void Sabotage() {
    const Status bad(Code::kErrno, "sabotage");
    if (kind_ == 0 && !sender_.over()) sender_.Fail(bad, from_sender_);
    if (kind_ == 1 && !receiver_.over()) receiver_.Fail(bad, from_receiver_);
    if (kind_ == 2) cut_ = true;              // both notice
    if (kind_ == 3) to_sender_muted_ = true;  // the receiver's words are lost: it looks dead
  }

  void Step() {
    now_ += std::chrono::milliseconds(Below(50));
    switch (Below(7)) {
      case 0:
        if (started_ && made_ < records_ && made_ - released_ < buffers_)
          making_.push_back(made_++);
        break;
      case 1:
        if (!making_.empty()) FinishMaking();
        break;
      case 2:
        if (started_ && made_ == records_ && !told_end_) {
          told_end_ = true;
          sender_.OnSourceEnd(records_, records_ * std::uint64_t{10}, now_, from_sender_);
        }
        break;
      case 3:
        Deliver(to_receiver_, receiver_, from_receiver_);
        break;
      case 4:
        Deliver(to_sender_, sender_, from_sender_);
        break;
      case 5:
        Store();
        break;
      case 6:
        Idle();
        break;
    }
    if (cut_) {
      sender_.Lost(Status(Code::kDisconnected, "cut"), from_sender_);
      receiver_.Lost(Status(Code::kDisconnected, "cut"), from_receiver_);
    }
  }

  // Nothing is on its way: time passes. An end that is over has closed the connection.
  void Idle() {
    if (to_receiver_.empty() && sender_.over()) {
      receiver_.Lost(Status(Code::kDisconnected, "closed"), from_receiver_);
    }
    if (to_sender_.empty() && receiver_.over()) {
      sender_.Lost(Status(Code::kDisconnected, "closed"), from_sender_);
    }
    if (to_sender_muted_) now_ += 1s;
    sender_.OnTime(now_, from_sender_);
    receiver_.OnTime(now_, from_receiver_);
  }

  template <typename State, typename Actions>
  void Deliver(std::deque<Bytes>& queue, State& state, Actions& out) {
    if (queue.empty()) return;
    const Bytes message = queue.front();
    queue.pop_front();
    state.OnMessage(message, now_, out);
  }

  void FinishMaking() {
    const std::size_t which = Below(static_cast<unsigned>(making_.size()));
    const std::uint64_t sequence = making_[which];
    making_.erase(making_.begin() + static_cast<std::ptrdiff_t>(which));
    ReadyRecord record;
    record.header.type = 3;
    const bool hole = sequence % 5 == 4;
    record.header.kind = hole ? 2 : 1;
    record.header.sequence = sequence;
    record.header.offset = sequence * 10;
    record.header.length = 10;
    record.header.wire_bytes = hole ? 0 : 10;
    if (!hole) record.buffer = 0;
    sender_.OnRecord(record, now_, from_sender_);
  }

  void Store() {
    if (!storing_.empty()) {
      const std::size_t which = Below(static_cast<unsigned>(storing_.size()));
      const std::uint64_t sequence = storing_[which];
      storing_.erase(storing_.begin() + static_cast<std::ptrdiff_t>(which));
      ++stored_;
      receiver_.OnStored(sequence, now_, from_receiver_);
    } else if (finishing_) {
      finishing_ = false;
      EXPECT_EQ(stored_, records_);
      finished_ = true;
      receiver_.OnFinished({}, now_, from_receiver_);
    }
  }

  void Collect() {
    for (std::size_t i = 0; i < from_sender_.size(); ++i) {
      const SendAction action = from_sender_[i];
      if (action.kind == SendAction::Kind::kCheck) sender_.OnChecked(0, now_, from_sender_);
      if (action.kind == SendAction::Kind::kSend) {
        to_receiver_.push_back(action.message);
        if (TypeOf(action.message) == MessageType::kRecord) ++released_;
      }
      if (action.kind == SendAction::Kind::kStart) started_ = true;
    }
    from_sender_.clear();
    for (const ReceiveAction& action : from_receiver_) {
      if (action.kind == ReceiveAction::Kind::kSend && !to_sender_muted_) {
        to_sender_.push_back(action.message);
      }
      if (action.kind == ReceiveAction::Kind::kStore) storing_.push_back(action.record.sequence);
      if (action.kind == ReceiveAction::Kind::kFinishFile) finishing_ = true;
    }
    from_receiver_.clear();
    most_unstored_ = std::max<std::size_t>(most_unstored_, storing_.size());
  }

  std::mt19937 random_;
  unsigned records_ = 0, slots_ = 1, buffers_ = 1, sabotage_ = ~0U, kind_ = 0;
  TimePoint now_{100s};
  SendState sender_{std::nullopt, std::nullopt, 60s, now_};
  ReceiveState receiver_{std::nullopt, std::nullopt, 60s, now_};
  SendActions from_sender_;
  ReceiveActions from_receiver_;
  std::deque<Bytes> to_sender_, to_receiver_;
  std::vector<std::uint64_t> making_, storing_;
  unsigned made_ = 0, released_ = 0, stored_ = 0;
  std::size_t most_unstored_ = 0;
  bool started_ = false, told_end_ = false, finishing_ = false, finished_ = false;
  bool cut_ = false, to_sender_muted_ = false;
};

TEST(PipeSchedule, EveryScheduleEndsHonestly) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Schedule schedule(seed);
    schedule.Run();
    schedule.Check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace rdfs::pipe
