// Scenarios of waiting: poll, select and epoll in all their modes, timeouts.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

// The other end of all that follows: sends when it is met, and closes in the end.
void Feeds(Party& party) {
  for (int i = 0; i < 3; ++i) {
    party.Meet();
    Send(party, 0, 100);
    party.Meet();
  }
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
  party.Meet();
}

void Polls(Party& party) {
  SayPoll(party, "nothing", POLLIN, 0);
  SayPoll(party, "a short wait", POLLIN, 20);
  SayPoll(party, "room", POLLIN | POLLOUT, kLong);
  party.Meet();
  SayPoll(party, "wait for bytes", POLLIN, kLong);
  party.Meet();
  SayPoll(party, "bytes", POLLIN | POLLOUT | POLLRDHUP, kLong);
  Receive(party, "recv", 40);
  SayPoll(party, "some of them", POLLIN | POLLRDNORM, kLong);
  Receive(party, "recv", 100);
  SayPoll(party, "none", POLLIN, 0);
  party.Meet();
  party.Meet();
  const timespec wait{kLong / 1000, 0};
  std::array<pollfd, 2> fds = {pollfd{-1, POLLIN, 0}, pollfd{party.fd, POLLIN, 0}};
  party.Say("ppoll", ppoll(fds.data(), 2, &wait, nullptr));
  party.Say("revents", fds[1].revents);
  Receive(party, "recv", 100);
  party.Meet();
  party.Meet();
  Receive(party, "recv", 100);
  party.Meet();
  party.Meet();
  SayPoll(party, "the end", POLLIN | POLLRDHUP, kLong);
  Receive(party, "recv", 100);
  SayPoll(party, "the end stays", POLLIN, kLong);
  party.Meet();
}

void SaySelect(Party& party, const char* what, bool write, long timeout_ms) {
  fd_set in;
  fd_set out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_SET(party.fd, &in);
  if (write) FD_SET(party.fd, &out);
  timeval wait{0, timeout_ms * 1000};  // more than a second of them, too
  party.Say(what, select(party.fd + 1, &in, &out, nullptr, &wait));
  party.Say("in", FD_ISSET(party.fd, &in) ? 1 : 0);
  party.Say("out", FD_ISSET(party.fd, &out) ? 1 : 0);
}

void Selects(Party& party) {
  SaySelect(party, "nothing", false, 0);
  SaySelect(party, "a short wait", false, 20);
  SaySelect(party, "room", true, kLong);
  party.Meet();
  SaySelect(party, "wait for bytes", false, kLong);
  party.Meet();
  SaySelect(party, "bytes", true, kLong);
  Receive(party, "recv", 100);
  party.Meet();
  party.Meet();
  fd_set in;
  FD_ZERO(&in);
  FD_SET(party.fd, &in);
  const timespec wait{kLong / 1000, 0};
  party.Say("pselect", pselect(party.fd + 1, &in, nullptr, nullptr, &wait, nullptr));
  Receive(party, "recv", 100);
  party.Meet();
  party.Meet();
  Receive(party, "recv", 100);
  party.Meet();
  party.Meet();
  SaySelect(party, "the end", false, kLong);
  Receive(party, "recv", 100);
  party.Meet();
}

// One epoll instance with one connection in it.
class Set {
 public:
  explicit Set(Party& party) : party_(party), fd_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Set() { close(fd_); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  void Control(const char* what, int operation, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = 0x1234567890abcdef}};
    party_.Say(what, epoll_ctl(fd_, operation, party_.fd, &event));
  }
  // Nothing comes, and it sleeps meanwhile.
  void Sleep(const char* what) {
    const auto used = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
    };
    const long before = used();
    Wait(what, 400);
    party_.Say("it slept", used() - before < 200);
  }
  void Poll(const char* what, int timeout) {
    pollfd entry{fd_, POLLIN, 0};
    party_.Say(what, poll(&entry, 1, timeout));
  }
  void Wait(const char* what, int timeout) {
    std::array<epoll_event, 8> events{};
    const int count = epoll_wait(fd_, events.data(), 8, timeout);
    party_.Say(what, count);
    for (int i = 0; i < count; ++i) {
      const epoll_event event = events[static_cast<std::size_t>(i)];
      party_.Say("events", event.events);
      party_.Say("data", event.data.u64 == 0x1234567890abcdef);
    }
  }

 private:
  Party& party_;
  int fd_;
};

