#include "server/supervisor/closing_thread.h"

#include <sys/prctl.h>

#include <system_error>
#include <utility>

namespace rdfs::server {

void ClosingThread::LetGo(std::shared_ptr<const void> what) {
  if (!what) return;
  std::unique_lock lock(mutex_);
  queue_.push_back(std::move(what));
  if (running_) return;
  if (thread_.joinable()) thread_.join();  // it is behind its last look
  try {
    thread_ = std::thread([this] { Run(); });
    running_ = true;
  } catch (const std::system_error&) {  // no thread to be had
    std::deque<std::shared_ptr<const void>> here = std::exchange(queue_, {});
    lock.unlock();
    here.clear();
  }
}

void ClosingThread::Join() {
  if (thread_.joinable()) thread_.join();
}

void ClosingThread::Run() {
  ::prctl(PR_SET_NAME, "rdfsd-closing");
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    std::shared_ptr<const void> what = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    what.reset();
    lock.lock();
  }
  running_ = false;
}

}  // namespace rdfs::server
