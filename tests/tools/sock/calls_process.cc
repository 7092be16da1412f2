// Scenarios of descriptors and processes: copies, fork, exec, stdio, passing a socket on.
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tests/tools/sock/calls.h"

// What <stdio.h> leads dprintf to there.
extern "C" int __dprintf_chk(int fd, int flag, const char* format, ...);

namespace rdfs::sock {
namespace {

void SendOn(Party& party, int fd, std::size_t from, std::size_t count) {
  const std::vector<char> bytes = Bytes(from, count);
  party.Say("send", send(fd, bytes.data(), count, MSG_NOSIGNAL));
}
void Recv(Party& party, int fd, std::size_t size) {
  std::vector<char> bytes(size);
  const ssize_t got = recv(fd, bytes.data(), size, MSG_WAITALL);
  party.SayBytes("recv", got, bytes);
}
void SayEnd(Party& party, pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("the child's status", status);
}

// The other end of what follows: 1000 bytes of the stream, then the end, and an answer.
void Hears(Party& party) {
  Recv(party, party.fd, 1000);
  Recv(party, party.fd, 10);
  Send(party, 0, 500);
  party.Meet();
}
void Ends(Party& party, int fd) {
  party.Say("shutdown", shutdown(fd, SHUT_WR));
  Recv(party, fd, 500);
  party.Meet();
}

void Copies(Party& party) {
  Send(party, 0, 100);
  const int copy = dup(party.fd);
  SendOn(party, copy, 100, 100);
  const int high = fcntl(copy, F_DUPFD_CLOEXEC, 100);
  party.Say("close", close(party.fd));
  party.Say("close again", close(party.fd));
  SendOn(party, high, 200, 100);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  party.Say("over it", dup2(null, copy) == copy);
  party.Say("into nothing", write(copy, "x", 1));
  party.Say("back", dup3(high, copy, O_CLOEXEC) == copy);
  SendOn(party, copy, 300, 700);
  close(null);
  close(high);
  party.fd = copy;
  Ends(party, copy);
}

// The same without the C library's functions for it.
void CopiesByNumber(Party& party) {
  Send(party, 0, 200);
  const auto high = static_cast<int>(syscall(SYS_fcntl, party.fd, F_DUPFD_CLOEXEC, 100));
  SendOn(party, high, 200, 300);
  const auto copy = static_cast<int>(syscall(SYS_dup, party.fd));
  SendOn(party, copy, 500, 200);
  party.Say("close", close(copy));
  Send(party, 700, 100);
  SendOn(party, high, 800, 200);
  party.Say("close", close(party.fd));
  party.fd = high;
  Ends(party, high);
}

// Another file takes the number of a connection that is closed by a system call.
constexpr int kWays = 3;
void Overtakes(Party& party) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int way = 0; way < kWays; ++way) {
    const int fd = Connect(party.beside(), nullptr);
    WarmUp(fd, true);
    SendOn(party, fd, 0, 100);
    if (way == 0) party.Say("dup3", syscall(SYS_dup3, null, fd, O_CLOEXEC) == fd);
#ifdef SYS_dup2
    if (way == 1) party.Say("dup2", syscall(SYS_dup2, null, fd) == fd);
#endif
    if (way == 2) party.Say("close_range", syscall(SYS_close_range, fd, fd, 0));
    if (way == 2) party.Say("its number", open("/dev/null", O_RDWR | O_CLOEXEC) == fd);
    char byte = 0;
    party.Say("read of /dev/null", read(fd, &byte, 1));
    party.Say("write to it", write(fd, &byte, 1));
    party.Say("close", close(fd));
    party.Meet();
  }
  close(null);
}
void IsOvertaken(Party& party) {
  for (int way = 0; way < kWays; ++way) {
    const int fd = Accept(party.beside(), nullptr);
    WarmUp(fd, false);
    Recv(party, fd, 100);
    Recv(party, fd, 10);
    close(fd);
    party.Meet();
  }
}

