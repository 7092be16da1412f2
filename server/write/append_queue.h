// AppendQueue: appends to one inode, one after the other.
//
// The server tells a client where its append went: it looks at the file's size behind the write,
// which says so only if no other append came in between. A job that must wait is kept, and
// started by whoever finishes before it. Any thread; the mutex is never held over a job.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace rdfs::server {

class AppendQueue {
 public:
  // Runs `job` now or later; it must call Done exactly once, when its append is over. A job that
  // waited is started on the thread that calls Done, so it posts itself to its own loop first.
  void Run(const std::function<void()>& now, std::function<void()> later) {
    {
      const std::lock_guard lock(mutex_);
      if (busy_) {
        waiting_.push_back(std::move(later));
        return;
      }
      busy_ = true;
    }
    now();
  }
  void Done() {
    std::function<void()> next;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        busy_ = false;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }

 private:
  std::mutex mutex_;
  bool busy_ = false;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace rdfs::server
