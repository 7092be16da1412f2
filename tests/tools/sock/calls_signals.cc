// Scenarios of waits that signals end: whatever the library does meanwhile, a program gets them.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>
#include <utility>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

void Nothing(int) {}
void OnAlarm(int flags) {
  struct sigaction action {};
  action.sa_handler = Nothing;
  action.sa_flags = flags;
  sigaction(SIGVTALRM, &action, nullptr);
}

// Old, as are programs.
void Interrupts(int interrupts) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  siginterrupt(SIGVTALRM, interrupts);
#pragma GCC diagnostic pop
}

// A signal to the thread that sleeps, again and again until the call is over.
template <typename Call>
void Disturbed(Call call) {
  std::atomic<bool> over{false};
  const pthread_t sleeper = pthread_self();
  std::thread disturber([&] {
    while (!over) {
      pthread_kill(sleeper, SIGVTALRM);
      usleep(5'000);
    }
  });
  call();
  over = true;
  disturber.join();
}

void IsDisturbed(Party& party) {
  OnAlarm(0);
  Disturbed([&] {
    std::vector<char> bytes(100);
    // The signal may come before the call sleeps, but comes again.
    party.Say("recv", recv(party.fd, bytes.data(), bytes.size(), 0));
  });
  OnAlarm(SA_RESTART);
  Interrupts(1);
  Disturbed([&] {
    std::vector<char> bytes(100);
    party.Say("recv after siginterrupt", recv(party.fd, bytes.data(), bytes.size(), 0));
  });
  Interrupts(0);
  signal(SIGVTALRM, Nothing);
  Disturbed([&] {
    party.Meet();
    Receive(party, "recv", 100, MSG_WAITALL);
  });
  Disturbed([&] {
    pollfd fd{party.fd, POLLIN, 0};
    party.Say("poll", poll(&fd, 1, kLong));
  });
  party.Meet();
}
void LetsDisturb(Party& party) {
  party.Meet();
  usleep(30'000);  // so that the other end sleeps and is disturbed; nothing depends on it
  Send(party, 0, 100);
  party.Meet();
}

// --- the other calls that sleep

// Sends until a wait for room has found none: how many bytes, for the other end to take.
long Fill(Party& party) {
  const std::vector<char> bytes = Bytes(0, 50'000);
  long all = 0;
  pollfd fd{party.fd, POLLOUT, 0};
  do {
    ssize_t sent = 0;
    while ((sent = send(party.fd, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) all += sent;
  } while (poll(&fd, 1, 20) > 0);
  return all;
}

// SA_RESTART is not for waits, nor for reads and writes that have a timeout (signal(7)).
template <int kFlags>
void IsDisturbedElsewhere(Party& party) {
  OnAlarm(kFlags);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  const timespec time{kLong / 1000, 0};
  sigset_t none;
  sigemptyset(&none);
  pollfd fd{party.fd, POLLIN, 0};
  const auto in = [&] {
    static fd_set sockets;
    FD_ZERO(&sockets);
    FD_SET(party.fd, &sockets);
    return &sockets;
  };
  const auto disturbed = [&](const char* what, auto call) {
    Disturbed([&] { party.Say(what, call()); });
  };
  disturbed("epoll_wait", [&] { return epoll_wait(set, &event, 1, kLong); });
  disturbed("epoll_pwait", [&] { return epoll_pwait(set, &event, 1, kLong, &none); });
  disturbed("epoll_pwait2", [&] { return epoll_pwait2(set, &event, 1, &time, &none); });
  disturbed("ppoll", [&] { return ppoll(&fd, 1, &time, &none); });
  disturbed("select", [&] {
    timeval wait{kLong / 1000, 0};
    return select(party.fd + 1, in(), nullptr, nullptr, &wait);
  });
  disturbed("pselect", [&] { return pselect(party.fd + 1, in(), nullptr, nullptr, &time, &none); });
  const timeval wait{kLong / 1000, 0};
  const timeval for_ever{};
  setsockopt(party.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  std::vector<char> bytes(100);
  disturbed("recv with a timeout", [&] { return recv(party.fd, bytes.data(), 100, 0); });
  disturbed("read with a timeout", [&] { return read(party.fd, bytes.data(), 100); });
  setsockopt(party.fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
  party.Meet();
  party.Meet();
  disturbed("recv of more than there is",
            [&] { return recv(party.fd, bytes.data(), 100, MSG_WAITALL); });
  long all = Fill(party);
  // There may be a little more room by then.
  const auto when_full = [&](const char* what, auto call) {
    Disturbed([&] {
      ssize_t sent = 0;
      while ((sent = call()) > 0) all += sent;
      party.Say(what, sent);
    });
  };
  setsockopt(party.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
  when_full("send with a timeout", [&] { return send(party.fd, bytes.data(), 100, 0); });
  setsockopt(party.fd, SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof(for_ever));
  if ((kFlags & SA_RESTART) == 0) {
    when_full("send", [&] { return send(party.fd, bytes.data(), 100, 0); });
    when_full("write", [&] { return write(party.fd, bytes.data(), 100); });
  }
  party.Tell(all);
  if ((kFlags & SA_RESTART) != 0) {
    disturbed("send", [&] { return send(party.fd, bytes.data(), 100, 0); });
    party.Meet();
    Disturbed([&] { Receive(party, "recv", 50, MSG_WAITALL); });
  }
  close(set);
  party.Meet();
}
template <int kFlags>
void LetsDisturbElsewhere(Party& party) {
  party.Meet();
  Send(party, 0, 40);
  party.Meet();
  std::vector<char> bytes(static_cast<std::size_t>(party.Hear()));
  usleep(30'000);  // so that the other end sleeps and is disturbed; nothing depends on it
  party.Say("all of it",
            recv(party.fd, bytes.data(), bytes.size(), MSG_WAITALL) == std::ssize(bytes) ? 1 : 0);
  if ((kFlags & SA_RESTART) != 0) {
    Receive(party, "recv", 100, MSG_WAITALL);
    party.Meet();
    usleep(30'000);
    Send(party, 0, 50);
  }
  party.Meet();
}

// --- rings that lie in a bell: they must neither wake a wait that does not take them, again and
// again, nor keep signals out of it

void Drain(Party& party) {
  std::vector<char> bytes(static_cast<std::size_t>(party.Hear()));
  party.Say("all of it",
            recv(party.fd, bytes.data(), bytes.size(), MSG_WAITALL) == std::ssize(bytes) ? 1 : 0);
  party.Meet();
}

// Asked for when none were there, and then found without a wait.
void GetRung(Party& party) {
  SayPoll(party, "nothing", POLLIN, 20);
  party.Meet();
  party.Meet();
  Receive(party, "recv", 100, MSG_WAITALL);
}
void Rings(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
}

void WaitInSet(Party& party, int set, const char* what) {
  epoll_event event{};
  party.Say(what, epoll_wait(set, &event, 1, kLong));
}

void IgnoresRings(Party& party) {
  OnAlarm(0);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  const auto control = [&](const char* what, int operation, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = 7}};
    party.Say(what, epoll_ctl(set, operation, party.fd, &event));
  };
  control("add", EPOLL_CTL_ADD, EPOLLIN);
  GetRung(party);
  control("not for bytes", EPOLL_CTL_MOD, EPOLLRDHUP);
  Disturbed([&] { WaitInSet(party, set, "not for bytes"); });
  control("for bytes", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
  GetRung(party);
  control("again", EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
  party.Meet();
  party.Meet();
  WaitInSet(party, set, "one shot");
  Disturbed([&] { WaitInSet(party, set, "spent"); });
  Receive(party, "recv", 100, MSG_WAITALL);
  control("by edges", EPOLL_CTL_MOD, EPOLLOUT | EPOLLET);
  WaitInSet(party, set, "room");
  party.Tell(Fill(party));
  party.Meet();
  WaitInSet(party, set, "room again");
  Disturbed([&] { WaitInSet(party, set, "said already"); });
  control("for bytes", EPOLL_CTL_MOD, EPOLLIN);
  party.Meet();
  WaitInSet(party, set, "heard after all");
  Receive(party, "recv", 100, MSG_WAITALL);
  close(set);
}
void RingsOften(Party& party) {
  Rings(party);
  Rings(party);
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  Drain(party);
  party.Meet();
  Send(party, 0, 100);
}

void Leave() {
  sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program{1, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(1);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) _exit(2);
}

// `call` takes a while, and sleeps.
template <typename Call>
void Sleeps(Party& party, const char* what, Call call) {
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto before = used();
  call();
  const int error = errno;
  party.Say(what, used() - before < std::chrono::milliseconds(50) ? 1 : 0);
  errno = error;
}

// Starts a child that takes the connection back to TCP and dies a moment later.
pid_t StartLeaver(Party& party) {
  int left[2];
  if (pipe2(left, O_CLOEXEC) != 0) _exit(3);
  const pid_t child = fork();
  char byte = 'x';
  if (child == 0) {
    Leave();
    if (write(left[1], &byte, 1) != 1) _exit(3);
    usleep(100'000);  // so that the parent waits; nothing depends on it
    _exit(0);
  }
  party.Say("it left", read(left[0], &byte, 1));
  close(left[0]);
  close(left[1]);
  party.Meet();
  return child;
}

// As sshd does: the child's death is heard of only in ppoll.
void HearsOfDeath(Party& party) {
  signal(SIGCHLD, Nothing);
  sigset_t child_only;
  sigset_t before;
  sigemptyset(&child_only);
  sigaddset(&child_only, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_only, &before);
  const pid_t child = StartLeaver(party);
  Sleeps(party, "slept", [&] {
    const timespec wait{kLong / 1000, 0};
    pollfd fd{party.fd, POLLIN, 0};
    party.Say("ppoll", ppoll(&fd, 1, &wait, &before));
  });
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGCHLD, SIG_DFL);
  party.Say("the child is dead", waitpid(child, nullptr, 0) == child ? 1 : 0);
}
void WaitsBeside(Party& party) {
  const pid_t child = StartLeaver(party);
  const timeval wait{0, 100'000};
  setsockopt(party.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  Sleeps(party, "slept", [&] {
    char byte = 0;
    party.Say("recv", recv(party.fd, &byte, 1, 0));
  });
  const timeval none{};
  setsockopt(party.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
  party.Say("the child is dead", waitpid(child, nullptr, 0) == child ? 1 : 0);
}

// What lies in the bells of an end that a child took back to TCP keeps the parent neither awake nor
// deaf.
template <void (*kWait)(Party&)>
void OutlivesItsChild(Party& party) {
  party.Tell(Fill(party));
  party.Meet();
  GetRung(party);
  Send(party, 0, 100);
  kWait(party);
  const long all = Fill(party);
  Sleeps(party, "slept", [&] {
    pollfd fd{party.fd, POLLOUT, 0};
    (void)poll(&fd, 1, 100);
  });
  party.Tell(all);
  party.Meet();
  party.Meet();
  Receive(party, "recv", 100, MSG_WAITALL);
}
void FeedsAndRings(Party& party) {
  Drain(party);
  Rings(party);
  party.Meet();
  party.Say("sockatmark", sockatmark(party.fd));  // goes back to TCP itself, with bytes unread
  Receive(party, "recv", 100, MSG_WAITALL);
  Drain(party);
  party.Meet();
  Send(party, 0, 100);
}

// --- one that comes while the library looks whether the other end has it, too

constexpr int kMoments = 60;
int g_ends = -1;
long g_ended = 0;
void EndsIt(int) { g_ended += shutdown(std::exchange(g_ends, -1), SHUT_WR) + 1; }
void EndsInAHandler(Party& party) {
  signal(SIGALRM, EndsIt);
  for (int moment = 1; moment <= kMoments; ++moment) {
    const int fd = Connect(party.beside(), nullptr);
    char byte = 0;
    for (int call = 1; call < 8; ++call) (void)recv(fd, &byte, 1, MSG_DONTWAIT);
    g_ends = fd;
    const itimerval soon{.it_interval = {0, 0}, .it_value = {0, 2 * moment}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    (void)recv(fd, &byte, 1, MSG_DONTWAIT);
    while (g_ended < moment) usleep(100);
    party.Say("send", send(fd, &byte, 1, MSG_NOSIGNAL));
    close(fd);
  }
  signal(SIGALRM, SIG_DFL);
  party.Meet();
}
void IsEnded(Party& party) {
  for (int moment = 1; moment <= kMoments; ++moment) {
    const int fd = Accept(party.beside(), nullptr);
    char byte = 0;
    party.Say("the end", recv(fd, &byte, 1, 0));
    close(fd);
  }
  party.Meet();
}

// --- a handler that forks in the middle of a call: that goes on in both processes

pid_t g_forked = -1;
std::atomic<int> g_ticks{0};
void Ticks(int) {
  if (++g_ticks > 400) _exit(9);  // of 50 ms: it hangs
}
void ForksOnce(int) {
  if (g_forked >= 0) return;
  const int saved = errno;
  g_forked = fork();
  if (g_forked == 0) {
    // The signal may have come before the call, and nobody else disturbs it here.
    struct sigaction action {};
    action.sa_handler = Ticks;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often{.it_interval = {0, 50'000}, .it_value = {0, 50'000}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  errno = saved;
}
void ForksInAHandler(Party& party) {
  g_forked = -1;
  struct sigaction action {};
  action.sa_handler = ForksOnce;
  sigaction(SIGVTALRM, &action, nullptr);
  const pid_t self = getpid();
  const pid_t disturber = fork();
  while (disturber == 0) {
    usleep(50'000);
    if (getppid() != self || kill(self, SIGVTALRM) != 0) _exit(0);
  }
  char byte = 0;
  const ssize_t got = recv(party.fd, &byte, 1, 0);
  const bool interrupted = got == -1 && errno == EINTR;
  if (g_forked == 0) {
    const bool nothing = recv(party.fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    const bool sent = send(party.fd, "x", 1, MSG_NOSIGNAL) == 1;
    _exit(interrupted && nothing && sent && close(party.fd) == 0 ? 0 : 1);
  }
  kill(disturber, SIGKILL);
  waitpid(disturber, nullptr, 0);
  party.Say("interrupted", interrupted ? 1 : 0);
  int status = -1;
  party.Say("the child", waitpid(g_forked, &status, 0) == g_forked ? 1 : 0);
  party.Say("its status", status);
  Send(party, 0, 100);
  party.Meet();
}
void HearsBoth(Party& party) {
  Receive(party, "recv", 101, MSG_WAITALL);
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kSignalScenarios = {
    {"signals", IsDisturbed, LetsDisturb},
    {"signals elsewhere", IsDisturbedElsewhere<0>, LetsDisturbElsewhere<0>},
    {"signals elsewhere, restarted", IsDisturbedElsewhere<SA_RESTART>,
     LetsDisturbElsewhere<SA_RESTART>},
    {"rings that nobody takes", IgnoresRings, RingsOften},
    {"rings that nobody takes, the other way", RingsOften, IgnoresRings},
    {"a child that leaves", OutlivesItsChild<HearsOfDeath>, FeedsAndRings},
    {"a child that leaves, the other way", FeedsAndRings, OutlivesItsChild<HearsOfDeath>},
    {"an end in a handler", EndsInAHandler, IsEnded},
    {"a handler that forks", ForksInAHandler, HearsBoth},
    {"a child that leaves beside recv", OutlivesItsChild<WaitsBeside>, FeedsAndRings},
};

}  // namespace rdfs::sock
