#include "server/process/reload_thread.h"

#include <sys/prctl.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace rdfs::server {

struct ReloadThread::State {
  void Run() {
    std::unique_lock lock(mutex);
    while (std::exchange(wanted, false)) {
      lock.unlock();
      reload();
      lock.lock();
    }
    running = false;
    ended.notify_all();
  }

  std::function<void()> reload;
  std::mutex mutex;  // guards the rest
  std::condition_variable ended;
  bool wanted = false;
  bool running = false;
};

ReloadThread::ReloadThread(std::function<void()> reload, std::function<void()> hangs)
    : state_(std::make_shared<State>()), hangs_(std::move(hangs)) {
  state_->reload = std::move(reload);
}

ReloadThread::~ReloadThread() {
  {
    std::unique_lock lock(state_->mutex);
    state_->wanted = false;
    if (state_->ended.wait_for(lock, kPatience, [this] { return !state_->running; })) return;
  }
  hangs_();
}

void ReloadThread::Ask() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->wanted = true;
    if (std::exchange(state_->running, true)) return;
  }
  try {
    std::thread([state = state_] {
      ::prctl(PR_SET_NAME, "rdfsd-reload");
      state->Run();
    }).detach();
  } catch (const std::system_error&) {  // no thread to be had
    state_->Run();
  }
}

}  // namespace rdfs::server
