// How nobody is blocked for ever in read(2), write(2) or open(2).
//
// Pipes and FIFOs belong to other processes as well, so O_NONBLOCK, which everybody would see, is
// only for a description of our own, where we can have one (proc(5), /proc/self/fd). A blocked call
// is interrupted by a signal instead (SIGUSR2, whose handler does nothing), again and again until
// its thread has seen the flag and ended.
#pragma once

#include <atomic>
#include <cerrno>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::pipe {

// Set once; any thread.
using StopFlag = std::atomic<bool>;

// A descriptor for what `fd` refers to on which no call waits for another process: not valid for a
// device that never lets anybody wait (mem(4)), where `fd` is one; of its own for a pipe, opened
// again with `flags` (O_RDONLY, O_WRONLY). nullopt for anything else, and for a pipe that may not
// be opened.
std::optional<Fd> OpenUnblocked(int fd, int flags);

// False where no more threads can be made: RLIMIT_NPROC (setrlimit(2)), pids.max (cgroups(7)).
template <typename Body>
bool StartThread(std::thread& thread, Body body) {
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}
// The error of a caller that needs the thread.
inline Status NoThread() { return {Code::kResourceExhausted, EAGAIN, "cannot start a thread"}; }

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
  // Fewer than asked for will do. Errors: kResourceExhausted: there is none at all.
  [[nodiscard]] Status status() const { return threads_.empty() ? NoThread() : Status(); }

 private:
  std::atomic<int> running_{0};
  std::vector<std::thread> threads_;
};

}  // namespace rdfs::pipe
