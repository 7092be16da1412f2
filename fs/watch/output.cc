#include "fs/watch/output.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "transport/base/clock.h"
#include "transport/base/event_fd.h"

namespace rdfs::fs::watch {

struct Output::State {
  State(int to, std::function<void()> when_gone, EventFd event)
      : fd(to), gone(std::move(when_gone)), room(std::move(event)) {}

  void Run();
  // 0, or the errno.
  [[nodiscard]] int Write(std::string_view text) const;

  const int fd;
  const std::function<void()> gone;
  const EventFd room;
  std::mutex mutex;
  std::condition_variable wake;
  // Under mutex. Whole lines, as many as one write(2) does not mix with what others write.
  std::deque<std::string> pieces;
  std::size_t waiting = 0;  // under mutex: bytes, of what is being written, too
  bool full = false;        // under mutex
  bool ending = false;      // under mutex
  bool over = false;        // under mutex: the thread writes no more
  int why = 0;              // under mutex: the errno of what was not written
};

int Output::State::Write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // somebody else's doing, who has it as well
      pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
      (void)poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void Output::State::Run() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [this] { return ending || !pieces.empty(); });
    if (pieces.empty()) break;
    const std::string piece = std::move(pieces.front());
    pieces.pop_front();
    lock.unlock();
    const int failed = Write(piece);
    lock.lock();
    waiting -= piece.size();
    if (failed != 0) {
      why = failed;
      break;
    }
    if (full && waiting <= kMostBytes / 2) {
      full = false;
      room.Ring();
    }
  }
  over = true;
  full = false;
  pieces.clear();
  room.Ring();
  const bool early = why != 0;
  lock.unlock();
  if (early) gone();
}

Result<std::unique_ptr<Output>> Output::Start(int fd, std::function<void()> gone) {
  RDFS_ASSIGN_OR_RETURN(EventFd room, EventFd::Create());
  return std::unique_ptr<Output>(
      new Output(std::make_shared<State>(fd, std::move(gone), std::move(room))));
}

Output::Output(std::shared_ptr<State> state)
    : state_(std::move(state)), thread_([state = state_] { state->Run(); }) {}

Output::~Output() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->wake.notify_one();
  thread_.detach();
}

void Output::Tell(std::string_view line) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->over) return;
    auto& pieces = state_->pieces;
    if (pieces.empty() || pieces.back().size() + line.size() > PIPE_BUF) pieces.emplace_back();
    pieces.back() += line;
    state_->waiting += line.size();
    if (state_->waiting > kMostBytes) state_->full = true;
  }
  state_->wake.notify_one();
}

bool Output::full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->full;
}

int Output::fd() const { return state_->room.fd(); }

void Output::TakeRoom() { state_->room.Drain(); }

Status Output::End(int stop) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->wake.notify_one();
  const auto over = [this] {
    const std::lock_guard lock(state_->mutex);
    return state_->over;
  };
  Deadline deadline = Deadline::max();
  while (!over() && BootClock::now() < deadline) {
    const bool is_told = deadline != Deadline::max();
    std::array<pollfd, 2> entries{{{.fd = fd(), .events = POLLIN, .revents = 0},
                                   {.fd = is_told ? -1 : stop, .events = POLLIN, .revents = 0}}};
    (void)poll(entries.data(), entries.size(), PollTimeoutMs(deadline, BootClock::now()));
    TakeRoom();
    if (entries[1].revents != 0) deadline = DeadlineAfter(kPatience);
  }
  // One that nobody reads may be in its write(2) for ever.
  if (over()) {
    thread_.join();
  } else {
    thread_.detach();
  }
  const std::lock_guard lock(state_->mutex);
  if (state_->why == 0 || state_->why == EPIPE) return {};
  return Status::FromErrno(state_->why, "cannot write to standard output");
}

}  // namespace rdfs::fs::watch
