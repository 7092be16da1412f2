// Clerk: a thread that keeps the credentials it was born with, and makes calls for one that does
// not.
//
// The kernel refuses write(2) on /dev/infiniband/* with EACCES to a thread whose credentials are
// not the very ones that opened the file (ib_safe_file_access): one setfsuid(2) is enough, and
// there is no way back. librdmacm makes all of its calls so, and the software drivers (siw, rxe)
// their doorbells. Owned by a connection; made on a thread whose credentials are the process's own;
// used by one thread at a time, which waits.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace rdfs::transport::verbs {

class Clerk {
 public:
  // Throws std::system_error when there can be no thread more.
  Clerk() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  Clerk(const Clerk&) = delete;
  Clerk& operator=(const Clerk&) = delete;

  // Returns when `work` has been done.
  void Do(const std::function<void()>& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    changed_.notify_all();
    changed_.wait(lock, [this] { return work_ == nullptr; });
  }

 private:
  void Run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return work_ != nullptr; })) {
      (*work_)();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  const std::function<void()>* work_ = nullptr;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace rdfs::transport::verbs
