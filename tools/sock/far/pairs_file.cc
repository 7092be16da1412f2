#include "tools/sock/far/pairs_file.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "transport/base/event_fd.h"

namespace rdfs::sock::far {

struct PairsFile::State {
  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || asked != done; });
      if (stopping) break;
      const std::uint64_t look = asked;
      if (std::exchange(again, false)) seen.clear();
      lock.unlock();
      std::optional<Result<Pairs>> pairs;
      std::string now = stamp(path);
      if (now != seen) {
        seen = std::move(now);
        pairs.emplace(ReadPairs(path));
      }
      lock.lock();
      if (pairs) found = std::move(pairs);
      done = look;
      news.Ring();
    }
    ended = true;
    changed.notify_all();
  }

  std::string path;
  Stamp stamp;
  EventFd news;
  std::string seen;  // the thread's: the file as last read
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  std::uint64_t asked = 0;
  std::uint64_t done = 0;
  std::optional<Result<Pairs>> found;
  bool again = false;
  bool stopping = false;
  bool ended = false;
};

PairsFile::PairsFile(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<PairsFile>> PairsFile::Create(std::string path, Stamp stamp) {
  auto state = std::make_shared<State>();
  state->path = std::move(path);
  state->stamp = std::move(stamp);
  RDFS_ASSIGN_OR_RETURN(state->news, EventFd::Create());
  try {
    std::thread([state] { state->Run(); }).detach();
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted, error.code().value(), "cannot start a thread");
  }
  return std::unique_ptr<PairsFile>(new PairsFile(std::move(state)));
}

// One that hangs has what it needs.
PairsFile::~PairsFile() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  (void)state_->changed.wait_for(lock, kPatience, [this] { return state_->ended; });
}

int PairsFile::fd() const { return state_->news.fd(); }

std::uint64_t PairsFile::Look(TimePoint now) {
  if (asked_ == done_) since_ = now;
  ++asked_;
  {
    const std::lock_guard lock(state_->mutex);
    state_->asked = asked_;
  }
  state_->changed.notify_all();
  return asked_;
}

std::optional<Result<Pairs>> PairsFile::Take(TimePoint now) {
  state_->news.Drain();
  const std::lock_guard lock(state_->mutex);
  if (done_ != state_->done) since_ = now;
  done_ = state_->done;
  return std::exchange(state_->found, std::nullopt);
}

void PairsFile::Again() {
  const std::lock_guard lock(state_->mutex);
  state_->again = true;
}

}  // namespace rdfs::sock::far
