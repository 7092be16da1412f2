// Scenarios of urgent bytes (MSG_OOB): what tells of them, where the mark is, and what comes of
// everything else that is under way.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <array>
#include <cerrno>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

void Send(Party& party, const char* what, std::size_t from, std::size_t count, int flags = 0) {
  const std::vector<char> bytes = Bytes(from, count);
  party.Say(what, send(party.fd, bytes.data(), bytes.size(), flags));
}
void SayPoll(Party& party, const char* what, int timeout) {
  pollfd fd{party.fd, POLLIN | POLLPRI | POLLRDBAND | POLLRDHUP, 0};
  party.Say(what, poll(&fd, 1, timeout));
  party.Say("revents", fd.revents);
}
void SaySelect(Party& party, const char* what) {
  fd_set in;
  fd_set except;
  FD_ZERO(&in);
  FD_ZERO(&except);
  FD_SET(party.fd, &in);
  FD_SET(party.fd, &except);
  timeval wait{};
  party.Say(what, select(party.fd + 1, &in, nullptr, &except, &wait));
  party.Say("in", FD_ISSET(party.fd, &in) ? 1 : 0);
  party.Say("except", FD_ISSET(party.fd, &except) ? 1 : 0);
}

// 100 bytes, the urgent one, 50 more.
void SendsUrgent(Party& party) {
  party.Meet();
  Send(party, "send", 0, 100);
  Send(party, "urgent", 100, 1, MSG_OOB);
  Send(party, "send", 101, 50);
  party.Meet();
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Receive(party, "answer", 10, MSG_WAITALL);
  party.Meet();
}

volatile sig_atomic_t urgent_signals;
void CountUrgent(int) { urgent_signals = urgent_signals + 1; }

// Told by everything that tells.
void IsTold(Party& party) {
  urgent_signals = 0;
  signal(SIGURG, CountUrgent);
  sigset_t urgent;
  sigemptyset(&urgent);
  sigaddset(&urgent, SIGURG);
  sigprocmask(SIG_BLOCK, &urgent, nullptr);  // it would end waits
  party.Say("F_SETOWN", fcntl(party.fd, F_SETOWN, getpid()));
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLPRI | EPOLLRDBAND, .data = {.u64 = 7}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  const auto wait = [&](const char* what, int timeout) {
    epoll_event got{};
    const int told = epoll_wait(set, &got, 1, timeout);
    party.Say(what, told);
    if (told == 1) party.Say("events", got.events);
  };
  Receive(party, "nothing urgent", 1, MSG_OOB);
  wait("nothing", 0);
  SayPoll(party, "nothing", 0);
  party.Meet();
  wait("epoll_wait", kLong);
  SayPoll(party, "poll", kLong);
  party.Meet();
  sigprocmask(SIG_UNBLOCK, &urgent, nullptr);
  party.Say("a signal", urgent_signals > 0 ? 1 : 0);
  SayPoll(party, "poll", kLong);
  SaySelect(party, "select");
  Receive(party, "up to the mark", 60);
  Receive(party, "up to the mark", 300);
  Receive(party, "a look at the urgent one", 1, MSG_OOB | MSG_PEEK);
  Receive(party, "the urgent one", 1, MSG_OOB);
  Receive(party, "again", 1, MSG_OOB);
  SayPoll(party, "poll", kLong);
  wait("epoll_wait", 0);
  Receive(party, "behind it", 300);
  SaySelect(party, "select");
  party.Meet();
  SayPoll(party, "the end", kLong);
  Receive(party, "the end", 10);
  Send(party, "answer", 0, 10);
  close(set);
  signal(SIGURG, SIG_DFL);
  party.Meet();
}

void FindsMark(Party& party) {
  party.Say("sockatmark", sockatmark(party.fd));
  party.Meet();
  party.Meet();
  party.Say("sockatmark", sockatmark(party.fd));
  Receive(party, "up to the mark", 300);
  party.Say("sockatmark", sockatmark(party.fd));
  Receive(party, "behind it", 300);
  party.Say("sockatmark", sockatmark(party.fd));
  Receive(party, "too late", 1, MSG_OOB);
  party.Meet();
  Receive(party, "the end", 10);
  Send(party, "answer", 0, 10);
  party.Meet();
}

