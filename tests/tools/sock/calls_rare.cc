// Scenarios of what few programs do: several messages at once, reads and writes with flags of their
// own, low-water marks, exclusive waits, what a socket says of itself.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

void SayOption(Party& party, const char* what, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  party.Say(what, getsockopt(party.fd, level, name, &value, &size));
  party.Say("its value", value);
}

// --- several messages at once

std::array<mmsghdr, 3> Messages(std::array<iovec, 3>& pieces) {
  std::array<mmsghdr, 3> messages{};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  return messages;
}

void SendsMessages(Party& party) {
  std::vector<char> bytes = Bytes(0, 600);
  std::array<iovec, 3> pieces = {iovec{bytes.data(), 100}, iovec{bytes.data() + 100, 200},
                                 iovec{bytes.data() + 300, 300}};
  std::array<mmsghdr, 3> messages = Messages(pieces);
  party.Say("sendmmsg", sendmmsg(party.fd, messages.data(), 3, 0));
  for (const mmsghdr& message : messages) party.Say("of it", message.msg_len);
  party.Say("sendmmsg of none", sendmmsg(party.fd, messages.data(), 0, 0));
  party.Meet();
  party.Meet();
  Send(party, 600, 50);
  party.Meet();
  Receive(party, "what came back", 100);
  party.Meet();
}
void ReceivesMessages(Party& party) {
  party.Meet();
  std::vector<char> bytes(700);
  std::array<iovec, 3> pieces = {iovec{bytes.data(), 150}, iovec{bytes.data() + 150, 250},
                                 iovec{bytes.data() + 400, 300}};
  std::array<mmsghdr, 3> messages = Messages(pieces);
  party.Say("recvmmsg", recvmmsg(party.fd, messages.data(), 3, 0, nullptr));
  for (const mmsghdr& message : messages) party.Say("of it", message.msg_len);
  party.SayBytes("all of it", 600, bytes);
  party.Say("recvmmsg of nothing", recvmmsg(party.fd, messages.data(), 3, MSG_DONTWAIT, nullptr));
  party.Meet();
  timespec timeout{1, 0};
  party.Say("recvmmsg, with a time",
            recvmmsg(party.fd, messages.data(), 3, MSG_WAITFORONE, &timeout));
  party.Say("of it", messages[0].msg_len);
  Send(party, 650, 70);
  party.Meet();
  party.Meet();
}

// --- preadv2 and pwritev2

void WritesWithFlags(Party& party) {
  std::vector<char> bytes = Bytes(0, 500);
  const std::array<iovec, 2> pieces = {iovec{bytes.data(), 200}, iovec{bytes.data() + 200, 300}};
  party.Say("pwritev2", pwritev2(party.fd, pieces.data(), 2, -1, 0));
  party.Say("pwritev2 at a place", pwritev2(party.fd, pieces.data(), 2, 5, 0));
  party.Say("pwrite", pwrite(party.fd, bytes.data(), 10, 0));
  party.Say("lseek", lseek(party.fd, 0, SEEK_CUR));
  party.Meet();
  party.Meet();
  party.Say("write", write(party.fd, bytes.data(), 100));
  party.Meet();
}
void ReadsWithFlags(Party& party) {
  party.Meet();
  std::vector<char> bytes(600);
  const std::array<iovec, 2> pieces = {iovec{bytes.data(), 250}, iovec{bytes.data() + 250, 350}};
  party.Say("preadv2 at a place", preadv2(party.fd, pieces.data(), 2, 5, 0));
  party.Say("pread", pread(party.fd, bytes.data(), 10, 0));
  party.SayBytes("preadv2", preadv2(party.fd, pieces.data(), 2, -1, 0), bytes);
  party.Say("preadv2 of nothing", preadv2(party.fd, pieces.data(), 2, -1, RWF_NOWAIT));
  party.Meet();
  party.Meet();
  party.SayBytes("read", read(party.fd, bytes.data(), 600), bytes);
}

// --- low-water marks

