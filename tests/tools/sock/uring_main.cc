// Two processes over TCP, one of which receives by liburing: bytes have to come where it waits for
// them. Run under rdsock, by which both would be moved. Exit 77: there is no io_uring here.
#include <arpa/inet.h>
#include <liburing.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace {

constexpr int kPairs = 100;

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "uring: %s\n", what);
  _exit(1);
}

void Talk(int fd, bool first) {
  char byte = 'x';
  for (int i = 0; i < kPairs; ++i) {
    if (first && send(fd, &byte, 1, 0) != 1) Fail("no send");
    if (recv(fd, &byte, 1, 0) != 1) Fail("no recv");
    if (!first && send(fd, &byte, 1, 0) != 1) Fail("no send");
  }
}

void Ask(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    Fail("no connection");
  }
  Talk(fd, true);
  if (send(fd, "answer", 6, 0) != 6) Fail("no send");
  char byte = 0;
  if (recv(fd, &byte, 1, 0) != 0) Fail("no end");
}

void Answer(io_uring& ring, int fd) {
  Talk(fd, false);
  char bytes[6] = {};
  io_uring_sqe* const asked = io_uring_get_sqe(&ring);
  io_uring_prep_recv(asked, fd, bytes, sizeof(bytes), MSG_WAITALL);
  io_uring_submit(&ring);
  __kernel_timespec wait{.tv_sec = 5, .tv_nsec = 0};
  io_uring_cqe* got = nullptr;
  if (io_uring_wait_cqe_timeout(&ring, &got, &wait) != 0) Fail("nothing came by io_uring");
  if (got->res != 6) Fail("not all came by io_uring");
}

}  // namespace

int main() {
  io_uring ring{};
  if (io_uring_queue_init(4, &ring, 0) != 0) return 77;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Fail("no listener");
  }
  const pid_t child = fork();
  if (child == 0) {
    Ask(address);
    _exit(0);
  }
  const int fd = accept(listener, nullptr, nullptr);
  Answer(ring, fd);
  close(fd);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
