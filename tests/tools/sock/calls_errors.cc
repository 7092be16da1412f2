// Scenarios of connections that fail: which call says so, with what errno, and whether a signal
// comes with it.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

void Send(Party& party, const char* what, int flags = 0) {
  party.Say(what, send(party.fd, "0123456789", 10, flags));
}
void Recv(Party& party, const char* what, int flags = 0) {
  std::array<char, 100> bytes{};
  party.Say(what, recv(party.fd, bytes.data(), bytes.size(), flags));
}
void SayError(Party& party) {
  int error = -1;
  socklen_t size = sizeof(error);
  party.Say("SO_ERROR", getsockopt(party.fd, SOL_SOCKET, SO_ERROR, &error, &size));
  party.Say("it says", error);
}

volatile sig_atomic_t pipe_signals;
void CountSignal(int) { pipe_signals = pipe_signals + 1; }

// --- a connection that the other end resets

void Reset(Party& party) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  party.Say("SO_LINGER", setsockopt(party.fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)));
  party.Say("close", close(party.fd));
  party.fd = -1;
  party.Meet();
  party.Meet();
}
void Resets(Party& party) {
  party.Meet();
  party.Meet();
  Reset(party);
}
// An urgent byte keeps the way to the other end on TCP.
void ResetsOverTcp(Party& party) {
  Send(party, "urgent", MSG_OOB);
  party.Meet();
  party.Meet();
  Reset(party);
}

void PollSees(Party& party) { SayPoll(party, "poll", POLLIN, kLong); }
void PollOfRoomSees(Party& party) { SayPoll(party, "poll", POLLIN | POLLOUT | POLLRDHUP, kLong); }
void EpollSees(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  std::array<epoll_event, 8> events{};
  party.Say("epoll_wait", epoll_wait(set, events.data(), 8, kLong));
  party.Say("events", events[0].events);
  close(set);
}
void NobodySees(Party&) {}
// Who only sends looks for the other end now and then.
void TimeGoesBy(Party&) { usleep(30'000); }

template <void (*kSees)(Party&), void (*kTells)(Party&)>
void FindsReset(Party& party) {
  pipe_signals = 0;
  signal(SIGPIPE, CountSignal);
  party.Meet();
  Recv(party, "recv", MSG_DONTWAIT);
  party.Meet();
  party.Meet();
  kSees(party);
  kTells(party);
  Send(party, "send");
  Recv(party, "recv");
  Send(party, "send again", MSG_NOSIGNAL);
  party.Say("signals", pipe_signals);
  signal(SIGPIPE, SIG_IGN);
  party.Meet();
}
void ReceiveTells(Party& party) { Recv(party, "recv first"); }

// --- an end that dies with bytes unread

void Dies(Party& party) {
  party.Meet();
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) _exit(3);
  const pid_t child = fork();  // the last that has it
  if (child == 0) {
    char none = 0;
    close(go[1]);
    (void)!read(go[0], &none, 1);
    raise(SIGKILL);
  }
  close(go[0]);
  party.Say("close", close(party.fd));
  party.fd = -1;
  close(go[1]);
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("the child's status", status);
  party.Meet();
  party.Meet();
}
void FindsDeath(Party& party) {
  pipe_signals = 0;
  signal(SIGPIPE, CountSignal);
  Send(party, "unread");
  party.Meet();
  party.Meet();
  TimeGoesBy(party);
  Send(party, "send");
  Recv(party, "recv");
  TimeGoesBy(party);  // until the answer is here
  Send(party, "send again");
  party.Say("signals", pipe_signals);
  signal(SIGPIPE, SIG_IGN);
  party.Meet();
}
void FindsError(Party& party) {
  Send(party, "unread");
  party.Meet();
  party.Meet();
  Recv(party, "recv");
  Recv(party, "recv again");
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kErrorScenarios = {
    {"reset", FindsReset<TimeGoesBy, NobodySees>, Resets},
    {"reset, seen by poll", FindsReset<PollSees, NobodySees>, Resets},
    {"reset, seen by poll over TCP", FindsReset<PollSees, NobodySees>, ResetsOverTcp},
    {"reset, seen by poll for room over TCP", FindsReset<PollOfRoomSees, NobodySees>,
     ResetsOverTcp},
    {"reset, seen by epoll", FindsReset<EpollSees, NobodySees>, Resets},
    {"reset, seen by epoll over TCP", FindsReset<EpollSees, NobodySees>, ResetsOverTcp},
    {"reset, told by recv", FindsReset<PollSees, ReceiveTells>, ResetsOverTcp},
    {"reset, told by SO_ERROR", FindsReset<PollSees, SayError>, ResetsOverTcp},
    {"reset, told by SO_ERROR, the other way", ResetsOverTcp, FindsReset<PollSees, SayError>},
    {"reset by death, found by send", FindsDeath, Dies},
    {"reset by death, found by send, the other way", Dies, FindsDeath},
    {"reset by death, found by recv", FindsError, Dies},
};

}  // namespace rdfs::sock
