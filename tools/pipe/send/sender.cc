#include "tools/pipe/send/sender.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tools/pipe/wire/lane_loop.h"
#include "tools/pipe/wire/ring.h"

namespace rdfs::pipe {

using transport::Completion;
using transport::MemoryRegion;

Sender::Sender(transport::Connection& lane, std::shared_ptr<transport::Domain> domain,
               Source& source, StopFlag& stop, SenderSettings settings, Progress& progress)
    : lane_(lane),
      domain_(std::move(domain)),
      source_(source),
      stop_(stop),
      settings_(std::move(settings)),
      progress_(progress),
      turns_(settings_.interrupts),
      state_(settings_.from_us, settings_.from_peer, settings_.silence, BootClock::now()) {}

Status Sender::Run() {
  while (!state_.over()) {
    const Status status = Step();
    if (!status.ok()) state_.Lost(status, actions_);
  }
  // Its threads stop before we part: nothing is read any more.
  crew_.reset();
  progress_.Clear();
  if (state_.gave_up()) Part(lane_);
  return state_.status();
}

// One turn: what has come in, what has been made, what follows from both. An error is the lane's.
Status Sender::Step() {
  RDFS_ASSIGN_OR_RETURN(const bool heard, TakeFromLane());
  const bool made = TakeFromCrew() || CanCheck();
  if (CanCheck()) {
    if (Status status = CheckPiece(); !status.ok()) FailOurselves(std::move(status));
  }
  // Another stream may follow one that is over: it is told then.
  if (!state_.over()) {
    if (const Status stopped = turns_.CheckInterrupt(); !stopped.ok()) {
      FailOurselves(source_.WhyInterrupted(stopped));
    }
  }
  const TimePoint now = BootClock::now();
  state_.OnTime(now, actions_);
  progress_.Update(state_.sent_bytes(), now);
  RDFS_RETURN_IF_ERROR(Perform());
  RDFS_RETURN_IF_ERROR(lane_.Flush());
  if (heard || made) turns_.Came();
  if (state_.over() || heard || made) return {};
  if (crew_ == nullptr) {
    return turns_.Sleep(&lane_, {checked_ ? source_.fixed_told() : -1}, -1, state_.NextTime());
  }
  if (crew_->waits_for_lane() && turns_.LookAgain(lane_)) return {};
  return turns_.Sleep(&lane_, {crew_->fd(), crew_->wants()}, -1, state_.NextTime());
}

Result<bool> Sender::TakeFromLane() {
  std::array<Completion, 32> completions;
  RDFS_ASSIGN_OR_RETURN(const std::size_t count, lane_.Poll(completions));
  const TimePoint now = BootClock::now();
  for (const Completion& completion : std::span(completions).first(count)) {
    if (completion.kind == Completion::Kind::kMessage) {
      state_.OnMessage(completion.message, now, actions_);
      ReleaseStored();
      continue;
    }
    if (!completion.status.ok()) state_.Fail(completion.status, actions_);
    const auto done = std::ranges::find(in_flight_, completion.ticket, &InFlight::ticket);
    if (done == in_flight_.end()) continue;
    if (crew_ != nullptr) crew_->Release(done->buffer);
    in_flight_.erase(done);
  }
  return count > 0;
}

bool Sender::TakeFromCrew() {
  if (crew_ == nullptr) return false;
  (void)crew_->Work();
  crew_->Take(made_);
  const TimePoint now = BootClock::now();
  for (SendCrew::Output& output : made_) {
    if (const auto* record = std::get_if<ReadyRecord>(&output)) {
      state_.OnRecord(*record, now, actions_);
    } else if (const auto* ended = std::get_if<SendCrew::Ended>(&output)) {
      state_.OnSourceEnd(ended->records, ended->length, now, actions_);
    } else {
      FailOurselves(std::get<Status>(std::move(output)));
    }
  }
  return !made_.empty();
}

void Sender::FailOurselves(Status why) {
  ours_ = ours_ || !state_.over();
  state_.Fail(std::move(why), actions_);
}

// Carries out the actions; what they lead to is appended to them on the way.
Status Sender::Perform() {
  bool written = false;
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const SendAction action = std::move(actions_[i]);
    switch (action.kind) {
      case SendAction::Kind::kSend:
        RDFS_RETURN_IF_ERROR(lane_.Send(ByteSpan(action.message)));
        // The peer reads a record while we go on. Its bytes and its header go together: that is one
        // system call, or one doorbell.
        if (std::exchange(written, false)) RDFS_RETURN_IF_ERROR(lane_.Flush());
        break;
      case SendAction::Kind::kWrite:
        RDFS_RETURN_IF_ERROR(Write(action));
        written = ring_.keep == nullptr;
        break;
      case SendAction::Kind::kCheck:
        checked_ = 0;
        break;
      case SendAction::Kind::kStart:
        if (Status status = Start(action.offset); !status.ok()) FailOurselves(std::move(status));
        break;
      case SendAction::Kind::kFinish:
        break;
    }
  }
  actions_.clear();
  return {};
}

