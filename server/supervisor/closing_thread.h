// ClosingThread: lets go of what may take long to close.
//
// The last descriptor of a file without a name frees all of its space in that call, seconds of it
// for tens of GiB. The thread is there only while it has something to do: a process that is to fork
// can be without it (Join). LetGo is for any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace rdfs::server {

// What has less space than this frees it at once.
inline constexpr std::uint64_t kLongToFree = 256 << 20;

class ClosingThread {
 public:
  ClosingThread() = default;
  ~ClosingThread() { Join(); }
  ClosingThread(const ClosingThread&) = delete;
  ClosingThread& operator=(const ClosingThread&) = delete;

  // Drops the reference on the thread, or here where there can be no thread.
  void LetGo(std::shared_ptr<const void> what);
  // Returns when all of that is done, and the thread is gone. Not while another one calls LetGo.
  void Join();

 private:
  void Run();

  std::mutex mutex_;  // guards the rest
  std::deque<std::shared_ptr<const void>> queue_;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace rdfs::server
