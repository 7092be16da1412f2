// Scenarios of how connections begin and end: connect that does not wait, or fails, or is done
// twice; what is told at each step of the end; SO_LINGER; numbers that are closed in a set.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

void SayError(Party& party) {
  int error = -1;
  socklen_t size = sizeof(error);
  party.Say("SO_ERROR", getsockopt(party.fd, SOL_SOCKET, SO_ERROR, &error, &size));
  party.Say("it says", error);
}
// What an epoll set says; nothing of what it does not tell.
void SayWait(Party& party, const char* what, int set, int timeout) {
  epoll_event told{};
  const int count = epoll_wait(set, &told, 1, timeout);
  party.Say(what, count);
  if (count != 1) return;
  party.Say("events", told.events);
  party.Say("data", static_cast<long>(told.data.u64));
}
// All that poll and a new epoll set say now: the set within some waits, for while there are bytes
// in memory not each of them asks the kernel.
void SayState(Party& party, const char* what) {
  SayPoll(party, what, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM, 0);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, .data = {.u64 = 3}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  constexpr int kWaits = 20;
  std::uint32_t events = 0;
  for (int i = 0; i < kWaits; ++i) {
    if (epoll_wait(set, &event, 1, 0) == 1) events |= event.events;
  }
  party.Say("events", events);
  close(set);
}

// --- each step of the end, seen from both sides

void EndsFirst(Party& party) {
  SayState(party, "before");
  party.Meet();
  Send(party, 0, 100);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  SayState(party, "its half is over");
  party.Say("shutdown again", shutdown(party.fd, SHUT_WR));
  Send(party, 0, 10);
  party.Meet();
  party.Meet();
  SayState(party, "both are over, with bytes unread");
  Receive(party, "recv", 50);
  SayState(party, "with fewer of them");
  Receive(party, "recv", 100);
  SayState(party, "without");
  Receive(party, "the end", 10);
  party.Say("SHUT_RD", shutdown(party.fd, SHUT_RD));
  party.Say("SHUT_RDWR", shutdown(party.fd, SHUT_RDWR));
  party.Meet();
}
void EndsSecond(Party& party) {
  SayState(party, "before");
  party.Meet();
  party.Meet();
  SayState(party, "the other half is over, with bytes unread");
  Receive(party, "recv", 60);
  Receive(party, "recv", 60);
  SayState(party, "without");
  Receive(party, "the end", 10);
  Send(party, 0, 100);
  party.Say("shutdown", shutdown(party.fd, SHUT_RDWR));
  SayState(party, "both are over");
  party.Say("shutdown again", shutdown(party.fd, SHUT_WR));
  party.Say("SHUT_RD", shutdown(party.fd, SHUT_RD));
  SayError(party);
  party.Meet();
  Receive(party, "the end", 10);
  Send(party, 0, 10);
  party.Meet();
}

// Nobody reads any more, which the other end does not hear of.
void StopsReading(Party& party) {
  party.Meet();
  party.Say("SHUT_RD", shutdown(party.fd, SHUT_RD));
  SayState(party, "shut, with bytes unread");
  Receive(party, "recv", 100);
  SayState(party, "without");
  Receive(party, "recv of none", 100);
  party.Meet();
  party.Meet();
  SayState(party, "more has come");
  Receive(party, "recv", 100);
  Receive(party, "recv of none", 100, MSG_DONTWAIT);
  Send(party, 0, 30);
  party.Meet();
}
void GoesOn(Party& party) {
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
  SayState(party, "as ever");
  Send(party, 100, 50);
  party.Meet();
  Receive(party, "recv", 30, MSG_WAITALL);
  party.Meet();
}

// --- SO_LINGER