void Sender::ReleaseStored() {
  if (crew_ == nullptr || ring_.keep == nullptr) return;
  for (; released_ < state_.stored_records(); ++released_) {
    crew_->Release(static_cast<std::uint32_t>(released_ % state_.welcome().slots));
  }
}

Status Sender::Write(const SendAction& action) {
  if (ring_.keep != nullptr) return {};  // it was made there
  const std::uint64_t slot_bytes = state_.welcome().slot_bytes;
  RDFS_ASSIGN_OR_RETURN(const transport::Ticket ticket,
                        lane_.Write({memory_.get(), action.buffer * slot_bytes, action.length},
                                    {state_.welcome().ring, action.slot * slot_bytes}));
  in_flight_.push_back({ticket, action.buffer});
  return {};
}

Status Sender::CheckPiece() {
  const Welcome& welcome = state_.welcome();
  const std::uint64_t at = *checked_;
  const std::uint64_t length = std::min(welcome.block_bytes, welcome.have_bytes - at);
  bool same = length > 0 && at + length <= *source_.fixed();
  if (same) {
    piece_.resize(std::min(kLeastBlockBytes, length - hashed_));
    RDFS_RETURN_IF_ERROR(source_.Fill(at + hashed_, piece_));
    block_.Add(piece_);
    hashed_ += piece_.size();
    if (hashed_ < length) return {};
    hashed_ = 0;
    same = block_.Take() == welcome.blocks[at / welcome.block_bytes];
    if (same) *checked_ += length;
  }
  if (same && *checked_ < welcome.have_bytes) return {};
  state_.OnChecked(*checked_, BootClock::now(), actions_);
  checked_.reset();
  piece_ = {};
  return {};
}

Status Sender::Start(std::uint64_t offset) {
  const Welcome& welcome = state_.welcome();
  ring_ = lane_.Reach(welcome.ring);
  const bool in_ring = ring_.keep != nullptr;
  std::uint32_t count = welcome.slots;
  if (!in_ring) {
    RDFS_ASSIGN_OR_RETURN(SendBuffers buffers,
                          MakeSendBuffers(ChooseRing(lane_.capabilities().kind), *domain_, "rdsend",
                                          {welcome.slot_bytes, welcome.slots}));
    memory_ = std::move(buffers.memory);
    count = buffers.count;
  }
  source_.StartAt(offset);
  progress_.SetAlready(offset);
  const int threads = settings_.threads == 1 && source_.Unblock() ? 0 : settings_.threads;
  RDFS_ASSIGN_OR_RETURN(
      crew_, SendCrew::Create(source_, in_ring ? ring_.bytes : memory_->bytes(), welcome.slot_bytes,
                              count, in_ring ? SendCrew::Buffers::kRing : SendCrew::Buffers::kOurs,
                              {threads, settings_.level, settings_.from_us}, stop_));
  return crew_->Start();
}

void SendRefusal(transport::Connection& lane, const Status& why) {
  if (lane.Send(EncodeAbort(why)).ok()) Part(lane);
}

}  // namespace rdfs::pipe
