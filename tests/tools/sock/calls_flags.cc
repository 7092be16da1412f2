// Scenarios of what calls are given: flags, many pieces or none, timeouts, files that cannot be
// sent; and what they say when it is wrong.
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "tests/tools/sock/calls.h"

// What <sys/socket.h>, <unistd.h> and <poll.h> lead to with -D_FORTIFY_SOURCE.
extern "C" {
ssize_t __read_chk(int fd, void* to, size_t size, size_t space);
ssize_t __recv_chk(int fd, void* to, size_t size, size_t space, int flags);
ssize_t __recvfrom_chk(int fd, void* to, size_t size, size_t space, int flags, sockaddr* address,
                       socklen_t* length);
int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t space);
int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                size_t space);
}

namespace rdfs::sock {
namespace {

constexpr int kLong = 10'000;  // milliseconds; only a failure takes so long

// What a compiler would warn of, and does not see.
template <typename T>
T Unseen(T value) {
  volatile T hidden = value;
  return hidden;
}
msghdr MessageOf(std::vector<iovec>& pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return message;
}

volatile sig_atomic_t pipe_signals;
void CountSignal(int) { pipe_signals = pipe_signals + 1; }
// While it lives SIGPIPE is counted, and said at the end.
class Signals {
 public:
  explicit Signals(Party& party) : party_(party) {
    pipe_signals = 0;
    signal(SIGPIPE, CountSignal);
  }
  ~Signals() {
    party_.Say("signals", pipe_signals);
    signal(SIGPIPE, SIG_IGN);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  Party& party_;
};

// --- bytes that nobody is to see

void SendsForNobody(Party& party) {
  Send(party, 0, 300);
  party.Meet();
  party.Meet();
}
void CutsOff(Party& party) {
  party.Meet();
  Receive(party, "a look at how many", 1000, MSG_PEEK | MSG_TRUNC);
  Receive(party, "at some of them", 120, MSG_PEEK | MSG_TRUNC);
  party.Say("without memory", recv(party.fd, Unseen<void*>(nullptr), 1000, MSG_PEEK | MSG_TRUNC));
  Receive(party, "cut off", 100, MSG_TRUNC);
  party.Say("cut off without memory", recv(party.fd, Unseen<void*>(nullptr), 50, MSG_TRUNC));
  std::vector<char> bytes(50, 'U');
  std::vector<iovec> pieces = {{bytes.data(), 20}, {bytes.data() + 20, 30}};
  msghdr message = MessageOf(pieces);
  party.SayBytes("recvmsg", recvmsg(party.fd, &message, MSG_TRUNC), bytes);
  party.Say("its flags", message.msg_flags);
  Receive(party, "the rest", 500, MSG_TRUNC | MSG_DONTWAIT);
  Receive(party, "none", 500, MSG_TRUNC | MSG_DONTWAIT);
  Receive(party, "a look at none", 500, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  party.Meet();
}

// More than a ring holds at first, and less than the kernel does: the rest has to go over TCP,
// where it lies behind the ring, and then alone.
constexpr std::size_t kMany = 48'000;
constexpr std::size_t kTaken = 17'000;
void SendsMany(Party& party) {
  Send(party, 0, kMany);
  party.Meet();
  party.Meet();
}
void LookAtMany(Party& party, std::size_t count) {
  Receive(party, "a look at how many", kMany, MSG_PEEK | MSG_TRUNC);
  Receive(party, "at how many there have to be", count, MSG_PEEK | MSG_TRUNC | MSG_WAITALL);
  std::vector<char> bytes(kMany, 'U');
  std::vector<iovec> pieces = {
      {bytes.data(), 1000}, {bytes.data() + 1000, 20'000}, {bytes.data() + 21'000, 27'000}};
  msghdr message = MessageOf(pieces);
  party.SayBytes("recvmsg", recvmsg(party.fd, &message, MSG_PEEK), bytes);
  message.msg_iovlen = 2;
  party.SayBytes("of fewer", recvmsg(party.fd, &message, MSG_PEEK | MSG_WAITALL), bytes);
}
void LooksAtMany(Party& party) {
  party.Meet();
  LookAtMany(party, kMany);
  Receive(party, "recv", kTaken, MSG_WAITALL);
  LookAtMany(party, kMany - kTaken);
  std::vector<char> bytes(kMany, 'U');
  const std::array<iovec, 2> pieces = {iovec{bytes.data(), 5000},
                                       iovec{bytes.data() + 5000, 43'000}};
  party.SayBytes("readv", readv(party.fd, pieces.data(), 2), bytes);
  party.Meet();
}

// --- more to come

void SendsMore(Party& party) {
  Send(party, 0, 100, MSG_MORE);
  Send(party, 100, 100, MSG_MORE | MSG_DONTWAIT);
  Send(party, 200, 50);
  const int on = 1;
  party.Say("cork", setsockopt(party.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
  for (const std::size_t at : {250U, 270U, 290U}) Send(party, at, 20);
  const int off = 0;
  party.Say("uncork", setsockopt(party.fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
  Send(party, 310, 40, MSG_MORE | MSG_EOR | MSG_CONFIRM);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
void ReceivesMore(Party& party) {
  Receive(party, "recv", 250, MSG_WAITALL);
  Receive(party, "recv corked", 60, MSG_WAITALL);
  Receive(party, "recv the last", 100, MSG_WAITALL);
  Receive(party, "the end", 100);
  party.Meet();
}

// --- several messages, of which one fails

void SendsWrongMessages(Party& party) {
  std::vector<char> bytes = Bytes(0, 100);
  std::vector<iovec> good = {{bytes.data(), 100}};
  std::vector<iovec> many(IOV_MAX + 1, iovec{bytes.data(), 1});
  std::array<mmsghdr, 2> messages{};
  messages[0].msg_hdr = MessageOf(good);
  messages[1].msg_hdr = MessageOf(many);
  messages[1].msg_len = 77;
  party.Say("the second is wrong", sendmmsg(party.fd, messages.data(), 2, 0));
  party.Say("of the first", messages[0].msg_len);
  party.Say("of the second", messages[1].msg_len);
  std::swap(messages[0], messages[1]);
  party.Say("the first is wrong", sendmmsg(party.fd, messages.data(), 2, 0));
  Send(party, 100, 100);
  std::vector<iovec> one = {{bytes.data(), 1}};
  std::vector<mmsghdr> more(IOV_MAX + 10);
  for (mmsghdr& message : more) message.msg_hdr = MessageOf(one);
  party.Say("more than there may be", sendmmsg(party.fd, more.data(), IOV_MAX + 10, 0));
  party.Say("of the last", more[IOV_MAX - 1].msg_len);
  party.Say("behind it", more[IOV_MAX].msg_len);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  {
    const Signals signals(party);
    std::swap(messages[0], messages[1]);
    party.Say("at the end", sendmmsg(party.fd, messages.data(), 1, 0));
    party.Say("without a signal", sendmmsg(party.fd, messages.data(), 1, MSG_NOSIGNAL));
  }
  party.Meet();
}
void ReceivesRightMessages(Party& party) {
  Receive(party, "recv", 200, MSG_WAITALL);
  Receive(party, "recv of many", 2000, MSG_WAITALL);
  Receive(party, "the end", 10);
  party.Meet();
}

// What is said to be sent is what arrives, also where a message did not fit in its time.
constexpr std::size_t kMessages = 50;
constexpr std::size_t kMessage = 5000;
constexpr int kCalls = 40;
void SendsInLittleRoom(Party& party) {
  const timeval wait{0, 4000};
  setsockopt(party.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
  std::size_t at = 0;
  party.Meet();
  for (int calls = 0; calls < kCalls; ++calls) {
    std::vector<char> bytes = Bytes(at, kMessages * kMessage);
    std::vector<iovec> pieces(kMessages);
    std::vector<mmsghdr> messages(kMessages);
    for (std::size_t i = 0; i < kMessages; ++i) {
      pieces[i] = {bytes.data() + i * kMessage, kMessage};
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int count = sendmmsg(party.fd, messages.data(), kMessages, 0);
    for (int i = 0; i < count; ++i) at += messages[static_cast<std::size_t>(i)].msg_len;
  }
  shutdown(party.fd, SHUT_WR);
  party.Tell(static_cast<long>(at));
  party.Meet();
}
// A little at a time at first.
void ReceivesSlowly(Party& party) {
  party.Meet();
  std::vector<char> bytes(kCalls * kMessages * kMessage);
  std::size_t at = 0;
  int slow = 60;
  for (ssize_t got = 1; got > 0; at += static_cast<std::size_t>(got)) {
    if (slow-- > 0) usleep(3000);
    got = recv(party.fd, bytes.data() + at, std::min<std::size_t>(bytes.size() - at, 7000), 0);
    if (got < 0) break;
  }
  bytes.resize(at);
  party.Say("as many", static_cast<long>(at) == party.Hear() ? 1 : 0);
  party.Say("as they were", bytes == Bytes(0, at) ? 1 : 0);
  party.Meet();
}

// --- pieces

void SendsPieces(Party& party) {
  std::vector<char> bytes = Bytes(0, IOV_MAX);
  std::vector<iovec> pieces(IOV_MAX + 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = {bytes.data() + i, i % 3};
  party.Say("writev of too many", writev(party.fd, pieces.data(), IOV_MAX + 1));
  party.Say("writev of fewer than none", writev(party.fd, pieces.data(), Unseen(-1)));
  party.Say("writev", writev(party.fd, pieces.data(), IOV_MAX - 2));
  msghdr message = MessageOf(pieces);
  party.Say("sendmsg of too many", sendmsg(party.fd, &message, 0));
  party.Say("writev of no array", writev(party.fd, Unseen<iovec*>(nullptr), 1));
  party.Say("sendmsg of nothing", sendmsg(party.fd, nullptr, 0));
  std::vector<iovec> long_ones = {{bytes.data(), 10}, {bytes.data(), SIZE_MAX}};
  message = MessageOf(long_ones);
  party.Say("writev of a length below zero", writev(party.fd, long_ones.data(), 2));
  party.Say("sendmsg of it", sendmsg(party.fd, &message, 0));
  party.Say("pwritev2 of it", pwritev2(party.fd, long_ones.data(), 2, -1, 0));
  party.Say("writev of it alone", writev(party.fd, long_ones.data() + 1, 1));
  party.Meet();
  party.Meet();
}
void ReceivesPieces(Party& party) {
  party.Meet();
  std::vector<char> bytes(IOV_MAX, 'U');
  std::vector<iovec> pieces(IOV_MAX + 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = {bytes.data() + i / 2, i % 2};
  party.Say("readv of too many", readv(party.fd, pieces.data(), IOV_MAX + 1));
  party.Say("readv of fewer than none", readv(party.fd, pieces.data(), Unseen(-1)));
  party.Say("readv of no array", readv(party.fd, Unseen<iovec*>(nullptr), 1));
  party.SayBytes("readv", readv(party.fd, pieces.data(), IOV_MAX), bytes);
  msghdr message = MessageOf(pieces);
  party.Say("recvmsg of too many", recvmsg(party.fd, &message, 0));
  party.Say("recvmsg of nothing", recvmsg(party.fd, nullptr, 0));
  std::vector<iovec> long_ones = {{bytes.data(), 10}, {bytes.data(), SIZE_MAX}};
  message = MessageOf(long_ones);
  party.Say("readv of a length below zero", readv(party.fd, long_ones.data(), 2));
  party.Say("recvmsg of it", recvmsg(party.fd, &message, 0));
  party.Say("preadv2 of it", preadv2(party.fd, long_ones.data(), 2, -1, 0));
  // Without a name its length is nobody's; with one there is none.
  sockaddr_in name{};
  std::vector<iovec> one = {{bytes.data(), 10}};
  message = MessageOf(one);
  message.msg_namelen = 77;
  message.msg_controllen = 0;
  party.SayBytes("recvmsg without a name", recvmsg(party.fd, &message, 0), bytes);
  party.Say("its length", message.msg_namelen);
  message.msg_name = &name;
  message.msg_namelen = sizeof(name);
  party.SayBytes("recvmsg with one", recvmsg(party.fd, &message, 0), bytes);
  party.Say("its length", message.msg_namelen);
  Receive(party, "the rest", IOV_MAX, MSG_DONTWAIT);
  party.Meet();
}

// --- lengths that no memory has

void WritesTooMuch(Party& party) {
  const std::vector<char> bytes = Bytes(0, 100);
  for (const std::size_t size : {SIZE_MAX, std::size_t{SSIZE_MAX} + 1}) {
    party.Say("write", write(party.fd, bytes.data(), Unseen(size)));
  }
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
}
void ReadsTooMuch(Party& party) {
  party.Meet();
  std::vector<char> bytes(100, 'U');
  for (const std::size_t size : {SIZE_MAX, std::size_t{SSIZE_MAX} + 1}) {
    party.Say("read", read(party.fd, bytes.data(), Unseen(size)));
    party.Say("__read_chk", __read_chk(party.fd, bytes.data(), Unseen(size), SIZE_MAX));
  }
  Receive(party, "recv", 200);
  party.Meet();
}

// --- nothing at all

void SendNothing(Party& party) {
  std::vector<char> bytes = Bytes(0, 10);
  std::vector<iovec> none;
  std::vector<iovec> empty = {{bytes.data(), 0}, {bytes.data(), 0}};
  party.Say("send", send(party.fd, bytes.data(), 0, 0));
  party.Say("send without memory", send(party.fd, Unseen<void*>(nullptr), 0, 0));
  party.Say("write", write(party.fd, bytes.data(), 0));
  party.Say("writev of none", writev(party.fd, empty.data(), 0));
  party.Say("writev of empty ones", writev(party.fd, empty.data(), 2));
  msghdr message = MessageOf(none);
  party.Say("sendmsg of none", sendmsg(party.fd, &message, 0));
  message = MessageOf(empty);
  party.Say("sendmsg of empty ones", sendmsg(party.fd, &message, 0));
  party.Say("sendto", sendto(party.fd, bytes.data(), 0, 0, nullptr, 0));
}
void SendsNothing(Party& party) {
  const Signals signals(party);
  SendNothing(party);
  Send(party, 0, 10);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  SendNothing(party);
  party.Meet();
}
void ReceivesNothing(Party& party) {
  party.Meet();
  std::vector<char> bytes(10, 'U');
  std::vector<iovec> none;
  std::vector<iovec> empty = {{bytes.data(), 0}, {bytes.data(), 0}};
  for (int i = 0; i < 3; ++i) {
    Receive(party, "recv of none", 0);
    party.Say("recv without memory", recv(party.fd, Unseen<void*>(nullptr), 0, 0));
    party.Say("read of none", read(party.fd, bytes.data(), 0));
    party.Say("readv of none", readv(party.fd, empty.data(), 2));
    msghdr message = MessageOf(none);
    party.Say("recvmsg of none", recvmsg(party.fd, &message, 0));
    message = MessageOf(empty);
    party.Say("recvmsg of empty ones", recvmsg(party.fd, &message, 0));
    Receive(party, "recv", 10);
  }
}

// --- files that can be sent, and others

int Temporary(std::size_t size) {
  std::array<char, 32> name = {"/tmp/rdsock-calls-XXXXXX"};
  const int file = mkstemp(name.data());
  unlink(name.data());
  const std::vector<char> bytes = Bytes(0, size);
  if (write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(size)) _exit(3);
  lseek(file, 0, SEEK_SET);
  return file;
}
constexpr std::size_t kFile = 3'000'000;
void SendsFiles(Party& party) {
  const int file = Temporary(kFile);
  off_t at = -1;
  party.Say("from before the beginning", sendfile(party.fd, file, &at, 100));
  at = kFile + 5;
  party.Say("from behind the end", sendfile(party.fd, file, &at, 100));
  party.Say("the place", at);
  party.Say("of nothing", sendfile(party.fd, file, nullptr, 0));
  party.Say("of a length below zero", sendfile(party.fd, file, nullptr, SIZE_MAX));
  party.Say("of what is not open", sendfile(party.fd, 1'000'000, nullptr, 10));
  party.Say("of the connection", sendfile(party.fd, party.fd, nullptr, 10));
  party.Say("into the file", sendfile(file, party.fd, nullptr, 10));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || write(ends[1], "0123456789", 10) != 10) _exit(3);
  party.Say("of a pipe", sendfile(party.fd, ends[0], nullptr, 10));
  at = 0;
  party.Say("of a pipe at a place", sendfile(party.fd, ends[0], &at, 10));
  const int folder = open("/tmp", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  party.Say("of a folder", sendfile(party.fd, folder, nullptr, 10));
  const int write_only = open("/dev/null", O_WRONLY | O_CLOEXEC);
  party.Say("of what cannot be read", sendfile(party.fd, write_only, nullptr, 10));
  party.Say("of all", sendfile(party.fd, file, nullptr, 2 * kFile));
  party.Say("the place", lseek(file, 0, SEEK_CUR));
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  {
    const Signals signals(party);
    at = 0;
    party.Say("at the end", sendfile(party.fd, file, &at, 10));
    party.Say("the place", at);
  }
  for (const int fd : {file, ends[0], ends[1], folder, write_only}) close(fd);
  party.Meet();
}
void ReceivesFiles(Party& party) {
  Receive(party, "of the file", kFile, MSG_WAITALL);
  Receive(party, "the end", 10);
  party.Meet();
}

// Behind bytes that went another way.
void SplicesInto(Party& party) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) _exit(3);
  const std::vector<char> bytes = Bytes(0, 2000);
  Send(party, 0, 1000);
  party.Say("write", write(ends[1], bytes.data() + 1000, 1000));
  party.Say("splice", splice(ends[0], nullptr, party.fd, nullptr, 600, SPLICE_F_MORE));
  party.Say("splice", splice(ends[0], nullptr, party.fd, nullptr, 400, 0));
  Send(party, 2000, 1000);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  {
    const Signals signals(party);
    party.Say("write", write(ends[1], bytes.data(), 10));
    party.Say("splice", splice(ends[0], nullptr, party.fd, nullptr, 10, 0));
  }
  close(ends[0]);
  close(ends[1]);
  Receive(party, "recv", 100, MSG_WAITALL);
  party.Meet();
}
void ReceivesSpliced(Party& party) {
  Send(party, 0, 100);
  Receive(party, "all of it", 3000, MSG_WAITALL);
  Receive(party, "the end", 10);
  party.Meet();
}

// --- how long a call may take

void SetTimeout(Party& party, const char* what, int name, timeval time) {
  party.Say(what, setsockopt(party.fd, SOL_SOCKET, name, &time, sizeof(time)));
  timeval now{-7, -7};
  socklen_t size = sizeof(now);
  party.Say("getsockopt", getsockopt(party.fd, SOL_SOCKET, name, &now, &size));
  party.Say("seconds", now.tv_sec);
}
void ReadsForATime(Party& party) {
  SetTimeout(party, "SO_RCVTIMEO", SO_RCVTIMEO, {0, 40'000});
  std::vector<char> bytes(100, 'U');
  std::vector<iovec> pieces = {{bytes.data(), 50}, {bytes.data() + 50, 50}};
  msghdr message = MessageOf(pieces);
  party.Say("read", read(party.fd, bytes.data(), 100));
  party.Say("readv", readv(party.fd, pieces.data(), 2));
  party.Say("recvmsg", recvmsg(party.fd, &message, 0));
  Receive(party, "recv of all", 100, MSG_WAITALL);
  Receive(party, "peek", 100, MSG_PEEK);
  Receive(party, "recv of no bytes", 0);
  party.Meet();
  party.Meet();
  Receive(party, "recv of more than there are", 100, MSG_WAITALL);
  SetTimeout(party, "too many microseconds", SO_RCVTIMEO, {0, 1'000'000});
  SetTimeout(party, "microseconds below zero", SO_RCVTIMEO, {0, -1});
  SetTimeout(party, "below zero", SO_RCVTIMEO, {-1, 0});
  Receive(party, "recv at once", 100);
  SetTimeout(party, "nearly for ever", SO_RCVTIMEO, {LONG_MAX / 2, 0});
  party.Meet();
  Receive(party, "recv", 100);
  SetTimeout(party, "for ever", SO_RCVTIMEO, {0, 0});
  party.Meet();
  Receive(party, "recv", 100);
  party.Meet();
}
void WritesInTime(Party& party) {
  party.Meet();
  Send(party, 0, 60);
  party.Meet();
  for (const std::size_t at : {100U, 200U}) {
    party.Meet();
    usleep(60'000);  // longer than the time that was set first; nothing depends on it
    Send(party, at, 10);
  }
  party.Meet();
}
// More than any socket holds: what went by then is told, and nothing afterwards.
constexpr std::size_t kMoreThanRoom = 30'000'000;
void WritesForATime(Party& party) {
  SetTimeout(party, "SO_SNDTIMEO", SO_SNDTIMEO, {0, 50'000});
  std::vector<char> bytes = Bytes(0, kMoreThanRoom);
  const ssize_t sent = send(party.fd, bytes.data(), bytes.size(), 0);
  party.Say("some", sent > 0 && sent < std::ssize(bytes) ? 1 : 0);
  // There may be a little more room by then.
  std::size_t all = static_cast<std::size_t>(sent);
  const auto until_full = [&](const char* what, auto call) {
    ssize_t more = 0;
    while ((more = call(bytes.data() + all)) > 0) all += static_cast<std::size_t>(more);
    party.Say(what, more);
  };
  until_full("send", [&](char* from) { return send(party.fd, from, 100'000, 0); });
  until_full("write", [&](char* from) { return write(party.fd, from, 1000); });
  std::vector<iovec> pieces(1);
  until_full("writev", [&](char* from) {
    pieces[0] = {from, 1000};
    return writev(party.fd, pieces.data(), 1);
  });
  until_full("sendmsg", [&](char* from) {
    pieces[0] = {from, 1000};
    const msghdr message = MessageOf(pieces);
    return sendmsg(party.fd, &message, 0);
  });
  SetTimeout(party, "below zero", SO_SNDTIMEO, {-1, 0});
  until_full("at once", [&](char* from) { return send(party.fd, from, 1000, 0); });
  SetTimeout(party, "for ever", SO_SNDTIMEO, {0, 0});
  party.Tell(static_cast<long>(all));
  party.Say("the rest", send(party.fd, bytes.data() + all, 1000, 0));
  party.Meet();
}
void ReadsAllOfIt(Party& party) {
  const auto count = static_cast<std::size_t>(party.Hear()) + 1000;
  std::vector<char> bytes(count);
  party.Say("all of it",
            recv(party.fd, bytes.data(), count, MSG_WAITALL) == std::ssize(bytes) ? 1 : 0);
  party.Say("as it was", bytes == Bytes(0, count) ? 1 : 0);
  party.Meet();
}

// Below zero since before it is moved, which takes no call that waits.
void NeverWaits(Party& party) {
  const int other = std::exchange(party.fd, Accept(party.beside(), nullptr));
  SetTimeout(party, "SO_RCVTIMEO", SO_RCVTIMEO, {-1, 0});
  SetTimeout(party, "SO_SNDTIMEO", SO_SNDTIMEO, {-1, 0});
  for (int i = 0; i < kWarmUp; ++i) {
    pollfd fd{party.fd, POLLIN, 0};
    char byte = 0;
    if (poll(&fd, 1, kLong) != 1 || recv(party.fd, &byte, 1, 0) != 1) _exit(3);
    if (send(party.fd, &byte, 1, 0) != 1) _exit(3);
  }
  Receive(party, "recv at once", 10);
  Receive(party, "all at once", 10, MSG_WAITALL);
  const std::vector<char> bytes = Bytes(0, kMoreThanRoom);
  const ssize_t sent = send(party.fd, bytes.data(), bytes.size(), 0);
  party.Say("some", sent > 0 && sent < std::ssize(bytes) ? 1 : 0);
  party.Tell(sent);
  party.Meet();
  close(std::exchange(party.fd, other));
}
void ReadsWhatWent(Party& party) {
  const int other = std::exchange(party.fd, Connect(party.beside(), nullptr));
  WarmUp(party.fd, true);
  const auto count = static_cast<std::size_t>(party.Hear());
  std::vector<char> bytes(count);
  const ssize_t got = recv(party.fd, bytes.data(), count, MSG_WAITALL);
  party.Say("all of it", got == std::ssize(bytes) && bytes == Bytes(0, count) ? 1 : 0);
  party.Meet();
  close(std::exchange(party.fd, other));
}

// A connection has them from its listener.
void HasListenersTimeout(Party& party) {
  const int other =
      std::exchange(party.fd, Accept(party.beside(), [](int listener) {
                      const timeval wait{0, 700'000};
                      setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
                    }));
  WarmUp(party.fd, false);
  Receive(party, "recv", 10);
  close(std::exchange(party.fd, other));
  party.Meet();
}
void IsSilent(Party& party) {
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  party.Meet();
  close(fd);
}

// --- as programs call it that are compiled with -D_FORTIFY_SOURCE

void SendsToFortified(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
}
void IsFortified(Party& party) {
  pollfd fd{party.fd, POLLIN, 0};
  const timespec wait{kLong / 1000, 0};
  party.Say("__poll_chk, nothing", __poll_chk(&fd, 1, 0, sizeof(fd)));
  party.Meet();
  party.Say("__poll_chk", __poll_chk(&fd, 1, kLong, sizeof(fd)));
  party.Say("__ppoll_chk", __ppoll_chk(&fd, 1, &wait, nullptr, sizeof(fd)));
  std::vector<char> bytes(50, 'U');
  party.SayBytes("__read_chk", __read_chk(party.fd, bytes.data(), 20, 50), bytes);
  party.SayBytes("__recv_chk", __recv_chk(party.fd, bytes.data(), 30, 50, MSG_WAITALL), bytes);
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  party.SayBytes("__recvfrom_chk",
                 __recvfrom_chk(party.fd, bytes.data(), 50, 50, 0,
                                reinterpret_cast<sockaddr*>(&address), &length),
                 bytes);
  party.Say("its address", length);
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kFlagScenarios = {
    {"cut off", SendsForNobody, CutsOff},
    {"cut off, the other way", CutsOff, SendsForNobody},
    {"a look at many", SendsMany, LooksAtMany},
    {"a look at many, the other way", LooksAtMany, SendsMany},
    {"more to come", SendsMore, ReceivesMore},
    {"several messages, one wrong", SendsWrongMessages, ReceivesRightMessages},
    {"several messages, and little room", SendsInLittleRoom, ReceivesSlowly},
    {"pieces", SendsPieces, ReceivesPieces},
    {"pieces, the other way", ReceivesPieces, SendsPieces},
    {"too much", WritesTooMuch, ReadsTooMuch},
    {"too much, the other way", ReadsTooMuch, WritesTooMuch},
    {"nothing", SendsNothing, ReceivesNothing},
    {"sendfile of this and that", SendsFiles, ReceivesFiles},
    {"splice into it", SplicesInto, ReceivesSpliced},
    {"times to read", ReadsForATime, WritesInTime},
    {"times to write", WritesForATime, ReadsAllOfIt},
    {"no time from the beginning", ReadsWhatWent, NeverWaits, 2},
    {"times of the listener", IsSilent, HasListenersTimeout, 2},
    {"fortified", SendsToFortified, IsFortified},
};

}  // namespace rdfs::sock