void Levels(Party& party) {
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
  set.Control("add again", EPOLL_CTL_ADD, EPOLLIN);
  set.Wait("nothing", 0);
  set.Wait("a short wait", 20);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  party.Meet();
  Receive(party, "recv", 40);
  set.Wait("some of them", kLong);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
  set.Wait("with room", kLong);
  Receive(party, "recv", 100);
  set.Wait("only room", kLong);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP);
  set.Wait("none", 0);
  party.Meet();
  party.Meet();
  set.Wait("more", kLong);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  set.Wait("not in it", 0);
  set.Control("delete again", EPOLL_CTL_DEL, 0);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
  set.Wait("back in it", kLong);
  Receive(party, "recv", 200);
  party.Meet();
  party.Meet();
  Receive(party, "recv", 200);
  party.Meet();
  party.Meet();
  set.Wait("the end", kLong);
  Receive(party, "recv", 200);
  set.Wait("the end stays", kLong);
  party.Meet();
}

// As programs do that wait for bytes and for room in turn: they change the entry each time, or take
// it out and put it in again.
void TakesTurns(Party& party) {
  Set set(party);
  set.Control("modify what is not there", EPOLL_CTL_MOD, EPOLLIN);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLOUT);
  set.Wait("only room", kLong);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  set.Wait("not in it", 0);
  set.Control("delete again", EPOLL_CTL_DEL, 0);
  set.Control("modify what is not there", EPOLL_CTL_MOD, EPOLLIN);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  set.Control("add again", EPOLL_CTL_ADD, EPOLLIN);
  set.Wait("bytes", kLong);
  Receive(party, "recv", 200);
  set.Wait("none", 20);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  party.Meet();
  party.Meet();  // the other end has shut its half down
  set.Sleep("not in it");
  set.Control("add", EPOLL_CTL_ADD, EPOLLOUT);
  set.Wait("only room", kLong);
  set.Wait("only room", kLong);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLRDHUP);
  set.Wait("only the end", kLong);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP);
  set.Wait("the end", kLong);
  set.Control("modify", EPOLL_CTL_MOD, 0);
  set.Sleep("nothing that it is asked for");
  set.Control("delete", EPOLL_CTL_DEL, 0);
  set.Wait("not in it", 20);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  set.Wait("the end", kLong);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  // An edge is told again to who asks again.
  set.Control("add by its edges", EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP | EPOLLET);
  set.Wait("the end", kLong);
  set.Wait("said already", 20);
  set.Control("modify to the same", EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP | EPOLLET);
  set.Wait("the end", kLong);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLRDHUP | EPOLLET);
  set.Wait("only the end", kLong);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  // Who polls the set is told of what is in it.
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  set.Poll("the end", kLong);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  set.Poll("not in it", 20);
  set.Control("add", EPOLL_CTL_ADD, EPOLLPRI);
  set.Poll("nothing that it is asked for", 20);
  party.Meet();
}

// The set is polled for the first time when what was taken out of it has something to say.
void TakesOutOfAPolledSet(Party& party) {
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  Receive(party, "recv", 200);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  party.Meet();
  party.Meet();  // the other end has shut its half down
  set.Poll("not in it", 20);
  party.Meet();
}