template <int kSeconds>
void Lingers(Party& party) {
  const linger time{.l_onoff = 1, .l_linger = kSeconds};
  party.Say("SO_LINGER", setsockopt(party.fd, SOL_SOCKET, SO_LINGER, &time, sizeof(time)));
  linger now{};
  socklen_t size = sizeof(now);
  party.Say("SO_LINGER", getsockopt(party.fd, SOL_SOCKET, SO_LINGER, &now, &size));
  party.Say("its time", now.l_linger);
}
// With bytes that nobody has read.
void ResetsBehindBytes(Party& party) {
  party.Meet();
  Send(party, 0, 1000);
  Lingers<0>(party);
  party.Say("close", close(std::exchange(party.fd, -1)));
  party.Meet();
  party.Meet();
}
void ReadsBeforeReset(Party& party) {
  party.Meet();
  party.Meet();
  SayState(party, "reset, with bytes unread");
  Receive(party, "recv", 400);
  int queued = -1;
  party.Say("FIONREAD", ioctl(party.fd, FIONREAD, &queued));
  party.Say("queued", queued);
  Receive(party, "recv", 1000);
  Receive(party, "recv", 10);
  Receive(party, "recv again", 10);
  Send(party, 0, 10);
  party.Meet();
}
void WritesBeforeItReads(Party& party) {
  party.Meet();
  party.Meet();
  usleep(30'000);  // who only sends looks for the other end now and then
  Send(party, 0, 10);
  Send(party, 0, 10);
  Receive(party, "recv", 2000);
  Receive(party, "recv", 10);
  party.Meet();
}
// Everything was read, and answered; and the other end, which has not looked, sends once more.
void ClosesBehindItsAnswer(Party& party) {
  party.Meet();
  Receive(party, "recv", 100);
  Send(party, 0, 50);
  party.Say("close", close(std::exchange(party.fd, -1)));
  party.Meet();
  party.Meet();
}
void SendsOnceMore(Party& party) {
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
  Send(party, 100, 10);
  Receive(party, "the answer", 100);
  Receive(party, "the end", 10);
  Send(party, 110, 10);
  party.Meet();
}
// More than there is room for is under way.
void ClosesWhenFull(Party& party) {
  Lingers<10>(party);
  const std::vector<char> bytes = Bytes(0, 10'000'000);
  std::size_t all = 0;
  pollfd fd{party.fd, POLLOUT, 0};
  do {
    ssize_t sent = 0;
    while ((sent = send(party.fd, bytes.data() + all, bytes.size() - all, MSG_DONTWAIT)) > 0) {
      all += static_cast<std::size_t>(sent);
    }
  } while (poll(&fd, 1, 20) > 0 && all < bytes.size());
  party.Tell(static_cast<long>(all));
  party.Say("close", close(std::exchange(party.fd, -1)));
  party.Meet();
}
void ReadsToTheEnd(Party& party) {
  const auto count = static_cast<std::size_t>(party.Hear());
  usleep(30'000);  // so that the other end waits in close; nothing depends on it
  std::vector<char> bytes(count);
  party.Say("all of it", recv(party.fd, bytes.data(), count, MSG_WAITALL) == std::ssize(bytes));
  party.Say("as it was", bytes == Bytes(0, count) ? 1 : 0);
  Receive(party, "the end", 10);
  party.Meet();
}

// --- connect

sockaddr_in Loopback(long port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
int ConnectTo(int fd, const sockaddr_in& address) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}
// Where nobody listens, as long as it is open.
class Nobody {
 public:
  Nobody() {
    sockaddr_in any = Loopback(0);
    socklen_t size = sizeof(any);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&any), size) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      _exit(3);
    }
  }
  ~Nobody() { close(fd_); }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
  sockaddr_in address{};

 private:
  int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};
void Talk(Party& party, bool first) {
  WarmUp(party.fd, first);
  if (first) Send(party, 0, 500);
  Receive(party, "recv", 500, MSG_WAITALL);
  if (!first) Send(party, 0, 500);
}