// Both write, one after the other, and then the child reads.
void Forks(Party& party) {
  Send(party, 0, 200);
  for (std::size_t at = 200; at < 1000; at += 400) {
    const pid_t child = fork();
    if (child == 0) {
      const std::vector<char> bytes = Bytes(at, 200);
      _exit(send(party.fd, bytes.data(), 200, 0) == 200 ? 0 : 1);
    }
    SayEnd(party, child);
    Send(party, at + 200, 200);
  }
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char> bytes(300);
    const bool good = recv(party.fd, bytes.data(), 300, MSG_WAITALL) == 300;
    _exit(good && bytes == Bytes(0, 300) ? 0 : 1);
  }
  SayEnd(party, child);
  Recv(party, party.fd, 200);
  Recv(party, party.fd, 10);
  party.Meet();
}
void HearsForks(Party& party) {
  Recv(party, party.fd, 1000);
  Recv(party, party.fd, 10);
  Send(party, 0, 500);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}

// The parent only forks, as a server does.
void Serves(Party& party) {
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<char> bytes = Bytes(0, 1000);
    const bool sent = send(party.fd, bytes.data(), 1000, 0) == 1000;
    shutdown(party.fd, SHUT_WR);
    std::vector<char> answer(500);
    const bool heard = recv(party.fd, answer.data(), 500, MSG_WAITALL) == 500;
    _exit(sent && heard && answer == Bytes(0, 500) ? 0 : 1);
  }
  party.Say("close", close(party.fd));
  party.fd = -1;
  SayEnd(party, child);
  party.Meet();
}

// Closed by a child that sees no other process, with bytes unread: its parent reads them. (Where
// nobody may make a PID namespace the child says so.)
void IsClosedApart(Party& party) {
  party.Meet();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(2);
    const pid_t apart = fork();
    if (apart == 0) _exit(close(party.fd) == 0 ? 0 : 1);
    int status = -1;
    _exit(waitpid(apart, &status, 0) == apart && status == 0 ? 0 : 1);
  }
  SayEnd(party, child);
  Recv(party, party.fd, 100);
  Send(party, 0, 100);
  party.Say("close", close(party.fd));
  party.fd = -1;
  party.Meet();
}
void HearsOneThatIsClosedApart(Party& party) {
  Send(party, 0, 100);
  party.Meet();
  Recv(party, party.fd, 100);
  Recv(party, party.fd, 10);
  party.Meet();
}

constexpr const char* kWrite500 = "head -c 500 /dev/zero";

// A child that writes when it is told to.
struct Writer {
  int fd, go;

  [[nodiscard]] int Run() const {
    const std::vector<char> bytes = Bytes(500, 500);
    char byte = 0;
    if (read(go, &byte, 1) != 1) return 1;
    return send(fd, bytes.data(), 500, 0) == 500 ? 0 : 2;
  }
};
pid_t BySystemCall(const Writer& writer) {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) _exit(writer.Run());
  return child;
}
pid_t ByUnderscoreFork(const Writer& writer) {
  const pid_t child = _Fork();
  if (child == 0) _exit(writer.Run());
  return child;
}
pid_t ByClone(const Writer& writer) {
  alignas(16) static std::array<char, 65536> stack;
  const auto run = [](void* its) { return static_cast<const Writer*>(its)->Run(); };
  return clone(run, stack.data() + stack.size(), SIGCHLD, const_cast<Writer*>(&writer));
}