// In by one number, out, and in again by another one; the first is closed then.
void ChangesItsNumber(Party& party) {
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  Receive(party, "recv", 200);
  set.Wait("none", 20);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  const int first = party.fd;
  party.fd = dup(first);
  set.Control("add by another number", EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
  set.Wait("none", 20);
  party.Say("close", close(first));
  std::thread meets([&] { party.Meet(); });
  set.Wait("wait for bytes", kLong);
  meets.join();
  Receive(party, "recv", 200);
  party.Meet();
  party.Meet();
  set.Wait("the end", kLong);
  party.Meet();
}
void FeedsTwice(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  usleep(50'000);
  Send(party, 100, 100);
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
  party.Meet();
}
void HasTurnsTaken(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
  party.Meet();
}

// A number that was in a set, and out of it again, is that of another connection soon, while a
// child has the first one still.
void LeavesANumber(Party& party) {
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  Receive(party, "recv", 200);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  int stays[2] = {-1, -1};
  if (pipe2(stays, O_CLOEXEC) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    char ignored = 0;
    (void)!read(stays[0], &ignored, 1);
    _exit(0);
  }
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  set.Wait("none", 20);
  set.Control("delete", EPOLL_CTL_DEL, 0);
  const int number = party.fd;
  party.Say("close", close(number));
  int other[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other) != 0) return;
  if (other[0] != number && other[1] != number) return;
  party.fd = number;
  set.Control("add another one of this number", EPOLL_CTL_ADD, EPOLLIN);
  party.Meet();  // the other end sends, and shuts its half down
  party.Meet();
  set.Wait("nothing of its own", 20);
  party.Say("write", write(other[0] == number ? other[1] : other[0], "x", 1));
  set.Wait("bytes", kLong);
  close(other[0]);
  close(other[1]);
  party.fd = -1;
  (void)!write(stays[1], "x", 1);
  close(stays[0]);
  close(stays[1]);
  party.Say("child", waitpid(child, nullptr, 0) == child);
  party.Meet();
}
void FeedsANumber(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  Send(party, 100, 100);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
  party.Meet();
}

void Edges(Party& party) {
  fcntl(party.fd, F_SETFL, O_NONBLOCK);
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP | EPOLLET);
  set.Wait("nothing", 0);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  party.Meet();
  Receive(party, "recv", 40);
  set.Wait("said already", 0);
  set.Wait("said already", 20);
  party.Meet();
  party.Meet();
  set.Wait("more", kLong);
  Receive(party, "recv", 500);
  Receive(party, "recv", 500);
  set.Wait("none", 20);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  party.Meet();
  Receive(party, "recv", 500);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  set.Wait("room, once", kLong);
  set.Wait("said already", 0);
  party.Meet();
  party.Meet();
  set.Wait("the end", kLong);
  party.Meet();
}

void Shots(Party& party) {
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN | EPOLLONESHOT);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  set.Wait("spent", 20);
  party.Meet();
  party.Meet();
  party.Meet();
  set.Wait("still spent", 0);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
  set.Wait("again", kLong);
  set.Wait("spent", 0);
  Receive(party, "recv", 500);
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
  set.Wait("none", 20);
  party.Meet();
  set.Wait("wait for bytes", kLong);
  Receive(party, "recv", 500);
  party.Meet();
  party.Meet();
  party.Meet();
  set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
  set.Wait("the end", kLong);
  party.Meet();
}

// One connection in a set by two numbers: each of them is told.
void HasTwoNumbers(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  const int copy = dup(party.fd);
  const auto add = [&](int fd, std::uint64_t data) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = data}};
    party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
  };
  const auto wait = [&](const char* what, int timeout) {
    std::array<epoll_event, 8> events{};
    const int count = epoll_wait(set, events.data(), 8, timeout);
    party.Say(what, count);
    std::uint64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += events[static_cast<std::size_t>(i)].data.u64;
    party.Say("data", static_cast<long>(sum));
  };
  add(party.fd, 1);
  wait("nothing", 0);
  add(copy, 2);
  for (int i = 0; i < 3; ++i) {
    wait("nothing", 0);
    party.Meet();
    party.Meet();
    wait("bytes", kLong);
    if (i == 1) party.Say("close", close(copy));
    if (i == 1) wait("by the other number", kLong);
    Receive(party, "recv", 500);
  }
  party.Meet();
  party.Meet();
  wait("the end", kLong);
  close(set);
  party.Meet();
}

