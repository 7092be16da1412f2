#include "tools/pipe/stopping.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>

namespace rdfs::pipe {
namespace {

void Nothing(int) {}

// How often a thread that has not ended is interrupted: one that was just about to block when the
// signal came blocks so long at most.
constexpr std::chrono::milliseconds kAgain{5};

}  // namespace

Threads::Threads(int count, const std::function<void()>& body) : running_(count) {
  struct sigaction action {};
  action.sa_handler = Nothing;  // without SA_RESTART: blocked calls return EINTR
  sigaction(SIGUSR2, &action, nullptr);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this, body] {
      body();
      running_.fetch_sub(1);
    });
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
