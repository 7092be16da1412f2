#include "tools/copy/remote/lane_threads.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {

Status LaneThreads::Add(std::unique_ptr<transport::Connection> lane) {
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return Status::FromErrno(errno, "eventfd");
  lanes_.push_back(std::make_unique<Lane>(Lane{std::move(lane), std::move(stop), {}}));
  Lane& added = *lanes_.back();
  // One that nobody drives is let go, and the copy does without.
  if (!pipe::StartThread(added.thread, [this, &added] { Run(added); })) lanes_.pop_back();
  return {};
}

void LaneThreads::Run(const Lane& lane) {
  TalkSettings settings;
  settings.interrupts = lane.stop.get();
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
  for (const auto& lane : lanes_) (void)eventfd_write(lane->stop.get(), 1);
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

Status LaneThreads::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace rdfs::copy