void TakesInLine(Party& party) {
  const int on = 1;
  party.Say("SO_OOBINLINE", setsockopt(party.fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
  party.Meet();
  party.Meet();
  SayPoll(party, "poll", kLong);
  Receive(party, "not by itself", 1, MSG_OOB);
  Receive(party, "up to the mark", 300);
  party.Say("sockatmark", sockatmark(party.fd));
  Receive(party, "the urgent one and what follows", 300);
  party.Meet();
  Receive(party, "the end", 10);
  Send(party, "answer", 0, 10);
  party.Meet();
}

template <int kFlags>
void WaitsForAll(Party& party) {
  party.Meet();
  party.Meet();
  Receive(party, "a look at all", 300, MSG_WAITALL | MSG_PEEK | kFlags);
  Receive(party, "all up to the mark", 300, MSG_WAITALL | kFlags);
  Receive(party, "the urgent one", 1, MSG_OOB);
  party.Meet();
  Receive(party, "all behind it", 300, MSG_WAITALL | kFlags);
  Receive(party, "the end", 10);
  Send(party, "answer", 0, 10);
  party.Meet();
}

// The first is not urgent any more when the second comes.
void SendsTwo(Party& party) {
  Send(party, "send", 0, 10);
  Send(party, "urgent", 10, 1, MSG_OOB);
  Send(party, "send", 11, 10);
  Send(party, "the last of them is urgent", 21, 3, MSG_OOB);
  party.Meet();
  Receive(party, "answer", 10, MSG_WAITALL);
  Send(party, "send", 24, 10);
  party.Meet();
}
void ReceivesTwo(Party& party) {
  party.Meet();
  // In how many pieces is TCP's matter.
  std::size_t all = 0;
  std::array<char, 23> bytes{};
  for (ssize_t got = 1; all < bytes.size() && got > 0;) {
    got = recv(party.fd, bytes.data() + all, bytes.size() - all, 0);
    if (got > 0) all += static_cast<std::size_t>(got);
  }
  party.Say("before the second", static_cast<long>(all));
  Receive(party, "the second", 1, MSG_OOB);
  Send(party, "answer", 0, 10);
  Receive(party, "behind it", 10, MSG_WAITALL);
  party.Meet();
}

// What the other end has sent meanwhile.
void ReceivesItToo(Party& party) {
  Receive(party, "up to the mark", 5000, MSG_WAITALL);
  Receive(party, "the urgent one", 1, MSG_OOB);
  Receive(party, "behind it", 300, MSG_WAITALL);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Receive(party, "the end", 10);
  party.Meet();
}
// Each has bytes of the other's unread when it sends.
void BothSend(Party& party) {
  Send(party, "send", 0, 700);
  party.Meet();
  Send(party, "urgent", 700, 1, MSG_OOB);
  party.Meet();
  Send(party, "send", 701, 300);
  party.Meet();
  ReceivesItToo(party);
}
void SendsSecond(Party& party) {
  Send(party, "send", 0, 700);
  party.Meet();
  party.Meet();
  Send(party, "urgent", 700, 1, MSG_OOB);
  Send(party, "send", 701, 300);
  party.Meet();
  ReceivesItToo(party);
}

}  // namespace

const std::vector<Scenario> kUrgentScenarios = {
    {"urgent, told of", SendsUrgent, IsTold},
    {"urgent, told of, the other way", IsTold, SendsUrgent},
    {"urgent, by its mark", SendsUrgent, FindsMark},
    {"urgent, in line", SendsUrgent, TakesInLine},
    {"urgent, waiting for all", SendsUrgent, WaitsForAll<0>},
    {"urgent, waiting for all, which nobody sees", SendsUrgent, WaitsForAll<MSG_TRUNC>},
    {"urgent, two of them", SendsTwo, ReceivesTwo},
    {"urgent, both ways", BothSend, SendsSecond, 1, true},
    {"urgent, both ways, the other way", SendsSecond, BothSend, 1, true},
};

}  // namespace rdfs::sock
