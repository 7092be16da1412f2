// How threads that may be blocked in read(2), write(2) or open(2) are made to return.
//
// Pipes and FIFOs belong to other processes as well, so O_NONBLOCK, which everybody would see, is
// not for us. A blocked call is interrupted by a signal instead (SIGUSR2, whose handler does
// nothing), again and again until its thread has seen the flag and ended.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace rdfs::pipe {

// Set once; any thread.
using StopFlag = std::atomic<bool>;

// So many threads that run the same function until it returns. It must return soon after a flag of
// the owner's is set and its system calls fail with EINTR.
class Threads {
 public:
  // Installs the signal's handler for the process. The threads take no other signal.
  Threads(int count, const std::function<void()>& body);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  // The owner has set its flag and woken those that wait for something else than a system call.
  ~Threads() { Join(); }
  // Interrupts what blocks, and waits for all.
  void Join();

 private:
  std::atomic<int> running_;
  std::vector<std::thread> threads_;
};

}  // namespace rdfs::pipe