// A set inside another.
void Nests(Party& party) {
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLIN);
  const int inner = epoll_create1(EPOLL_CLOEXEC);
  const int outer = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  party.Say("add", epoll_ctl(inner, EPOLL_CTL_ADD, party.fd, &event));
  party.Say("add", epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
  const auto wait = [&](const char* what, int epoll, int timeout) {
    epoll_event got{};
    party.Say(what, epoll_wait(epoll, &got, 1, timeout));
  };
  for (int i = 0; i < 3; ++i) {
    wait("nothing", inner, 0);
    party.Meet();
    wait("outer", outer, kLong);
    wait("inner", inner, kLong);
    party.Meet();
    Receive(party, "recv", 500);
  }
  close(inner);
  close(outer);
  party.Meet();
  party.Meet();
  party.Meet();
}

// A set that only other waits sleep for, as loops inside loops do: it is asked for what is there.
template <typename Sleep>
void AsksAfter(Party& party, int set, Sleep sleep) {
  const auto ask = [&](const char* what) {
    epoll_event got{};
    party.Say(what, epoll_wait(set, &got, 1, 0));
  };
  for (int i = 0; i < 3; ++i) {
    party.Meet();
    sleep("wait for bytes", kLong);
    ask("bytes");
    Receive(party, "recv", 40);
    sleep("some of them", kLong);
    ask("bytes");
    party.Meet();
    Receive(party, "recv", 500);
  }
  party.Meet();
  sleep("wait for the end", kLong);
  ask("the end");
  party.Meet();
  party.Meet();
}
int SetOfOne(Party& party, int fd) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
  return set;
}
void SleepsInAnother(Party& party) {
  const int inner = SetOfOne(party, party.fd);
  const int outer = SetOfOne(party, inner);
  AsksAfter(party, inner, [&](const char* what, int timeout) {
    epoll_event got{};
    party.Say(what, epoll_wait(outer, &got, 1, timeout));
  });
  close(inner);
  close(outer);
}
void SleepsInPoll(Party& party) {
  const int set = SetOfOne(party, party.fd);
  AsksAfter(party, set, [&](const char* what, int timeout) {
    pollfd fd{set, POLLIN, 0};
    party.Say(what, poll(&fd, 1, timeout));
  });
  close(set);
}
void SleepsInSelect(Party& party) {
  const int set = SetOfOne(party, party.fd);
  AsksAfter(party, set, [&](const char* what, int timeout) {
    fd_set in;
    FD_ZERO(&in);
    FD_SET(set, &in);
    timeval wait{timeout / 1000, 0};
    party.Say(what, select(set + 1, &in, nullptr, nullptr, &wait));
  });
  close(set);
}