// In a set since before it is connected, which epoll tells of as hung up until then.
void ConnectsLater(Party& party) {
  const sockaddr_in there = Loopback(party.Hear());
  const int other =
      std::exchange(party.fd, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = 5}};
  const auto wait = [&](const char* what, int timeout) { SayWait(party, what, set, timeout); };
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  wait("not connected", 0);
  party.Say("connect", ConnectTo(party.fd, there));
  SayPoll(party, "poll", POLLOUT, kLong);
  wait("connected", kLong);
  SayError(party);
  party.Say("connect again", ConnectTo(party.fd, there));
  party.Say("and again", ConnectTo(party.fd, there));
  party.Say("blocking", fcntl(party.fd, F_SETFL, 0));
  Talk(party, true);
  wait("what was there", 0);
  party.Meet();
  party.Meet();
  wait("bytes", kLong);
  Receive(party, "recv", 100);
  wait("no more", 20);
  close(set);
  close(std::exchange(party.fd, other));
  party.Meet();
}
// `party.fd` is what has come.
int Accepts(Party& party) { return std::exchange(party.fd, Accept(party.beside(), nullptr)); }
void IsConnectedLater(Party& party) {
  const int other = Accepts(party);
  Talk(party, false);
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  Receive(party, "the end", 10);
  close(std::exchange(party.fd, other));
  party.Meet();
}

// The same socket, where nobody is and then where somebody is.
template <int kMode>
void IsRefused(Party& party) {
  const Nobody nobody;
  const int other = std::exchange(party.fd, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | kMode, 0));
  party.Say("connect", ConnectTo(party.fd, nobody.address));
  SayPoll(party, "poll", POLLIN | POLLOUT | POLLRDHUP, kMode == 0 ? 0 : kLong);
  SayError(party);
  SayError(party);
  Send(party, 0, 10);
  Receive(party, "recv", 10);
  party.Say("blocking", fcntl(party.fd, F_SETFL, 0));
  party.Say("connect again", ConnectTo(party.fd, nobody.address));
  party.Say("connect to somebody", ConnectTo(party.fd, Loopback(party.Hear())));
  Talk(party, true);
  close(std::exchange(party.fd, other));
  party.Meet();
}
// The end is a reset, and what comes then is another connection of the same socket.
void ConnectsAnew(Party& party) {
  const int other = std::exchange(party.fd, Connect(party.beside(), nullptr));
  Talk(party, true);
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  party.Say("AF_UNSPEC", connect(party.fd, &none, sizeof(none)));
  party.Meet();
  Send(party, 0, 10);
  Receive(party, "recv", 10);
  party.Say("connect", ConnectTo(party.fd, Loopback(party.Hear())));
  Talk(party, true);
  close(std::exchange(party.fd, other));
  party.Meet();
}
void AcceptsAnew(Party& party) {
  const int other = Accepts(party);
  Talk(party, false);
  party.Meet();
  Receive(party, "reset", 10);
  close(std::exchange(party.fd, other));
  (void)Accepts(party);
  Talk(party, false);
  close(std::exchange(party.fd, other));
  party.Meet();
}
void AcceptsAndTalks(Party& party) {
  const int other = Accepts(party);
  Talk(party, false);
  close(std::exchange(party.fd, other));
  party.Meet();
}

// --- numbers that are closed in a set

// By their last number, and the next connection takes it; by one of two, which the set goes on
// with.
void ClosesInSet(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  const auto add = [&](const char* what, int fd, std::uint64_t data) {
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = data}};
    party.Say(what, epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
  };
  const auto wait = [&](const char* what, int timeout) { SayWait(party, what, set, timeout); };
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  add("add", fd, 1);
  party.Meet();
  wait("bytes", kLong);
  party.Say("close", close(fd));
  wait("not there", 0);
  epoll_event event{};
  party.Say("delete", epoll_ctl(set, EPOLL_CTL_DEL, fd, &event));
  const int next = Connect(party.beside(), nullptr);
  party.Say("its number", next == fd ? 1 : 0);
  party.Say("delete", epoll_ctl(set, EPOLL_CTL_DEL, next, &event));
  add("add", next, 2);
  WarmUp(next, true);
  wait("nothing", 0);
  party.Meet();
  wait("bytes", kLong);
  std::array<char, 100> bytes{};
  party.Say("recv", recv(next, bytes.data(), bytes.size(), 0));
  wait("nothing", 20);
  const int copy = dup(next);
  party.Say("close one of two", close(next));
  party.Meet();
  party.Meet();
  wait("by the number that is closed", kLong);
  party.Say("recv", recv(copy, bytes.data(), bytes.size(), 0));
  wait("nothing", 20);
  party.Say("close", close(copy));
  wait("nothing", 0);
  close(set);
  party.Meet();
}
void IsClosedInSet(Party& party) {
  const int other = std::exchange(party.fd, Accept(party.beside(), nullptr));
  WarmUp(party.fd, false);
  Send(party, 0, 10);
  party.Meet();
  const int next = Accept(party.beside(), nullptr);
  close(std::exchange(party.fd, next));
  WarmUp(party.fd, false);
  party.Meet();
  Send(party, 0, 10);
  party.Meet();
  Send(party, 10, 10);
  party.Meet();
  Receive(party, "the end", 10);
  close(std::exchange(party.fd, other));
  party.Meet();
}