// Both processes have a connection when it would be moved.
template <pid_t (*make)(const Writer&)>
void Shares(Party& party) {
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) _exit(3);
  const int fd = Connect(party.beside(), nullptr);
  const pid_t child = make({fd, go[0]});
  WarmUp(fd, true);
  SendOn(party, fd, 0, 500);
  party.Say("go", write(go[1], "x", 1));
  SayEnd(party, child);
  party.Say("shutdown", shutdown(fd, SHUT_WR));
  Recv(party, fd, 500);
  for (const int open : {fd, go[0], go[1]}) close(open);
  party.Meet();
}
// Both processes, and both descriptors, have a socket before it is connected.
std::array<int, 2> go_early;
pid_t early_child;
int early_copy;
void SharesEarly(Party& party) {
  if (pipe2(go_early.data(), O_CLOEXEC) != 0) _exit(3);
  const int fd = Connect(party.beside(), [](int socket) {
    early_child = fork();
    if (early_child == 0) _exit(Writer{socket, go_early[0]}.Run());
  });
  WarmUp(fd, true);
  SendOn(party, fd, 0, 500);
  party.Say("go", write(go_early[1], "x", 1));
  SayEnd(party, early_child);
  party.Say("shutdown", shutdown(fd, SHUT_WR));
  Recv(party, fd, 500);
  for (const int open : {fd, go_early[0], go_early[1]}) close(open);
  party.Meet();
}
void CopiesEarly(Party& party) {
  const int fd = Connect(party.beside(), [](int socket) { early_copy = dup(socket); });
  WarmUp(fd, true);
  SendOn(party, fd, 0, 500);
  SendOn(party, early_copy, 500, 500);
  party.Say("shutdown", shutdown(early_copy, SHUT_WR));
  Recv(party, early_copy, 500);
  close(fd);
  close(early_copy);
  party.Meet();
}

void HearsAnother(Party& party) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  Recv(party, fd, 1000);
  Recv(party, fd, 10);
  SendOn(party, fd, 0, 500);
  close(fd);
  party.Meet();
}

// Without a child in the end.
void FailsToFork(Party& party) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{};
    if (geteuid() == 0 && setresuid(1, 1, 1) != 0) _exit(1);
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(2);
    const int fd = Connect(party.beside(), nullptr);
    if (fork() >= 0) _exit(4);
    WarmUp(fd, true);
    const std::vector<char> bytes = Bytes(0, 1000);
    if (send(fd, bytes.data(), 1000, 0) != 1000) _exit(5);
    if (shutdown(fd, SHUT_WR) != 0) _exit(6);
    std::vector<char> answer(500);
    if (recv(fd, answer.data(), 500, MSG_WAITALL) != 500) _exit(7);
    _exit(answer == Bytes(0, 500) ? 0 : 8);
  }
  SayEnd(party, child);
  party.Meet();
}

// A program that knows nothing of the library, nor of sockets, writes into it.
void Executes(Party& party) {
  Send(party, 0, 500);
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("LD_PRELOAD");
    dup2(party.fd, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", kWrite500, nullptr);
    _exit(127);
  }
  SayEnd(party, child);
  Ends(party, party.fd);
}

void Spawns(Party& party) {
  Send(party, 0, 500);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // posix_spawn copies what the child is to have; the socket itself closes on exec.
  const int copy = dup(party.fd);
  posix_spawn_file_actions_adddup2(&actions, copy, STDOUT_FILENO);
  char shell[] = "sh";
  char option[] = "-c";
  char* const arguments[] = {shell, option, const_cast<char*>(kWrite500), nullptr};
  pid_t child = -1;
  party.Say("posix_spawn", posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ));
  posix_spawn_file_actions_destroy(&actions);
  SayEnd(party, child);
  close(copy);
  Ends(party, party.fd);
}

// The socket itself, which closes on exec, as standard output; the same actions twice.
void SpawnsItself(Party& party) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, party.fd, STDOUT_FILENO);
  char shell[] = "sh";
  char option[] = "-c";
  char* const arguments[] = {shell, option, const_cast<char*>(kWrite500), nullptr};
  for (int i = 0; i < 2; ++i) {
    pid_t child = -1;
    party.Say("posix_spawn", posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ));
    SayEnd(party, child);
  }
  posix_spawn_file_actions_destroy(&actions);
  Ends(party, party.fd);
}

