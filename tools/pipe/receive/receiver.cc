#include "tools/pipe/receive/receiver.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tools/pipe/wire/lane_loop.h"
#include "transport/base/log.h"

namespace rdfs::pipe {

using transport::Completion;

Receiver::Receiver(transport::Connection& lane, std::shared_ptr<transport::Domain> domain,
                   ReceiverSettings settings, Progress& progress)
    : lane_(lane),
      domain_(std::move(domain)),
      settings_(std::move(settings)),
      progress_(progress),
      turns_(settings_.interrupts),
      state_(settings_.from_us, settings_.from_peer, settings_.silence, BootClock::now()) {}

Status Receiver::Run() {
  if (Status status = Prepare(); !status.ok()) state_.Fail(std::move(status), actions_);
  do {
    if (const Status status = Step(); !status.ok()) {
      lane_is_over_ = true;
      state_.Lost(status, actions_);
    }
  } while (!state_.over());
  progress_.Clear();
  if (state_.gave_up() && !lane_is_over_) Part(lane_);
  Status status = state_.status();
  const bool leaves = settings_.leaves_part && sender() == ReceiveState::Sender::kGoesOn;
  if (crew_ == nullptr) {
    if (leaves) left_ = Left{std::move(settings_.part)};
    return status;
  }
  crew_->Stop();
  if (status.ok()) return own_;
  if (leaves && crew_->MayBeLeft()) {
    if (auto part = crew_->Leave(state_.stored_offset()); part.ok()) {
      left_ = Left{*std::move(part)};
      return status;
    }
  }
  const std::string kept = crew_->Abandon(state_.stored_offset());
  return WithKept(status, kept);
}

Status Receiver::Prepare() {
  RDFS_RETURN_IF_ERROR(MakeRing());
  RDFS_ASSIGN_OR_RETURN(
      crew_, ReceiveCrew::Create(settings_.sink, ring_.memory->bytes(), ring_.size.slot_bytes,
                                 settings_.from_peer, settings_.threads, settings_.relay,
                                 std::move(settings_.part)));
  crew_->Open();
  return {};
}

Status Receiver::MakeRing() {
  RingSize size = ChooseNearRing(lane_.capabilities(), settings_.threads);
  if (settings_.piece_bytes != 0) size.slot_bytes = settings_.piece_bytes;
  if (settings_.pieces != 0) size.slots = settings_.pieces;
  RDFS_ASSIGN_OR_RETURN(ring_, ShareRing(lane_, *domain_, "rdrecv", size, kMinSlotBytes));
  return {};
}

void Receiver::Welcome(Partial partial) {
  if (!settings_.seekable) partial = {};
  pipe::Welcome welcome;
  welcome.ring = ring_.shared;
  welcome.slot_bytes = ring_.size.slot_bytes;
  welcome.slots = ring_.size.slots;
  welcome.have_bytes = partial.bytes;
  welcome.block_bytes = partial.block_bytes;
  welcome.blocks = std::move(partial.blocks);
  state_.OnOpened(std::move(welcome), BootClock::now(), actions_);
}

// One turn: what has been done, what has come in, what follows from both. An error is the lane's,
// and what was stored before it counts: that is what a part is kept of. Without a lane the rest of
// a stream that came whole is stored, and what its last turn left to do is done as well.
Status Receiver::Step() {
  const bool done = TakeFromCrew();
  bool heard = false;
  if (!lane_is_over_) {
    RDFS_ASSIGN_OR_RETURN(heard, TakeFromLane());
  }
  // Another stream may follow one that is over: it is told then.
  if (!state_.over()) {
    if (const Status stopped = turns_.CheckInterrupt(); !stopped.ok()) {
      state_.Fail(stopped, actions_);
    }
  }
  const TimePoint now = BootClock::now();
  state_.OnTime(now, actions_);
  progress_.Update(received_bytes(), now);
  RDFS_RETURN_IF_ERROR(Perform());
  if (!lane_is_over_) RDFS_RETURN_IF_ERROR(lane_.Flush());
  if (heard || done) turns_.Came();
  if (state_.over() || heard || done) return {};
  transport::Connection* const lane = lane_is_over_ ? nullptr : &lane_;
  if (crew_ == nullptr) return turns_.Sleep(lane, {}, -1, state_.NextTime());
  if (!lane_is_over_ && crew_->waits_for_lane() && turns_.LookAgain(lane_)) return {};
  return turns_.Sleep(lane, {crew_->fd()}, crew_->wants(), state_.NextTime());
}

Result<bool> Receiver::TakeFromLane() {
  std::array<Completion, 32> completions;
  RDFS_ASSIGN_OR_RETURN(const std::size_t count, lane_.Poll(completions));
  const TimePoint now = BootClock::now();
  for (const Completion& completion : std::span(completions).first(count)) {
    if (completion.kind == Completion::Kind::kMessage) {
      state_.OnMessage(completion.message, now, actions_);
    }
  }
  return count > 0;
}

bool Receiver::TakeFromCrew() {
  if (crew_ == nullptr) return false;
  // A credit for half the ring: the sender fills it meanwhile, and is not woken for each record.
  (void)crew_->Work(std::max(1U, ring_.size.slots / 2));
  crew_->Take(done_);
  const TimePoint now = BootClock::now();
  for (ReceiveCrew::Output& output : done_) {
    if (auto* opened = std::get_if<ReceiveCrew::Opened>(&output)) {
      Welcome(std::move(opened->partial));
    } else if (const auto* stored = std::get_if<ReceiveCrew::Stored>(&output)) {
      state_.OnStored(stored->sequence, now, actions_);
    } else if (const auto* finished = std::get_if<ReceiveCrew::Finished>(&output)) {
      Account(finished->failed);
      state_.OnFinished(finished->failed, now, actions_);
    } else {
      state_.Fail(std::get<Status>(output), actions_);
    }
  }
  return !done_.empty();
}

void Receiver::Account(const std::vector<FailedHop>& failed) {
  for (const FailedHop& hop : failed) {
    if (hop.name.empty()) {
      own_ = hop.why;
    } else {
      LogWarn("{} has not got it: {}", hop.name, hop.why.message());
    }
  }
}

// Carries out the actions; what they lead to is appended to them on the way. An error is the
// lane's, and keeps none of the others from being carried out.
Status Receiver::Perform() {
  Status sent;
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const ReceiveAction action = std::move(actions_[i]);
    switch (action.kind) {
      case ReceiveAction::Kind::kSend:
        if (sent.ok() && !lane_is_over_) sent = lane_.Send(ByteSpan(action.message));
        break;
      case ReceiveAction::Kind::kBegin:
        progress_.SetAlready(action.offset);
        if (Status status = crew_->StartAt(action.offset); !status.ok()) {
          state_.Fail(std::move(status), actions_);
        }
        break;
      case ReceiveAction::Kind::kStore:
        crew_->Store(action.record, action.slot);
        break;
      case ReceiveAction::Kind::kFinishFile:
        crew_->Finish(action.length);
        break;
      case ReceiveAction::Kind::kFinish:
        break;
    }
  }
  actions_.clear();
  return sent;
}

}  // namespace rdfs::pipe
