// Scenarios of bytes: every call that sends and receives, with its flags, and how connections end.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <thread>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

ssize_t SendBytes(int fd, std::size_t from, std::size_t count, int flags = 0) {
  const std::vector<char> bytes = Bytes(from, count);
  return send(fd, bytes.data(), bytes.size(), flags);
}

void SayRecv(Party& party, const char* what, std::size_t size, int flags) {
  std::vector<char> bytes(size);
  const ssize_t got = recv(party.fd, bytes.data(), size, flags);
  party.SayBytes(what, got, bytes);
}

// The other end has nothing to do but to be there.
void Watch(Party& party) { party.Meet(); }

void PeekSends(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 100));
  party.Meet();
  party.Meet();
}
void PeekReceives(Party& party) {
  party.Meet();
  SayRecv(party, "peek 50", 50, MSG_PEEK);
  SayRecv(party, "peek all", 200, MSG_PEEK | MSG_DONTWAIT);
  int queued = 0;
  party.Say("FIONREAD", ioctl(party.fd, FIONREAD, &queued));
  party.Say("queued", queued);
  SayRecv(party, "recv 30", 30, 0);
  SayRecv(party, "recv the rest", 200, 0);
  SayRecv(party, "recv nothing", 10, MSG_DONTWAIT);
  SayRecv(party, "peek nothing", 10, MSG_DONTWAIT | MSG_PEEK);
  ioctl(party.fd, FIONREAD, &queued);
  party.Say("queued", queued);
  SayRecv(party, "recv of no bytes", 0, MSG_DONTWAIT);
  party.Meet();
}

// A look that waits for all gets it in pieces, and at the end what there is.
void PeekAllSends(Party& party) {
  party.Say("shutdown of nothing", shutdown(party.fd, 7));
  party.Say("send", SendBytes(party.fd, 0, 100));
  party.Meet();
  usleep(20'000);
  party.Say("send", SendBytes(party.fd, 100, 100));
  party.Meet();
  usleep(20'000);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
void PeekAllReceives(Party& party) {
  party.Meet();
  SayRecv(party, "peek 200", 200, MSG_PEEK | MSG_WAITALL);
  SayRecv(party, "peek 300 now", 300, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT);
  party.Meet();
  SayRecv(party, "peek 300", 300, MSG_PEEK | MSG_WAITALL);
  SayRecv(party, "recv", 300, MSG_WAITALL);
  party.Meet();
}

void VectorsSend(Party& party) {
  std::vector<char> bytes = Bytes(0, 1000);
  const std::array<iovec, 4> pieces = {iovec{bytes.data(), 1}, iovec{bytes.data() + 1, 0},
                                       iovec{bytes.data() + 1, 600},
                                       iovec{bytes.data() + 601, 399}};
  party.Say("writev", writev(party.fd, pieces.data(), 4));
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = 4;
  party.Say("sendmsg", sendmsg(party.fd, &message, MSG_NOSIGNAL));
  std::array<mmsghdr, 2> messages{};
  for (mmsghdr& one : messages) one.msg_hdr = message;
  party.Say("sendmmsg", sendmmsg(party.fd, messages.data(), 2, MSG_MORE));
  party.Say("its second", messages[1].msg_len);
  party.Say("write", write(party.fd, bytes.data(), bytes.size()));
  party.Say("sendto", sendto(party.fd, bytes.data(), bytes.size(), 0, nullptr, 0));
  party.Say("send of no bytes", send(party.fd, bytes.data(), 0, 0));
  party.Meet();
  party.Meet();
}
void VectorsReceive(Party& party) {
  party.Meet();
  std::vector<char> bytes(1000);
  const std::array<iovec, 2> pieces = {iovec{bytes.data(), 300}, iovec{bytes.data() + 300, 700}};
  party.Say("readv of nothing", readv(party.fd, pieces.data(), 0));
  party.SayBytes("readv", readv(party.fd, pieces.data(), 2), bytes);
  party.Say("readv of nothing where nothing is", readv(party.fd, pieces.data(), 0));
  msghdr message{};
  sockaddr_in address{};
  message.msg_name = &address;
  message.msg_namelen = sizeof(address);
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = 2;
  message.msg_flags = -1;
  party.SayBytes("recvmsg", recvmsg(party.fd, &message, 0), bytes);
  party.Say("its flags", message.msg_flags);
  party.Say("its name", message.msg_namelen);
  SayRecv(party, "of sendmmsg", 2000, MSG_WAITALL);
  party.SayBytes("read", read(party.fd, bytes.data(), 1000), bytes);
  socklen_t length = sizeof(address);
  party.SayBytes(
      "recvfrom",
      recvfrom(party.fd, bytes.data(), 1000, 0, reinterpret_cast<sockaddr*>(&address), &length),
      bytes);
  party.Say("its address", length);
  party.Meet();
}

void WaitAllSends(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 400));
  party.Meet();
  party.Say("send", SendBytes(party.fd, 400, 600));
  party.Say("send", SendBytes(party.fd, 1000, 500));
  party.Meet();
  party.Say("send", SendBytes(party.fd, 0, 70));
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
void WaitAllReceives(Party& party) {
  party.Meet();
  SayRecv(party, "wait for all", 1000, MSG_WAITALL);
  party.Meet();
  SayRecv(party, "cut off 200", 200, MSG_TRUNC);
  SayRecv(party, "the rest", 300, MSG_WAITALL);
  SayRecv(party, "all until the end", 100, MSG_WAITALL);
  SayRecv(party, "the end", 100, 0);
  SayRecv(party, "the end again", 100, MSG_DONTWAIT);
  party.Meet();
}

void HalfCloseSends(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 5000));
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Say("send", SendBytes(party.fd, 0, 10, MSG_NOSIGNAL));
  party.Meet();
  SayRecv(party, "the other way", 3000, MSG_WAITALL);
  SayRecv(party, "its end", 10, 0);
  party.Meet();
}
void HalfCloseReceives(Party& party) {
  party.Meet();
  SayRecv(party, "recv", 5000, MSG_WAITALL);
  SayRecv(party, "end", 10, 0);
  party.Say("send", SendBytes(party.fd, 7, 3000));
  party.Say("shutdown", shutdown(party.fd, SHUT_RDWR));
  party.Say("shutdown again", SendBytes(party.fd, 0, 1, MSG_NOSIGNAL));
  party.Meet();
}

