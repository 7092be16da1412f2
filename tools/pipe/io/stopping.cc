#include "tools/pipe/io/stopping.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <chrono>
#include <string>

namespace rdfs::pipe {
namespace {

void Nothing(int) {}

// How often a thread that has not ended is interrupted: one that was just about to block when the
// signal came blocks so long at most.
constexpr std::chrono::milliseconds kAgain{5};

}  // namespace

std::optional<Fd> OpenUnblocked(int fd, int flags) {
  constexpr unsigned kMemoryDevices = 1;  // null, zero, full, random
  struct stat info {};
  if (fstat(fd, &info) != 0) return std::nullopt;
  if (S_ISCHR(info.st_mode) && major(info.st_rdev) == kMemoryDevices) return Fd();
  if (!S_ISFIFO(info.st_mode)) return std::nullopt;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Fd own(open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC));
  if (!own.valid()) return std::nullopt;
  return own;
}

Threads::Threads(int count, const std::function<void()>& body) {
  struct sigaction action {};
  action.sa_handler = Nothing;  // without SA_RESTART: blocked calls return EINTR
  sigaction(SIGUSR2, &action, nullptr);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto run = [this, body] {
    body();
    running_.fetch_sub(1);
  };
  for (int i = 0; i < count; ++i) {
    running_.fetch_add(1);
    std::thread thread;
    if (!StartThread(thread, run)) {
      running_.fetch_sub(1);
      break;
    }
    threads_.push_back(std::move(thread));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Threads::Join() {
  while (running_.load() > 0) {
    for (std::thread& thread : threads_) pthread_kill(thread.native_handle(), SIGUSR2);
    if (running_.load() > 0) std::this_thread::sleep_for(kAgain);
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace rdfs::pipe