void SendsAroundMark(Party& party) {
  party.Meet();
  Send(party, 0, 50);
  party.Meet();
  party.Meet();
  Send(party, 50, 100);
  party.Meet();
  party.Meet();
  Send(party, 150, 10);
  party.Meet();
}
void WaitsForMark(Party& party) {
  const int mark = 100;
  party.Say("SO_RCVLOWAT", setsockopt(party.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)));
  SayOption(party, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT);
  SayOption(party, "SO_SNDLOWAT", SOL_SOCKET, SO_SNDLOWAT);
  party.Meet();
  party.Meet();
  SayPoll(party, "poll below it", POLLIN, 0);
  party.Meet();
  SayPoll(party, "poll", POLLIN, kLong);
  Receive(party, "recv", 200);
  const int one = 1;
  party.Say("SO_RCVLOWAT", setsockopt(party.fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)));
  party.Meet();
  party.Meet();
  SayPoll(party, "poll", POLLIN, kLong);
  Receive(party, "recv", 200);
  party.Meet();
}

// --- exclusive waits

void SendsOne(Party& party) {
  party.Meet();
  Send(party, 0, 10);
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
void WaitsExclusively(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLEXCLUSIVE, .data = {.u64 = 7}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  party.Say("modify", epoll_ctl(set, EPOLL_CTL_MOD, party.fd, &event));
  epoll_event told{};
  party.Say("nothing yet", epoll_wait(set, &told, 1, 0));
  party.Meet();
  party.Say("epoll_wait", epoll_wait(set, &told, 1, kLong));
  party.Say("events", told.events);
  party.Say("data", static_cast<long>(told.data.u64));
  Receive(party, "recv", 100);
  party.Meet();
  party.Say("at the end", epoll_wait(set, &told, 1, kLong));
  Receive(party, "the end", 100);
  event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP;
  party.Say("add with RDHUP", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  party.Say("delete", epoll_ctl(set, EPOLL_CTL_DEL, party.fd, nullptr));
  close(set);
  party.Meet();
}

// --- by another number

void SendsBothWays(Party& party) {
  Send(party, 0, 100);
  party.Meet();
  Receive(party, "recv", 100, MSG_WAITALL);
  party.Meet();
}
void MovesToAnotherNumber(Party& party) {
  party.Meet();
  const int high = fcntl(party.fd, F_DUPFD, 200);
  const int higher = fcntl(party.fd, F_DUPFD_CLOEXEC, 300);
  party.Say("F_DUPFD", high);
  party.Say("F_DUPFD_CLOEXEC", higher);
  party.Say("F_GETFD", fcntl(higher, F_GETFD));
  party.Say("close", close(party.fd));
  party.Say("F_SETFL", fcntl(high, F_SETFL, O_NONBLOCK));
  party.Say("F_GETFL", fcntl(higher, F_GETFL) & O_NONBLOCK);
  party.fd = higher;
  Receive(party, "recv", 60);
  party.fd = high;
  Receive(party, "recv", 60);
  Receive(party, "nothing", 60);
  party.Say("close", close(higher));
  Send(party, 0, 100);
  party.Meet();
}

// --- what a socket says of itself

void SaysWhatItIs(Party& party) {
  for (const int round : {0, 1}) {
    SayOption(party, "SO_TYPE", SOL_SOCKET, SO_TYPE);
    SayOption(party, "SO_DOMAIN", SOL_SOCKET, SO_DOMAIN);
    SayOption(party, "SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL);
    SayOption(party, "SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN);
    SayOption(party, "SO_ERROR", SOL_SOCKET, SO_ERROR);
    SayOption(party, "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE);
    SayOption(party, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
    sockaddr_in here{};
    sockaddr_in there{};
    socklen_t size = sizeof(here);
    party.Say("getsockname", getsockname(party.fd, reinterpret_cast<sockaddr*>(&here), &size));
    size = sizeof(there);
    party.Say("getpeername", getpeername(party.fd, reinterpret_cast<sockaddr*>(&there), &size));
    party.Say("both on loopback", here.sin_addr.s_addr == there.sin_addr.s_addr ? 1 : 0);
    tcp_info info{};
    size = sizeof(info);
    party.Say("TCP_INFO", getsockopt(party.fd, IPPROTO_TCP, TCP_INFO, &info, &size));
    party.Say("its state", info.tcpi_state);
    int queued = -1;
    party.Say("TIOCOUTQ", ioctl(party.fd, TIOCOUTQ, &queued));
    int yes = 1;
    party.Say("FIONBIO", ioctl(party.fd, FIONBIO, &yes));
    Receive(party, "nothing", 10);
    yes = 0;
    party.Say("FIONBIO", ioctl(party.fd, FIONBIO, &yes));
    yes = 1;
    party.Say("keep alive", setsockopt(party.fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes)));
    party.Say("no delay", setsockopt(party.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)));
    Receive(party, "of the error queue", 10, MSG_ERRQUEUE | MSG_DONTWAIT);
    party.Say("connect again",
              connect(party.fd, reinterpret_cast<sockaddr*>(&there), sizeof(there)));
    party.Say("listen", listen(party.fd, 1));
    party.Say("accept", accept(party.fd, nullptr, nullptr));
    party.Say("bind", bind(party.fd, reinterpret_cast<sockaddr*>(&here), sizeof(here)));
    party.Meet();  // the other one has looked for nothing
    sockaddr_in nobody{};
    party.Say("sendto somebody else",
              sendto(party.fd, "x", 1, 0, reinterpret_cast<sockaddr*>(&nobody), sizeof(nobody)));
    Send(party, 0, 10);
    party.Meet();
    Receive(party, "recv", 100, MSG_DONTWAIT);
    party.Meet();
    if (round == 0) party.Say("SHUT_RD", shutdown(party.fd, SHUT_RD));
    party.Meet();
  }
}

// --- what changes where or how a socket is read

void SendsTwice(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  const std::vector<char> bytes = Bytes(0, 100);
  party.Say("send", send(fd, bytes.data(), bytes.size(), 0));
  party.Meet();
  party.Meet();
  close(fd);
}
void PeeksFurther(Party& party) {
  const int fd = Connect(party.beside(), [](int socket) {
    const int behind = 3;  // where the kernel has it for TCP
    (void)setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &behind, sizeof(behind));
  });
  WarmUp(fd, true);
  party.Meet();
  std::array<char, 10> bytes{};
  for (int i = 0; i < 2; ++i) {
    party.Say("peek", recv(fd, bytes.data(), bytes.size(), MSG_PEEK));
    party.Say("its first byte", bytes[0]);
  }
  party.Say("recv", recv(fd, bytes.data(), bytes.size(), 0));
  party.Say("its first byte", bytes[0]);
  party.Meet();
  close(fd);
}

// tcp_zerocopy_receive of <linux/tcp.h>, which cannot stand beside <netinet/tcp.h>.
struct ZerocopyReceive {
  std::uint64_t address;
  std::uint32_t length, recv_skip_hint, inq;
  std::int32_t err;
  std::uint64_t copybuf_address;
  std::int32_t copybuf_len;
  std::uint32_t flags;
};
void TakesBySocketOption(Party& party) {
  std::array<char, 200> bytes{};
  const auto take = [&] {
    ZerocopyReceive wanted{};
    wanted.copybuf_address = reinterpret_cast<std::uintptr_t>(bytes.data());
    wanted.copybuf_len = bytes.size();
    socklen_t size = sizeof(wanted);
    party.Say("taken", getsockopt(party.fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &wanted, &size));
    party.Say("bytes", wanted.copybuf_len);
    party.Say("of them the first", bytes[0]);
  };
  take();
  party.Meet();
  party.Meet();
  SayPoll(party, "poll", POLLIN, kLong);
  take();
  party.Meet();
  Receive(party, "recv", 200, MSG_WAITALL);
}
void SendsToIt(Party& party) {
  party.Meet();
  const std::vector<char> before = Bytes(5000, 100);
  party.Say("send", send(party.fd, before.data(), before.size(), 0));
  party.Meet();
  party.Meet();
  Send(party, 0, 200);
}

}  // namespace

const std::vector<Scenario> kRareScenarios = {
    {"several messages", SendsMessages, ReceivesMessages},
    {"several messages, the other way", ReceivesMessages, SendsMessages},
    {"preadv2 and pwritev2", WritesWithFlags, ReadsWithFlags},
    {"a low-water mark", WaitsForMark, SendsAroundMark},
    {"exclusive waits", WaitsExclusively, SendsOne},
    {"by another number", MovesToAnotherNumber, SendsBothWays},
    {"what a socket says of itself", SaysWhatItIs, SaysWhatItIs},
    {"a place to peek at", PeeksFurther, SendsTwice},
    {"bytes by a socket option", TakesBySocketOption, SendsToIt},
};

}  // namespace rdfs::sock