// A child of vfork makes it its standard output.
void ExecutesAfterVfork(Party& party) {
  Send(party, 0, 500);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const pid_t child = vfork();
#pragma GCC diagnostic pop
  if (child == 0) {
    dup2(party.fd, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", kWrite500, nullptr);
    _exit(127);
  }
  SayEnd(party, child);
  Ends(party, party.fd);
}

void Streams(Party& party) {
  Send(party, 0, 500);
  FILE* const stream = fdopen(dup(party.fd), "r+");
  const std::vector<char> bytes = Bytes(500, 400);
  party.Say("fwrite", static_cast<long>(fwrite(bytes.data(), 1, 400, stream)));
  party.Say("fflush", fflush(stream));
  party.Say("fclose", fclose(stream));
  party.Say("dprintf", dprintf(party.fd, "%0100d", 7));
  Ends(party, party.fd);
}

// How many descriptors are open is as before once the stream is closed.
int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 8192; ++fd) count += syscall(SYS_fcntl, fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}
void ClosesStream(Party& party) {
  const int before = OpenDescriptors();
  const int fd = Connect(party.beside(), nullptr);
  WarmUp(fd, true);
  FILE* const stream = fdopen(fd, "r+");
  const std::vector<char> bytes = Bytes(0, 1000);
  party.Say("fwrite", static_cast<long>(fwrite(bytes.data(), 1, 1000, stream)));
  party.Say("fflush", fflush(stream));
  party.Say("shutdown", shutdown(fd, SHUT_WR));
  Recv(party, fd, 500);
  party.Say("fclose", fclose(stream));
  party.Say("left open", OpenDescriptors() - before);
  party.Meet();
}

// As programs call it that are compiled with -D_FORTIFY_SOURCE.
void Fortified(Party& party) {
  Send(party, 0, 500);
  party.Say("__dprintf_chk", __dprintf_chk(party.fd, 1, "%0500d", 7));
  Ends(party, party.fd);
}

// Both ends go back to TCP with bytes for the other in the ring: one after the other, or at once.
void StreamsFirst(Party& party) {
  Send(party, 0, 500);
  party.Say("dprintf", dprintf(party.fd, "%0100d", 7));
  party.Meet();
  party.Meet();
  Recv(party, party.fd, 600);
  Ends(party, party.fd);
}
void StreamsSecond(Party& party) {
  Send(party, 0, 500);
  party.Meet();
  party.Say("dprintf", dprintf(party.fd, "%0100d", 8));
  party.Meet();
  Recv(party, party.fd, 600);
  Recv(party, party.fd, 10);
  Send(party, 0, 500);
  party.Meet();
}
void StreamsAtOnce(Party& party) {
  Send(party, 0, 500);
  party.Meet();
  party.Say("dprintf", dprintf(party.fd, "%0100d", 7));
  Recv(party, party.fd, 600);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Recv(party, party.fd, 10);
  party.Meet();
}

// By a thread of the C library's.
void Asynchronous(Party& party) {
  Send(party, 0, 500);
  std::vector<char> bytes = Bytes(500, 500);
  aiocb one{};
  one.aio_fildes = party.fd;
  one.aio_buf = bytes.data();
  one.aio_nbytes = 200;
  const aiocb* const first = &one;
  party.Say("aio_write", aio_write(&one));
  party.Say("aio_suspend", aio_suspend(&first, 1, nullptr));
  party.Say("aio_return", aio_return(&one));
  aiocb rest = one;
  rest.aio_buf = bytes.data() + 200;
  rest.aio_nbytes = 300;
  rest.aio_lio_opcode = LIO_WRITE;
  aiocb* const list[] = {nullptr, &rest};
  party.Say("lio_listio", lio_listio(LIO_WAIT, list, 2, nullptr));
  party.Say("aio_return", aio_return(&rest));
  party.Say("sockatmark", sockatmark(party.fd));
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  std::vector<char> answer(500);
  aiocb in{};
  in.aio_fildes = party.fd;
  in.aio_buf = answer.data();
  in.aio_nbytes = 500;
  const aiocb* const reading = &in;
  party.Say("aio_read", aio_read(&in));
  party.Say("aio_suspend", aio_suspend(&reading, 1, nullptr));
  party.SayBytes("aio_return", aio_return(&in), answer);
  party.Meet();
}