// By a child, for whom that is a matter of its own numbers alone.
void ClosesInChildsSet(Party& party) {
  const int fd = Connect(party.beside(), nullptr);
  const int copy = dup(fd);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
  const pid_t child = fork();
  if (child == 0) _exit(close(fd) == 0 && close(copy) == 0 ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("the child's status", status);
  const int other = std::exchange(party.fd, fd);
  WarmUp(fd, true);
  party.Meet();
  SayWait(party, "bytes", set, kLong);
  Receive(party, "recv", 10);
  SayWait(party, "nothing", set, 20);
  for (const int open : {set, copy, std::exchange(party.fd, other)}) close(open);
  party.Meet();
}
void AcceptsAndSends(Party& party) {
  const int other = std::exchange(party.fd, Accept(party.beside(), nullptr));
  WarmUp(party.fd, false);
  Send(party, 0, 10);
  party.Meet();
  Receive(party, "the end", 10);
  close(std::exchange(party.fd, other));
  party.Meet();
}

// A set from before fork, which the child alone uses: daemons have such.
int Room(int set) {
  epoll_event told{};
  for (int i = 0; i < 20; ++i) {
    if (epoll_wait(set, &told, 1, kLong) != 1) return -1;
    if ((told.events & EPOLLOUT) != 0) return static_cast<int>(told.data.u64);
  }
  return -2;
}
void InheritsSet(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = Connect(party.beside(), nullptr);
    const int copy = dup(fd);
    WarmUp(fd, true);
    epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.u64 = 5}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0 || Room(set) != 5) _exit(1);
    // Now by a number that is nobody's.
    if (close(fd) != 0 || Room(set) != 5) _exit(2);
    if (write(copy, Bytes(0, 10).data(), 10) != 10) _exit(3);
    _exit(close(copy));
  }
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("the child's status", status);
  party.Meet();
}
void AcceptsFromChild(Party& party) {
  const int other = std::exchange(party.fd, Accept(party.beside(), nullptr));
  WarmUp(party.fd, false);
  Receive(party, "recv", 10, MSG_WAITALL);
  Receive(party, "the end", 10);
  close(std::exchange(party.fd, other));
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kEndScenarios = {
    {"ends, step by step", EndsFirst, EndsSecond},
    {"ends, step by step, the other way", EndsSecond, EndsFirst},
    {"reads no more", StopsReading, GoesOn},
    {"reads no more, the other way", GoesOn, StopsReading},
    {"reset behind bytes", ReadsBeforeReset, ResetsBehindBytes},
    {"reset behind bytes, found by send", WritesBeforeItReads, ResetsBehindBytes},
    {"closed behind its answer", SendsOnceMore, ClosesBehindItsAnswer},
    {"lingers", ClosesWhenFull, ReadsToTheEnd},
    {"connect that does not wait", ConnectsLater, IsConnectedLater, 2},
    {"connect that fails", IsRefused<0>, AcceptsAndTalks, 2},
    {"connect that fails later", IsRefused<SOCK_NONBLOCK>, AcceptsAndTalks, 2},
    {"connect anew", ConnectsAnew, AcceptsAnew, 2},
    {"closed in a set", ClosesInSet, IsClosedInSet, 3},
    {"closed in a child's set", ClosesInChildsSet, AcceptsAndSends, 2},
    {"a set from before fork", InheritsSet, AcceptsFromChild, 2},
};

}  // namespace rdfs::sock