// What is read without asking the inner set is not there any more; an edge is told once; and who
// polls the outer set hears of what the inner one has, also where that comes into it later.
void SleepsForSets(Party& party) {
  const int inner = SetOfOne(party, party.fd);
  const int outer = epoll_create1(EPOLL_CLOEXEC);
  const int edges = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = 1}};
  party.Say("add by its edges", epoll_ctl(edges, EPOLL_CTL_ADD, inner, &event));
  const auto wait = [&](const char* what, int epoll, int timeout) {
    epoll_event got{};
    party.Say(what, epoll_wait(epoll, &got, 1, timeout));
  };
  long woken = 0;
  std::thread sleeper([&] {
    epoll_event got{};
    woken = epoll_wait(outer, &got, 1, kLong);
  });
  usleep(50'000);
  event.events = EPOLLIN;
  party.Say("add to one that is slept for", epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
  party.Meet();
  sleeper.join();
  party.Say("woken", woken);
  wait("the edge", edges, kLong);
  wait("no other", edges, 20);
  party.Meet();
  Receive(party, "recv", 500);
  wait("read directly", outer, 20);
  party.Meet();
  pollfd fd{outer, POLLIN, 0};
  party.Say("poll", poll(&fd, 1, kLong));
  wait("outer", outer, 0);
  wait("inner", inner, 0);
  Receive(party, "recv", 500);
  party.Meet();
  party.Meet();
  party.Say("poll again", poll(&fd, 1, kLong));
  Receive(party, "recv", 500);
  party.Say("poll of nothing", poll(&fd, 1, 20));
  party.Meet();
  for (const int set : {inner, outer, edges}) close(set);
  party.Meet();
  party.Meet();
  party.Meet();
}

// Told once before the connection has met anybody, and not again when it has.
void SpentBefore(Party& party) {
  const int other = std::exchange(party.fd, Connect(party.beside(), nullptr));
  {
    Set set(party);
    set.Control("add", EPOLL_CTL_ADD, EPOLLIN | EPOLLONESHOT);
    party.Meet();
    set.Wait("wait for a byte", kLong);
    Receive(party, "recv", 1);
    WarmUp(party.fd, true);
    party.Meet();
    party.Meet();
    set.Wait("spent", 20);
    set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
    set.Wait("again", kLong);
    set.Wait("spent", 0);
    Receive(party, "recv", 100);
    // And back again: what it lies in is no stream's.
    int ends[2];
    party.Say("pipe", pipe(ends));
    party.Meet();
    party.Meet();
    party.Say("splice", splice(party.fd, nullptr, ends[1], nullptr, 50, 0));
    set.Wait("still spent", 20);
    set.Control("modify", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
    set.Wait("the rest", kLong);
    set.Wait("spent", 20);
    Send(party, 0, 10);
    close(ends[0]);
    close(ends[1]);
  }
  party.Meet();
  close(std::exchange(party.fd, other));
}
void FeedsSpent(Party& party) {
  const int other = std::exchange(party.fd, Accept(party.beside(), nullptr));
  party.Meet();
  party.Say("send", send(party.fd, "x", 1, 0));
  WarmUp(party.fd, false);
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  // In a call, so that it can give back what lies in memory.
  Receive(party, "recv", 10, MSG_WAITALL);
  party.Meet();
  close(std::exchange(party.fd, other));
}

// Back on TCP, and not in the set any more: nothing of it is heard there.
void GoesAway(Party& party, int fd) {
  party.Meet();
  party.Say("send", send(fd, "0123456789", 10, 0));
  party.Say("close", close(fd));
  party.Meet();
}
void GoesAwayFromSet(Party& party) { GoesAway(party, std::exchange(party.fd, -1)); }
void LeavesTakenOut(Party& party) {
  const int set = SetOfOne(party, party.fd);
  party.Say("delete", epoll_ctl(set, EPOLL_CTL_DEL, party.fd, nullptr));
  party.Say("sockatmark", sockatmark(party.fd));
  party.Meet();
  party.Meet();
  pollfd fd{set, POLLIN, 0};
  party.Say("poll of the set", poll(&fd, 1, 20));
  Receive(party, "recv", 100);
  close(set);
}
// The same in a child that moves what its parent has put into the set.
void GoesAwayFromHeir(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  GoesAway(party, fd);
}
void LeavesAsHeir(Party& party) {
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) _exit(3);
  const int fd = Connect(party.beside(), nullptr);
  const int set = SetOfOne(party, fd);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    WarmUp(fd, true);
    if (sockatmark(fd) != 0 || epoll_ctl(set, EPOLL_CTL_DEL, fd, nullptr) != 0) _exit(2);
    party.Meet();
    party.Meet();
    pollfd told{set, POLLIN, 0};
    _exit(poll(&told, 1, 20) == 0 ? 0 : 4);
  }
  party.Say("close", close(fd));
  party.Say("go", write(go[1], "x", 1));
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("the child's status", status);
  for (const int open : {set, go[0], go[1]}) close(open);
}

