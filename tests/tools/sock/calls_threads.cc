// Scenarios of several threads on one connection: closed under another one's call, and threads that
// are cancelled in the middle of one.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

void Recv(Party& party, const char* what, int fd, int flags = 0) {
  std::array<char, 100> bytes{};
  party.Say(what, recv(fd, bytes.data(), bytes.size(), flags));
}

// A thread in a call, by pthread_create, since those of <thread> end the program when cancelled.
class Sleeper {
 public:
  Sleeper(void* (*run)(void*), int fd) : fd_(fd) {
    if (pthread_create(&thread_, nullptr, run, this) != 0) _exit(3);
    while (tid == 0) sched_yield();
    const std::string path = "/proc/self/task/" + std::to_string(tid) + "/stat";
    for (std::string state; state != "S"; usleep(1000))
      std::ifstream(path) >> state >> state >> state;
    seen = true;
    usleep(10'000);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  // Whether it was cancelled.
  bool Cancel() {
    pthread_cancel(thread_);
    return Join() == PTHREAD_CANCELED;
  }
  void* Join() {
    void* result = nullptr;
    pthread_join(thread_, &result);
    return result;
  }
  [[nodiscard]] int fd() const { return fd_; }
  std::atomic<pid_t> tid{0};      // once it is about to make its call
  std::atomic<bool> seen{false};  // asleep
  ssize_t got = -2;
  int error = 0;

 private:
  int fd_;
  pthread_t thread_{};
};
void* Receives(void* sleeper) {
  auto* const self = static_cast<Sleeper*>(sleeper);
  std::array<char, 100> bytes{};
  self->tid = gettid();
  self->got = recv(self->fd(), bytes.data(), bytes.size(), 0);
  self->error = errno;
  return nullptr;
}
void* Polls(void* sleeper) {
  auto* const self = static_cast<Sleeper*>(sleeper);
  pollfd fd{self->fd(), POLLIN, 0};
  self->tid = gettid();
  poll(&fd, 1, -1);
  return nullptr;
}
void* WaitsInSet(void* sleeper) {
  auto* const self = static_cast<Sleeper*>(sleeper);
  epoll_event event{};
  self->tid = gettid();
  epoll_wait(self->fd(), &event, 1, -1);
  return nullptr;
}

// --- closed meanwhile

// Closes it under whoever is in a call on it; returns the next connection, which takes its number.
int ClosesAndConnects(Party& party, int fd) {
  party.Say("close", close(fd));
  const int next = Connect(party.beside(), nullptr);
  party.Say("its number", next == fd ? 1 : 0);
  WarmUp(next, true);
  party.Meet();
  return next;
}

// The next connection takes the number of one that is closed under a recv.
template <bool kShutdown>
void ClosesUnder(Party& party) {
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  Sleeper sleeper(Receives, fd);
  if (kShutdown) party.Say("shutdown", shutdown(fd, SHUT_RDWR));
  const int next = ClosesAndConnects(party, fd);
  sleeper.Join();
  errno = sleeper.error;
  party.Say("recv", sleeper.got);
  party.Meet();
  party.Meet();
  Recv(party, "of the next", next);
  close(next);
  party.Meet();
}
template <bool kShutdown>
void EndsUnder(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  const int next = Accept(party.beside(), nullptr);
  WarmUp(next, false);
  if (!kShutdown) party.Say("shutdown", shutdown(fd, SHUT_WR));
  party.Meet();
  party.Meet();
  Recv(party, "the end", fd);
  party.Say("send", send(next, "0123456789", 10, 0));
  party.Meet();
  close(fd);
  close(next);
  party.Meet();
}

// Whoever wakes from poll looks the number up again, as the kernel does (do_pollfd() in
// fs/select.c): it is nobody's then, or another file's, which is at its end or has nothing to say.
enum class Then : std::uint8_t { kNobodys, kAtItsEnd, kQuiet };
template <int kTimeout>
void* PollsForBytes(void* sleeper) {
  auto* const self = static_cast<Sleeper*>(sleeper);
  pollfd fd{self->fd(), POLLIN | POLLRDHUP, 0};
  self->tid = gettid();
  self->got = poll(&fd, 1, kTimeout);
  self->error = fd.revents;
  return nullptr;
}
template <Then kThen>
void ClosesUnderPoll(Party& party) {
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) _exit(3);
  Sleeper sleeper(kThen == Then::kQuiet ? PollsForBytes<500> : PollsForBytes<kLong>, fd);
  party.Say("close", close(fd));
  if (kThen != Then::kNobodys) party.Say("its number", dup(ends[0]) == fd ? 1 : 0);
  if (kThen == Then::kAtItsEnd) close(ends[1]);
  party.Meet();
  sleeper.Join();
  party.Say("poll", sleeper.got);
  party.Say("events", sleeper.error);
  if (kThen != Then::kNobodys) party.Say("close", close(fd));
  if (kThen != Then::kAtItsEnd) close(ends[1]);
  close(ends[0]);
  party.Meet();
}
void WakesPoll(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  party.Meet();
  party.Say("send", send(fd, "0123456789", 10, 0));
  party.Meet();
  Recv(party, "and then", fd);
  close(fd);
}

// A child would have all connections, which go back to TCP for it: this one's other end makes no
// call meanwhile. The kernel refuses such a child.
void* MakesChild(void* sleeper) {
  auto* const self = static_cast<Sleeper*>(sleeper);
  self->tid = gettid();
  self->got = syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0);
  self->error = errno;
  while (!self->seen) usleep(1000);  // where there was nothing to wait for
  return nullptr;
}
void ClosesUnderChild(Party& party) {
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  party.Meet();
  Sleeper sleeper(MakesChild, fd);
  const int next = ClosesAndConnects(party, fd);
  sleeper.Join();
  errno = sleeper.error;
  party.Say("clone", sleeper.got);
  party.Meet();
  Recv(party, "of the next", next);
  close(next);
  party.Meet();
}
void SendsUnread(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  party.Say("send", send(fd, "0123456789", 10, 0));
  party.Meet();
  const int next = Accept(party.beside(), nullptr);
  WarmUp(next, false);
  party.Meet();
  Recv(party, "closed unread", fd);
  party.Meet();
  party.Say("send", send(next, "0123456789", 10, 0));
  close(fd);
  close(next);
  party.Meet();
}