// By the kernel (io_submit(2)).
void AsynchronousInTheKernel(Party& party) {
  Send(party, 0, 500);
  std::vector<char> bytes = Bytes(500, 500);
  aio_context_t context = 0;
  party.Say("io_setup", syscall(SYS_io_setup, 4, &context));
  const auto run = [&](std::uint16_t what, char* to, std::size_t count) {
    iocb one{};
    one.aio_fildes = static_cast<std::uint32_t>(party.fd);
    one.aio_lio_opcode = what;
    one.aio_buf = reinterpret_cast<std::uintptr_t>(to);
    one.aio_nbytes = count;
    iocb* const first = &one;
    party.Say("io_submit", syscall(SYS_io_submit, context, 1, &first));
    io_event done{};
    party.Say("io_getevents", syscall(SYS_io_getevents, context, 1, 1, &done, nullptr));
    return static_cast<ssize_t>(done.res);
  };
  party.Say("a write", run(IOCB_CMD_PWRITE, bytes.data(), bytes.size()));
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  std::vector<char> answer(500);
  party.SayBytes("a read", run(IOCB_CMD_PREAD, answer.data(), answer.size()), answer);
  party.Say("io_destroy", syscall(SYS_io_destroy, context));
  party.Meet();
}

// By their numbers: as if by the functions.
void ByNumber(Party& party) {
  Send(party, 0, 500);
  Recv(party, party.fd, 200);
  int waiting = 0;
  party.Meet();
  party.Say("FIONREAD", syscall(SYS_ioctl, party.fd, FIONREAD, &waiting));
  party.Say("waiting", waiting);
  int on = 1;
  party.Say("FIONBIO", syscall(SYS_ioctl, party.fd, FIONBIO, &on));
  Recv(party, party.fd, 300);
  Recv(party, party.fd, 1);
  on = 0;
  party.Say("FIONBIO", syscall(SYS_ioctl, party.fd, FIONBIO, &on));
  const timeval time{0, 20'000};
  party.Say("SO_RCVTIMEO",
            syscall(SYS_setsockopt, party.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
  Recv(party, party.fd, 1);
  std::vector<char> bytes = Bytes(500, 300);
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  party.Meet();
  party.Say("sendmsg", syscall(SYS_sendmsg, party.fd, &message, 0));
  party.Meet();
  Recv(party, party.fd, 300);
}

// Standard output, written by calls and by its stream.
void IsOutput(Party& party) {
  Send(party, 0, 200);
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<char> bytes = Bytes(200, 800);
    if (dup2(party.fd, STDOUT_FILENO) != STDOUT_FILENO) _exit(1);
    if (write(STDOUT_FILENO, bytes.data(), 300) != 300) _exit(2);
    if (fwrite(bytes.data() + 300, 1, 200, stdout) != 200 || fflush(stdout) != 0) _exit(3);
    _exit(write(STDOUT_FILENO, bytes.data() + 500, 300) == 300 ? 0 : 4);
  }
  SayEnd(party, child);
  Ends(party, party.fd);
}

// A message with room for one descriptor.
struct Descriptor {
  Descriptor() {
    message.msg_iov = &buffer;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void Put(int fd) {
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
  }
  // Of a message that has been received.
  [[nodiscard]] int Get() const {
    int fd = -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
  }

  char byte = 'x';
  iovec buffer{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

// To another process, through a UNIX socket, which answers with it.
template <typename Pass>
void PassesBy(Party& party, const char* call, Pass pass) {
  Send(party, 0, 500);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) _exit(3);
  const pid_t child = fork();
  Descriptor descriptor;
  if (child == 0) {
    close(party.fd);
    if (recvmsg(ends[1], &descriptor.message, 0) != 1) _exit(1);
    const int fd = descriptor.Get();
    const std::vector<char> bytes = Bytes(500, 500);
    _exit(send(fd, bytes.data(), 500, 0) == 500 ? 0 : 1);
  }
  descriptor.Put(party.fd);
  party.Say(call, pass(ends[0], descriptor.message));
  SayEnd(party, child);
  close(ends[0]);
  close(ends[1]);
  Ends(party, party.fd);
}
void Passes(Party& party) {
  PassesBy(party, "sendmsg", [](int to, msghdr& message) { return sendmsg(to, &message, 0); });
}
void PassesAmongMany(Party& party) {
  PassesBy(party, "sendmmsg", [](int to, msghdr& message) {
    mmsghdr messages[1] = {{message, 0}};
    return sendmmsg(to, messages, 1, 0);
  });
}
void PassesByNumber(Party& party) {
  PassesBy(party, "sendmsg", [](int to, msghdr& message) {
    return static_cast<ssize_t>(syscall(SYS_sendmsg, to, &message, 0));
  });
}

// With the other end's bytes unread. A copy in a child is closed while the message holds the
// socket: it is nobody's last.
void PassesBesideACopy(Party& party) {
  int ends[2], closed[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || pipe(closed) != 0) _exit(3);
  Descriptor descriptor;
  party.Meet();
  const pid_t child = fork();
  if (child == 0) {
    if (read(closed[0], &descriptor.byte, 1) != 1 || close(party.fd) != 0) _exit(1);
    if (recvmsg(ends[1], &descriptor.message, 0) != 1) _exit(2);
    const int fd = descriptor.Get();
    std::vector<char> bytes(300);
    if (recv(fd, bytes.data(), 300, MSG_WAITALL) != 300 || bytes != Bytes(0, 300)) _exit(4);
    _exit(send(fd, bytes.data(), 300, 0) == 300 && close(fd) == 0 ? 0 : 5);
  }
  descriptor.Put(party.fd);
  party.Say("sendmsg", sendmsg(ends[0], &descriptor.message, 0));
  party.Say("close", close(party.fd));
  party.fd = -1;
  if (write(closed[1], "x", 1) != 1) _exit(3);
  SayEnd(party, child);
  for (const int fd : {ends[0], ends[1], closed[0], closed[1]}) close(fd);
  party.Meet();
}
void SpeaksFirst(Party& party) {
  Send(party, 0, 300);
  party.Meet();
  Recv(party, party.fd, 300);
  Recv(party, party.fd, 10);
  party.Meet();
}

// Everything above the standard ones is closed, as daemons do; the library's own are not there.
void ClosesAll(Party& party) {
  Send(party, 0, 1000);
  const pid_t child = fork();
  if (child == 0) {
    close_range(3, ~0U, 0);
    const int fd = open("/dev/null", O_RDONLY);
    _exit(fd == 3 ? 0 : 1);
  }
  SayEnd(party, child);
  Ends(party, party.fd);
}

// Whoever makes another system call than the program itself is killed.
void Filters(Party& party) {
  Send(party, 0, 500);
  const pid_t child = fork();
  if (child == 0) {
    const auto allow = [](unsigned number, unsigned char after) {
      return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, after, 0, number};
    };
    sock_filter code[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                          allow(SYS_sendto, 6),
                          allow(SYS_recvfrom, 5),
                          allow(SYS_read, 4),
                          allow(SYS_write, 3),
                          allow(SYS_close, 2),
                          allow(SYS_exit_group, 1),
                          {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS},
                          {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    const sock_fprog program{sizeof(code) / sizeof(*code), code};
    const std::vector<char> bytes = Bytes(500, 500);
    std::vector<char> answer(500);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(1);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) _exit(2);
    if (write(party.fd, bytes.data(), 200) != 200) _exit(3);
    if (send(party.fd, bytes.data() + 200, 300, 0) != 300) _exit(4);
    if (recv(party.fd, answer.data(), 500, MSG_WAITALL) != 500) _exit(5);
    if (close(party.fd) != 0) _exit(6);
    _exit(answer == Bytes(0, 500) ? 0 : 7);
  }
  SayEnd(party, child);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
// Makes no call on the connection until the other end has handed it on.
void IsBusy(Party& party) {
  Send(party, 0, 500);
  party.Meet();
  (void)party.Hear();
  Send(party, 500, 500);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
// Makes none for a while.
void IsBusyForAWhile(Party& party) {
  Send(party, 0, 500);
  party.Meet();
  sleep(2);  // longer than End::kLeaveTimeout
  Send(party, 500, 500);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
void HandsOnAndWaits(Party& party) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) _exit(3);
  Recv(party, party.fd, 100);
  party.Meet();
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("LD_PRELOAD");
    dup2(party.fd, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", "exec cat", nullptr);
    _exit(127);
  }
  close(out[1]);
  std::vector<char> bytes(1000);
  std::size_t all = 0;
  for (ssize_t got = 0; (got = read(out[0], bytes.data() + all, bytes.size() - all)) > 0;) {
    all += static_cast<std::size_t>(got);
  }
  party.SayBytes("the program's output", static_cast<ssize_t>(all), bytes);
  close(out[0]);
  SayEnd(party, child);
  party.Meet();
}
void HandsOn(Party& party) {
  int out[2];
  int gone[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(gone, O_CLOEXEC) != 0) _exit(3);
  Recv(party, party.fd, 100);
  party.Meet();
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("LD_PRELOAD");
    dup2(party.fd, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", "exec cat", nullptr);
    _exit(127);
  }
  close(out[1]);
  close(gone[1]);
  char byte = 0;
  party.Say("until exec", read(gone[0], &byte, 1));
  party.Say("wait", waitpid(-1, nullptr, WNOHANG));
  party.Tell(0);
  std::vector<char> bytes(1000);
  std::size_t all = 0;
  for (ssize_t got = 0; (got = read(out[0], bytes.data() + all, bytes.size() - all)) > 0;) {
    all += static_cast<std::size_t>(got);
  }
  party.SayBytes("the program's output", static_cast<ssize_t>(all), bytes);
  close(out[0]);
  close(gone[0]);
  SayEnd(party, child);
  party.Meet();
}

// Goes back to TCP with bytes unread, closes, and has another connection when the first one's come:
// a process of the library's has waited for them.
void LeavesAndGoesOn(Party& party) {
  Recv(party, party.fd, 100);
  party.Meet();
  party.Say("sockatmark", sockatmark(party.fd));
  party.Say("close", close(std::exchange(party.fd, -1)));
  const int next = Accept(party.beside(), nullptr);
  for (int i = 0; i < 10; ++i) WarmUp(next, false);
  Recv(party, next, 500);
  SendOn(party, next, 0, 500);
  Recv(party, next, 10);
  close(next);
  party.Meet();
}
void OwesAndGoesOn(Party& party) {
  Send(party, 0, 500);
  party.Meet();
  const int next = Connect(party.beside(), nullptr);
  WarmUp(next, true);
  (void)send(party.fd, "x", 1, MSG_NOSIGNAL);
  for (int i = 1; i < 10; ++i, usleep(10'000)) WarmUp(next, true);
  SendOn(party, next, 0, 500);
  Recv(party, next, 500);
  close(next);
  party.Meet();
}

// A look for room, which finds a ring that stays full and is given up, sends nothing: who leaves
// then has all that was in it.
constexpr std::size_t kRing = 16 * 1024;
void LooksForRoom(Party& party) {
  Send(party, 0, kRing, MSG_DONTWAIT);
  SayPoll(party, "room", POLLOUT, 10'000);
  party.Meet();
  Recv(party, party.fd, 100);
  Send(party, kRing, 1000);
  party.Meet();
}
void LeavesFullRing(Party& party) {
  party.Meet();
  party.Say("sockatmark", sockatmark(party.fd));
  Recv(party, party.fd, kRing);
  Send(party, 0, 100);
  Recv(party, party.fd, 1000);
  party.Meet();
}

// Whose last process is killed before it has read a request; the other end may be in recv by then.
void AsksTheDead(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
  Recv(party, party.fd, 10);
  Recv(party, party.fd, 10);
  Send(party, 0, 10);
}
void AsksTheDying(Party& party) {
  party.Meet();
  Send(party, 0, 100);
  party.Meet();
  Recv(party, party.fd, 10);
  Recv(party, party.fd, 10);
  party.Meet();
}
void IsKilled(Party& party) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  close(party.fd);
  party.fd = -1;
  party.Meet();
  party.Meet();
  usleep(20'000);
  kill(child, SIGKILL);
  SayEnd(party, child);
  party.Meet();
}
// Half closed only: what was sent may be read yet.
void ReadsLater(Party& party) {
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
  party.Meet();
  Recv(party, party.fd, 100);
}
void FindsTheEnd(Party& party) {
  Send(party, 0, 100);
  party.Meet();
  party.Meet();
  Recv(party, party.fd, 10);
  party.Meet();
}

void HearsAndAnswers(Party& party) {
  Recv(party, party.fd, 1000);
  Send(party, 0, 500);
  Recv(party, party.fd, 10);
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kProcessScenarios = {
    {"copies", Copies, Hears},
    {"copies by number", CopiesByNumber, Hears},
    {"closed by number", Overtakes, IsOvertaken, 1 + kWays},
    {"fork", Forks, HearsForks},
    {"fork, the other way", HearsForks, Forks},
    {"a child that serves", Hears, Serves},
    {"closed in another PID namespace", IsClosedApart, HearsOneThatIsClosedApart},
    {"clone, by system call", Shares<BySystemCall>, HearsAnother},
    {"_Fork", Shares<ByUnderscoreFork>, HearsAnother},
    {"clone", Shares<ByClone>, HearsAnother},
    {"fork before connect", SharesEarly, HearsAnother},
    {"copies before connect", CopiesEarly, HearsAnother},
    {"a fork that fails", FailsToFork, HearsAnother, 2},
    {"exec", Executes, Hears},
    {"posix_spawn", Spawns, Hears},
    {"posix_spawn of the socket itself", SpawnsItself, Hears},
    {"vfork", ExecutesAfterVfork, Hears},
    {"stdio", Streams, Hears},
    {"fclose", ClosesStream, HearsAnother, 2},
    {"fortified stdio", Fortified, Hears},
    {"stdio at both ends", StreamsFirst, StreamsSecond, 1, true},
    {"stdio at both ends at once", StreamsAtOnce, StreamsAtOnce},
    {"aio", Asynchronous, Hears},
    {"aio in the kernel", AsynchronousInTheKernel, Hears},
    {"calls by number", ByNumber, ByNumber},
    {"a standard stream", IsOutput, Hears},
    {"passed on", Passes, Hears},
    {"passed on by sendmmsg", PassesAmongMany, Hears},
    {"passed on by number", PassesByNumber, Hears},
    {"passed on beside a copy", PassesBesideACopy, SpeaksFirst},
    {"everything closed", ClosesAll, Hears},
    {"handed on while the writer is busy", IsBusy, HandsOn, 1, true},
    {"handed on while the writer is busy for a while", IsBusyForAWhile, HandsOnAndWaits},
    {"left with unread bytes", OwesAndGoesOn, LeavesAndGoesOn, 2, true},
    {"left with a full ring", LooksForRoom, LeavesFullRing},
    {"killed with unread bytes", AsksTheDead, IsKilled},
    {"killed with unread bytes beside recv", AsksTheDying, IsKilled},
    {"shut down with unread bytes", FindsTheEnd, ReadsLater},
    {"a filter of system calls", Filters, HearsAndAnswers},
};

}  // namespace rdfs::sock
