#include "tools/copy/remote/lane_dialler.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {
namespace {

// All legs, 3 s each; the server waits for as long.
constexpr std::chrono::seconds kTimeToDial{12};

// Fewer bytes are there before further lanes would be.
constexpr std::uint64_t kWorthLanes = 8 << 20;

// The other transports have one lane that is enough.
bool GainsByMore(const transport::Connection& lane, bool anywhere) {
  const auto& can = lane.capabilities();
  return can.kind == transport::Kind::kTcp && (anywhere || !can.same_host);
}

}  // namespace

struct LaneDialler::State {
  State(std::shared_ptr<transport::Session> s, Dial d)
      : session(std::move(s)), dial(std::move(d)) {}
  const std::shared_ptr<transport::Session> session;
  const Dial dial;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;  // under mutex, as what follows
  // They end before their session.
  std::deque<std::unique_ptr<transport::Connection>> lanes;
};

LaneDialler::Dial LaneDialler::Direct() {
  return [](transport::Session& session, Deadline deadline) {
    return session.OpenDirectLane(deadline);
  };
}

LaneDialler::Dial LaneDialler::Over(transport::Kind kind) {
  return [kind](transport::Session& session, Deadline deadline) {
    return session.OpenLaneOver(kind, deadline);
  };
}

LaneDialler::LaneDialler(std::shared_ptr<transport::Session> session, Dial dial, int count)
    : state_(std::make_shared<State>(std::move(session), std::move(dial))) {
  const auto dial_all = [state = state_, count] {
    for (int i = 0; i < count; ++i) {
      auto lane = state->dial(*state->session, DeadlineAfter(kTimeToDial));
      if (!lane.ok()) break;
      const std::lock_guard lock(state->mutex);
      state->lanes.push_back(*std::move(lane));
    }
    {
      const std::lock_guard lock(state->mutex);
      state->done = true;
    }
    state->changed.notify_all();
  };
  std::thread dialling;
  if (pipe::StartThread(dialling, dial_all)) {
    dialling.detach();
  } else {
    state_->done = true;
  }
}

LaneDialler::~LaneDialler() = default;

bool LaneDialler::Await(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [this] { return state_->done; });
}

bool LaneDialler::dialling() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->done;
}

std::unique_ptr<transport::Connection> LaneDialler::Take() {
  const std::lock_guard lock(state_->mutex);
  if (state_->lanes.empty()) return nullptr;
  auto lane = std::move(state_->lanes.front());
  state_->lanes.pop_front();
  return lane;
}

void FurtherLanes::Settle() {
  if (dialler_) (void)dialler_->Await(count_ * kTimeToDial);
}

std::unique_ptr<transport::Connection> FurtherLanes::Take(const transport::Connection& first,
                                                          std::uint64_t bytes) {
  if (!dialler_) {
    if (bytes < kWorthLanes || !GainsByMore(first, anywhere_)) return nullptr;
    dialler_.emplace(session_, LaneDialler::Over(transport::Kind::kTcp), count_);
  }
  auto lane = dialler_->Take();
  if (lane != nullptr) ++lanes_;
  return lane;
}

}  // namespace rdfs::copy
