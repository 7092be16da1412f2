#include "tools/copy/remote/better_lane.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace rdfs::copy {
namespace {

// All legs, 3 s each; the server waits for as long.
constexpr std::chrono::seconds kTimeToDial{12};

}  // namespace

struct BetterLane::State {
  explicit State(std::shared_ptr<transport::Session> s) : session(std::move(s)) {}
  const std::shared_ptr<transport::Session> session;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;                            // under mutex, as what follows
  std::unique_ptr<transport::Connection> lane;  // ends before its session
};

BetterLane::BetterLane(std::shared_ptr<transport::Session> session)
    : state_(std::make_shared<State>(std::move(session))) {
  std::thread([state = state_] {
    auto lane = state->session->OpenDirectLane(DeadlineAfter(kTimeToDial));
    {
      const std::lock_guard lock(state->mutex);
      state->done = true;
      if (lane.ok()) state->lane = *std::move(lane);
    }
    state->changed.notify_all();
  }).detach();
}

BetterLane::~BetterLane() = default;

bool BetterLane::Await(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [this] { return state_->done; });
}

bool BetterLane::dialling() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->done;
}

std::unique_ptr<transport::Connection> BetterLane::Take() {
  const std::lock_guard lock(state_->mutex);
  return std::move(state_->lane);
}

}  // namespace rdfs::copy