// The room that one number of a connection was refused, told to another one's entry.
void FillsByCopy(Party& party) {
  fcntl(party.fd, F_SETFL, O_NONBLOCK);
  const int copy = dup(party.fd);
  Set set(party);
  set.Control("add", EPOLL_CTL_ADD, EPOLLOUT | EPOLLET);
  set.Wait("room", kLong);
  set.Wait("told", 0);
  long sent = 0;
  const std::vector<char> bytes = Bytes(0, 30'000);
  for (ssize_t went = 0; (went = send(copy, bytes.data(), bytes.size(), 0)) > 0;) sent += went;
  set.Wait("full", 0);
  party.Tell(sent);
  set.Wait("room again", kLong);
  close(copy);
  party.Meet();
}
void TakesAll(Party& party) {
  std::vector<char> bytes(static_cast<std::size_t>(party.Hear()));
  party.Say("all of it", recv(party.fd, bytes.data(), bytes.size(), MSG_WAITALL) ==
                             static_cast<ssize_t>(bytes.size()));
  party.Meet();
}

void TimesOut(Party& party) {
  const timeval wait{0, 50'000};
  party.Say("SO_RCVTIMEO", setsockopt(party.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)));
  Receive(party, "nothing", 100);
  party.Meet();
  party.Meet();
  Receive(party, "recv", 100);
  Receive(party, "nothing more", 100);
  party.Say("SO_SNDTIMEO", setsockopt(party.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)));
  const std::vector<char> bytes = Bytes(0, 50'000);
  ssize_t sent = 0;
  while (sent >= 0) sent = send(party.fd, bytes.data(), bytes.size(), 0);
  party.Say("a full socket", sent);
  party.Meet();
}
void LetsTimeOut(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
}

// Before connect, and on the listener.
void WithLength(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) != 0) _exit(3);
}
// What recvmsg says is left behind `size` bytes; only whether something is, where `exact` is false.
void SayLength(Party& party, int fd, const char* what, std::size_t size, int flags = 0,
               bool exact = true) {
  std::array<char, 16> bytes{};
  iovec buffer{bytes.data(), size};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  party.Say(what, recvmsg(fd, &message, flags | MSG_DONTWAIT));
  party.Say("what came with it", static_cast<long>(message.msg_controllen));
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head == nullptr) return;
  int left = -1;
  memcpy(&left, CMSG_DATA(head), sizeof(left));
  const bool is_length = head->cmsg_level == IPPROTO_TCP && head->cmsg_type == TCP_CM_INQ &&
                         head->cmsg_len == CMSG_LEN(sizeof(left));
  party.Say("it is a length", is_length ? 1 : 0);
  party.Say("left", exact ? left : left > 0 ? 1 : 0);
}
void HearsLength(Party& party, int fd) {
  party.Meet();
  SayLength(party, fd, "a byte", 1);
  SayLength(party, fd, "a look", 4, MSG_PEEK);
  SayLength(party, fd, "all but one", 8);
  SayLength(party, fd, "the last", 1);
  SayLength(party, fd, "none", 1);
  msghdr message{};
  char byte = 0;
  iovec buffer{&byte, 1};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  party.Meet();
  party.Meet();
  party.Say("no room for it", recvmsg(fd, &message, 0));
  party.Say("flags", message.msg_flags);
  std::array<char, 4> little{};
  message.msg_control = little.data();
  message.msg_controllen = little.size();
  party.Say("too little room for it", recvmsg(fd, &message, 0));
  party.Say("flags", message.msg_flags);
  alignas(cmsghdr) std::array<char, CMSG_LEN(sizeof(short))> half{};
  message.msg_control = half.data();
  message.msg_controllen = half.size();
  party.Say("room for a half of it", recvmsg(fd, &message, 0));
  party.Say("flags", message.msg_flags);
  party.Say("what came with it", static_cast<long>(message.msg_controllen));
  party.Say("its length", static_cast<long>(CMSG_FIRSTHDR(&message)->cmsg_len));
  SayLength(party, fd, "not the last, and the end behind it", 2, 0, false);
  SayLength(party, fd, "the last before the end", 16);
  SayLength(party, fd, "the end", 1);
  close(fd);
  party.Meet();
}
void SendsSome(Party& party, int fd) {
  party.Say("send", send(fd, "0123456789", 10, 0));
  party.Meet();
  party.Meet();
  party.Say("send", send(fd, "0123456789", 10, 0));
  party.Say("shutdown", shutdown(fd, SHUT_WR));
  party.Meet();
  party.Meet();
  close(fd);
}
int Warm(int fd, bool first) {
  WarmUp(fd, first);
  return fd;
}
void ClientWithLength(Party& party) {
  HearsLength(party, Warm(Connect(party.beside(), WithLength), true));
}
void ClientThatWantsLength(Party& party) {
  const int fd = Warm(Connect(party.beside(), nullptr), true);
  WithLength(fd);
  HearsLength(party, fd);
}
void ServesClientWithLength(Party& party) {
  SendsSome(party, Warm(Accept(party.beside(), nullptr), false));
}
void AsksListenerWithLength(Party& party) {
  SendsSome(party, Warm(Connect(party.beside(), nullptr), true));
}
void ListenerWithLength(Party& party) {
  HearsLength(party, Warm(Accept(party.beside(), WithLength), false));
}

