#include "tools/copy/remote/lane_threads.h"

#include <utility>

#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {

Status LaneThreads::Add(std::unique_ptr<transport::Connection> lane) {
  RDFS_ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  lanes_.push_back(std::make_unique<Lane>(Lane{std::move(lane), std::move(stop), {}}));
  Lane& added = *lanes_.back();
  // One that nobody drives is let go, and the copy does without.
  if (!pipe::StartThread(added.thread, [this, &added] { Run(added); })) lanes_.pop_back();
  return {};
}

void LaneThreads::Run(const Lane& lane) {
  TalkSettings settings;
  settings.interrupts = lane.stop.fd();
  Talk talk(*lane.connection, std::move(settings));
  bool counts = false;
  Status status = drive_(talk, counts);
  if (status.ok() || !counts || stopping_) return;
  {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
  broke_();
}

void LaneThreads::Stop() {
  stopping_ = true;
  for (const auto& lane : lanes_) lane->stop.Ring();
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

Status LaneThreads::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace rdfs::copy