// The way out of a call that takes too long, as programs of old have it.
sigjmp_buf out;
void JumpOut(int) { siglongjmp(out, 1); }
void JumpsOut(Party& party) {
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  if (sigsetjmp(out, 1) == 0) {
    signal(SIGALRM, JumpOut);
    ualarm(30'000, 0);
    Recv(party, "is not over", fd);
  }
  signal(SIGALRM, SIG_DFL);
  alarm(50);  // as RunEnd has it
  party.Say("close", close(fd));
  party.Meet();
}
void SeesTheEnd(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  Recv(party, "the end", fd);
  close(fd);
  party.Meet();
}

// --- cancelled meanwhile

int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 8192; ++fd) count += syscall(SYS_fcntl, fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}
int SetOf(int fd) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  return set;
}

// First on one that has not moved yet, which it does all the same.
void IsCancelled(Party& party) {
  const int open = OpenDescriptors();
  const int fd = Connect(party.beside(), nullptr);
  party.Say("in recv, plain", Sleeper(Receives, fd).Cancel());
  WarmUp(fd, true);
  const int set = SetOf(fd);
  party.Say("in recv", Sleeper(Receives, fd).Cancel());
  party.Say("in poll", Sleeper(Polls, fd).Cancel());
  party.Say("in epoll_wait", Sleeper(WaitsInSet, set).Cancel());
  party.Meet();
  party.Meet();
  epoll_event event{};
  party.Say("epoll_wait", epoll_wait(set, &event, 1, kLong));
  Recv(party, "recv", fd);
  close(set);
  party.Say("close", close(fd));
  party.Say("left open", OpenDescriptors() - open);
  party.Meet();
}
void SeesCancelled(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  party.Meet();
  party.Say("send", send(fd, "0123456789", 10, 0));
  party.Meet();
  Recv(party, "the end", fd);
  close(fd);
  party.Meet();
}

// Anywhere in a loop of calls.
struct Loop {
  int fd, set;
};
void* Loops(void* loop) {
  const Loop& own = *static_cast<const Loop*>(loop);
  for (;;) {
    char byte = 'x';
    epoll_event event{};
    if (send(own.fd, &byte, 1, MSG_DONTWAIT) != 1) return nullptr;
    if (epoll_wait(own.set, &event, 1, 1) == 1) (void)recv(own.fd, &byte, 1, MSG_DONTWAIT);
  }
}
void IsCancelledOften(Party& party) {
  Loop loop{party.fd, SetOf(party.fd)};
  int cancelled = 0;
  for (int i = 0; i < 100; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, Loops, &loop) != 0) _exit(3);
    usleep(1000);
    pthread_cancel(thread);
    void* result = nullptr;
    pthread_join(thread, &result);
    cancelled += result == PTHREAD_CANCELED ? 1 : 0;
  }
  party.Say("cancelled", cancelled);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  epoll_event event{};
  long got = 0;
  do {
    std::array<char, 1000> bytes{};
    if (epoll_wait(loop.set, &event, 1, kLong) != 1) break;
    got = recv(party.fd, bytes.data(), bytes.size(), 0);
  } while (got > 0);
  party.Say("the end", got);
  close(loop.set);
  party.Meet();
}
void Echoes(Party& party) {
  char byte = 0;
  while (recv(party.fd, &byte, 1, 0) == 1) (void)send(party.fd, &byte, 1, MSG_NOSIGNAL);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kThreadScenarios = {
    {"closed under recv", ClosesUnder<false>, EndsUnder<false>, 3},
    {"shut down and closed under recv", ClosesUnder<true>, EndsUnder<true>, 3},
    {"closed under poll", ClosesUnderPoll<Then::kNobodys>, WakesPoll, 2},
    {"closed under poll, and used again", ClosesUnderPoll<Then::kAtItsEnd>, WakesPoll, 2},
    {"closed under poll, and used again, quietly", ClosesUnderPoll<Then::kQuiet>, WakesPoll, 2},
    {"closed while a child is made", ClosesUnderChild, SendsUnread, 3},
    {"closed behind siglongjmp", JumpsOut, SeesTheEnd, 2},
    {"cancelled", IsCancelled, SeesCancelled, 2},
    {"cancelled, anywhere", IsCancelledOften, Echoes},
};

}  // namespace rdfs::sock