// A set of more descriptors than the C library's own type has.
void SelectsAbove(Party& party) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const int high = fcntl(party.fd, F_DUPFD_CLOEXEC, 1500);
  std::array<unsigned long, 32> in{};
  constexpr int kBits = sizeof(long) * 8;
  const auto select_high = [&](const char* what, long seconds) {
    in.fill(0);
    in[static_cast<std::size_t>(high / kBits)] = 1UL << static_cast<unsigned>(high % kBits);
    timeval wait{seconds, 20'000};
    party.Say(what,
              select(high + 1, reinterpret_cast<fd_set*>(in.data()), nullptr, nullptr, &wait));
    party.Say("in", in[static_cast<std::size_t>(high / kBits)] != 0 ? 1 : 0);
  };
  select_high("nothing", 0);
  party.Meet();
  party.Meet();
  select_high("bytes", kLong / 1000);
  Receive(party, "recv", 1);
  select_high("none", 0);
  close(high);
  party.Meet();
}

// Beside a connection below, and not a socket.
void SelectsBesideAbove(Party& party) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) _exit(3);
  const int high = fcntl(ends[0], F_DUPFD_CLOEXEC, 1500);
  std::array<unsigned long, 32> in{};
  constexpr int kBits = sizeof(long) * 8;
  const auto word_of = [&](int fd) -> unsigned long& {
    return in[static_cast<std::size_t>(fd / kBits)];
  };
  const auto bit_of = [](int fd) { return 1UL << static_cast<unsigned>(fd % kBits); };
  const auto select_both = [&](const char* what, long seconds) {
    in.fill(0);
    for (const int fd : {party.fd, high}) word_of(fd) |= bit_of(fd);
    timeval wait{seconds, 20'000};
    party.Say(what,
              select(high + 1, reinterpret_cast<fd_set*>(in.data()), nullptr, nullptr, &wait));
    for (const int fd : {party.fd, high}) party.Say("in", (word_of(fd) & bit_of(fd)) != 0 ? 1 : 0);
  };
  select_both("nothing", 0);
  party.Say("write", write(ends[1], "x", 1));
  select_both("the pipe", kLong / 1000);
  party.Meet();
  party.Meet();
  select_both("both", kLong / 1000);
  char byte = 0;
  party.Say("read", read(high, &byte, 1));
  select_both("bytes", kLong / 1000);
  Receive(party, "recv", 1);
  close(high);
  select_both("closed", 0);
  for (const int fd : ends) close(fd);
  party.Meet();
}

// As many as there may be, with a set of the C library's type: nothing behind it is looked at.
void SelectsAllThereMayBe(Party& party) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  struct {
    fd_set in;
    std::array<unsigned long, 128> behind;
  } memory{};
  const auto select_all = [&](const char* what, long seconds) {
    FD_ZERO(&memory.in);
    FD_SET(party.fd, &memory.in);
    memory.behind.fill(~0UL);
    timeval wait{seconds, 20'000};
    party.Say(what, select(getdtablesize(), &memory.in, nullptr, nullptr, &wait));
    party.Say("in", FD_ISSET(party.fd, &memory.in) ? 1 : 0);
    party.Say("behind", std::ranges::count(memory.behind, ~0UL));
  };
  select_all("nothing", 0);
  party.Meet();
  party.Meet();
  select_all("bytes", kLong / 1000);
  Receive(party, "recv", 1);
  party.Meet();
}

// The waits themselves, without the C library's functions for them.
void WaitsByNumber(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 42;
  party.Say("add", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, party.fd, &event));
  party.Say("nothing", syscall(SYS_epoll_wait, set, &event, 1, 0));
  party.Meet();
  party.Meet();
  party.Say("epoll_wait", syscall(SYS_epoll_wait, set, &event, 1, kLong));
  party.Say("whose", static_cast<long>(event.data.u64));
  party.Say("epoll_pwait", syscall(SYS_epoll_pwait, set, &event, 1, kLong, nullptr, 8));
  party.Say("whose", static_cast<long>(event.data.u64));
  pollfd fd{party.fd, POLLIN, 0};
  const timespec wait{kLong / 1000, 0};