void LeavesBytesUnread(Party& party) {
  party.Meet();
  SayRecv(party, "recv", 100, 0);
  party.Say("close", close(party.fd));
  party.fd = -1;
  party.Meet();
}
void IsReset(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 1000));
  party.Meet();
  party.Meet();
  SayRecv(party, "after a reset", 10, 0);
  SayRecv(party, "and again", 10, 0);
  party.Say("send", SendBytes(party.fd, 0, 10, MSG_NOSIGNAL));
}

void ClosesAtOnce(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 3000));
  party.Say("close", close(party.fd));
  party.fd = -1;
  party.Meet();
  party.Meet();
}
void WritesToNobody(Party& party) {
  party.Meet();
  SayRecv(party, "what was sent", 3000, MSG_WAITALL);
  SayRecv(party, "end", 10, 0);
  // The first goes, and what comes back ends the connection.
  ssize_t sent = 0;
  for (int i = 0; i < 100'000 && sent >= 0; ++i) sent = SendBytes(party.fd, 0, 100, MSG_NOSIGNAL);
  party.Say("send at last", sent);
  party.Meet();
}

// Nothing fills up meanwhile, and nothing is read.
void WritesNowAndThenToNobody(Party& party) {
  party.Meet();
  SayRecv(party, "what was sent", 3000, MSG_WAITALL);
  ssize_t sent = 0;
  for (int i = 0; i < 100 && sent >= 0; ++i) {
    usleep(30'000);
    sent = SendBytes(party.fd, 0, 10, MSG_NOSIGNAL);
  }
  party.Say("send at last", sent);
  party.Meet();
}

void FileSends(Party& party) {
  std::array<char, 32> name = {"/tmp/rdsock-calls-XXXXXX"};
  const int file = mkstemp(name.data());
  unlink(name.data());
  const std::vector<char> bytes = Bytes(0, 100'000);
  party.Say("file", write(file, bytes.data(), bytes.size()));
  off_t at = 5;
  party.Say("sendfile", sendfile(party.fd, file, &at, 50'000));
  party.Say("offset", at);
  party.Say("lseek", lseek(file, 99'000, SEEK_SET));
  party.Say("sendfile to the end", sendfile(party.fd, file, nullptr, 5000));
  party.Say("place", lseek(file, 0, SEEK_CUR));
  party.Say("sendfile of nothing", sendfile(party.fd, file, nullptr, 5000));
  close(file);
  party.Meet();
}
void FileReceives(Party& party) {
  SayRecv(party, "from an offset", 50'000, MSG_WAITALL);
  SayRecv(party, "up to the end", 1000, MSG_WAITALL);
  party.Meet();
}

void UrgentSends(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 100));
  party.Say("urgent", SendBytes(party.fd, 0, 1, MSG_OOB));
  party.Say("send", SendBytes(party.fd, 100, 200));
  party.Meet();
  party.Meet();
}
void UrgentReceives(Party& party) {
  party.Meet();
  SayRecv(party, "up to the mark", 300, 0);
  SayRecv(party, "urgent", 1, MSG_OOB);
  SayRecv(party, "behind it", 200, MSG_WAITALL);
  party.Meet();
}

// The other end takes as much as was sent.
void FillsUp(Party& party) {
  party.Say("F_SETFL", fcntl(party.fd, F_SETFL, O_NONBLOCK));
  SayRecv(party, "nothing there", 10, 0);
  std::size_t sent = 0;
  ssize_t went = 0;
  while ((went = SendBytes(party.fd, sent, 30'000)) > 0) sent += static_cast<std::size_t>(went);
  party.Say("full", went);
  pollfd out{party.fd, POLLOUT, 0};
  party.Tell(static_cast<long>(sent));
  party.Say("room again", poll(&out, 1, 10'000));
  party.Say("revents", out.revents);
  party.Meet();
  party.Say("send", SendBytes(party.fd, 0, 100));
  party.Say("blocking", fcntl(party.fd, F_SETFL, 0));
  party.Meet();
}
void Drains(Party& party) {
  const auto count = static_cast<std::size_t>(party.Hear());
  std::vector<char> bytes(count);
  const ssize_t got = recv(party.fd, bytes.data(), count, MSG_WAITALL);
  party.Say("all of it", static_cast<std::size_t>(got) == count && bytes == Bytes(0, count));
  party.Meet();
  SayRecv(party, "more", 100, MSG_WAITALL);
  party.Meet();
}

constexpr std::size_t kStream = 6'000'000;
void WriteStream(int fd) {
  std::size_t piece = 1;
  for (std::size_t at = 0; at < kStream;) {
    piece = std::min(piece * 7 % 60'013, kStream - at);
    if (SendBytes(fd, at, piece) != static_cast<ssize_t>(piece)) return;
    at += piece;
  }
  shutdown(fd, SHUT_WR);
}
void BothWays(Party& party) {
  std::thread writer([&] { WriteStream(party.fd); });
  std::size_t at = 0;
  std::size_t wrong = 0;
  std::vector<char> bytes(50'000);
  for (ssize_t got = 0; (got = recv(party.fd, bytes.data(), 1 + at * 13 % bytes.size(), 0)) > 0;) {
    const std::vector<char> expected = Bytes(at, static_cast<std::size_t>(got));
    if (!std::equal(expected.begin(), expected.end(), bytes.begin())) ++wrong;
    at += static_cast<std::size_t>(got);
  }
  writer.join();
  party.Say("received", static_cast<long>(at));
  party.Say("wrong", static_cast<long>(wrong));
  party.Meet();
}

// More than a ring holds, and less than the kernel's buffers do, before either end reads.
void WritesThenReads(Party& party) {
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  party.Say("setsockopt",
            setsockopt(party.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)));
  std::size_t at = 0;
  for (const std::size_t size : {30'000U, 100'000U, 400'000U, 1000U}) {
    party.Say("send", SendBytes(party.fd, at, size));
    SayRecv(party, "recv", size, MSG_WAITALL);
    at += size;
    party.Meet();
  }
}

// The same by a socket that does not block, and is asked for room.
template <typename Wait>
void WritesWhen(Party& party, Wait wait_for_room) {
  party.Say("fcntl", fcntl(party.fd, F_SETFL, O_NONBLOCK));
  const std::vector<char> bytes = Bytes(0, 400'000);
  std::size_t gone = 0;
  while (gone < bytes.size()) {
    const ssize_t went = send(party.fd, bytes.data() + gone, bytes.size() - gone, 0);
    if (went > 0) gone += static_cast<std::size_t>(went);
    if (went < 0 && (errno != EAGAIN || !wait_for_room())) break;
  }
  party.Say("sent", static_cast<long>(gone));
  party.Say("fcntl", fcntl(party.fd, F_SETFL, 0));
  SayRecv(party, "recv", bytes.size(), MSG_WAITALL);
  party.Meet();
}
void WritesWhenThereIsRoom(Party& party) {
  pollfd room{party.fd, POLLOUT, 0};
  WritesWhen(party, [&] { return poll(&room, 1, 10'000) == 1; });
}
void WritesWhenASetTells(Party& party, std::uint32_t events) {
  const int set = epoll_create1(0);
  epoll_event event{.events = events, .data = {.fd = party.fd}};
  party.Say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, party.fd, &event));
  WritesWhen(party, [&] { return epoll_wait(set, &event, 1, 10'000) == 1; });
  close(set);
}
void WritesWhenASetTellsOfRoom(Party& party) { WritesWhenASetTells(party, EPOLLOUT); }
void WritesWhenASetTellsByEdges(Party& party) { WritesWhenASetTells(party, EPOLLOUT | EPOLLET); }

void SplicedFrom(Party& party) {
  party.Say("send", SendBytes(party.fd, 0, 4000));
  party.Meet();
  // In a call, so that it can give back what lies in memory.
  SayRecv(party, "answer", 10, MSG_WAITALL);
  party.Meet();
}
void Splices(Party& party) {
  party.Meet();
  SayRecv(party, "recv", 1000, MSG_WAITALL);
  int ends[2];
  party.Say("pipe", pipe(ends));
  std::size_t moved = 0;
  while (moved < 3000) {
    const ssize_t went = splice(party.fd, nullptr, ends[1], nullptr, 3000 - moved, 0);
    if (went <= 0) break;
    moved += static_cast<std::size_t>(went);
  }
  party.Say("spliced", static_cast<long>(moved));
  std::vector<char> bytes(3000);
  party.SayBytes("through the pipe", read(ends[0], bytes.data(), bytes.size()), bytes);
  party.Say("send", SendBytes(party.fd, 0, 10));
  close(ends[0]);
  close(ends[1]);
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kDataScenarios = {
    {"quiet", Watch, Watch},
    {"peek", PeekSends, PeekReceives},
    {"peek, the other way", PeekReceives, PeekSends},
    {"peek for all", PeekAllSends, PeekAllReceives},
    {"peek for all, the other way", PeekAllReceives, PeekAllSends},
    {"vectors", VectorsSend, VectorsReceive},
    {"wait for all", WaitAllSends, WaitAllReceives},
    {"half close", HalfCloseSends, HalfCloseReceives},
    {"half close, the other way", HalfCloseReceives, HalfCloseSends},
    {"close with unread bytes", IsReset, LeavesBytesUnread},
    {"close", ClosesAtOnce, WritesToNobody},
    {"close, and little is written", ClosesAtOnce, WritesNowAndThenToNobody},
    {"sendfile", FileSends, FileReceives},
    {"urgent bytes", UrgentSends, UrgentReceives},
    {"a full socket", FillsUp, Drains},
    {"streams both ways", BothWays, BothWays},
    {"written before it is read", WritesThenReads, WritesThenReads},
    {"written before it is read, when there is room", WritesWhenThereIsRoom, WritesWhenThereIsRoom},
    {"written before it is read, when epoll tells", WritesWhenASetTellsOfRoom,
     WritesWhenASetTellsOfRoom},
    {"written before it is read, when epoll tells by edges", WritesWhenASetTellsByEdges,
     WritesWhenASetTellsByEdges},
    {"splice", SplicedFrom, Splices},
};

}  // namespace rdfs::sock