#ifdef SYS_poll
  party.Say("poll", syscall(SYS_poll, &fd, 1, kLong));
#endif
  party.Say("ppoll", syscall(SYS_ppoll, &fd, 1, &wait, nullptr, 8));
  fd_set in;
  FD_ZERO(&in);
  FD_SET(party.fd, &in);
  timespec rest = wait;
  party.Say("pselect6", syscall(SYS_pselect6, party.fd + 1, &in, nullptr, nullptr, &rest, nullptr));
#ifdef SYS_select
  timeval time{kLong / 1000, 0};
  party.Say("select", syscall(SYS_select, party.fd + 1, &in, nullptr, nullptr, &time));
#endif
  party.Say("epoll_pwait2", syscall(SYS_epoll_pwait2, set, &event, 1, &wait, nullptr, 8));
  Receive(party, "recv", 1);
  const timespec none{};
  party.Say("nothing", syscall(SYS_ppoll, &fd, 1, &none, nullptr, 8));
  close(set);
  party.Meet();
}

volatile sig_atomic_t told;
void Told(int) { told = 1; }
void IsTold(Party& party) {
  struct sigaction action {};
  action.sa_handler = Told;
  action.sa_flags = SA_RESTART;
  sigaction(SIGIO, &action, nullptr);
  const int on = 1;
  party.Say("F_SETOWN", fcntl(party.fd, F_SETOWN, getpid()));
  party.Say("FIOASYNC", ioctl(party.fd, FIOASYNC, &on));
  told = 0;
  party.Meet();
  party.Meet();
  party.Say("told", told);
  party.Meet();
}
void Tells(Party& party) {
  party.Meet();
  party.Say("send", send(party.fd, "x", 1, 0));
  party.Meet();
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kWaitScenarios = {
    {"poll", Polls, Feeds},
    {"poll, the other way", Feeds, Polls},
    {"select", Selects, Feeds},
    {"epoll, level", Levels, Feeds},
    {"epoll, in turns", TakesTurns, HasTurnsTaken},
    {"epoll, taken out of a set that is polled", TakesOutOfAPolledSet, HasTurnsTaken},
    {"epoll, a number that is another one's", LeavesANumber, FeedsANumber},
    {"epoll, another number", ChangesItsNumber, FeedsTwice},
    {"epoll, edge", Edges, Feeds},
    {"epoll, one shot", Shots, Feeds},
    {"epoll, two numbers", HasTwoNumbers, Feeds},
    {"epoll, nested", Nests, Feeds},
    {"epoll, slept for by another", SleepsInAnother, Feeds},
    {"epoll, slept for by poll", SleepsInPoll, Feeds},
    {"epoll, slept for by select", SleepsInSelect, Feeds},
    {"epoll, sets in sets", SleepsForSets, Feeds},
    {"epoll, spent before it moves", SpentBefore, FeedsSpent, 2},
    {"epoll, taken out before it leaves", LeavesTakenOut, GoesAwayFromSet},
    {"epoll, an heir's", LeavesAsHeir, GoesAwayFromHeir, 2},
    {"epoll, filled by a copy", FillsByCopy, TakesAll},
    // In front: the kernel looks as far as its table goes, which those behind make longer.
    {"select of all there may be", SelectsAllThereMayBe, Tells},
    {"select above 1,023", SelectsAbove, Tells},
    {"select beside what is above 1,023", SelectsBesideAbove, Tells},
    {"timeouts", TimesOut, LetsTimeOut},
    {"TCP_INQ before connect", ClientWithLength, ServesClientWithLength, 2},
    {"TCP_INQ of the listener", AsksListenerWithLength, ListenerWithLength, 2},
    {"TCP_INQ behind it", ClientThatWantsLength, ServesClientWithLength, 2},
    {"FIOASYNC", IsTold, Tells},
    {"waits by number", WaitsByNumber, Tells},
};

}  // namespace rdfs::sock
