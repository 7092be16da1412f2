// uring_main SCENARIO: two processes that talk over TCP until both ends would be moved under
// rdsock, and then one of them gives its ring of liburing something to do: bytes have to come where
// it waits for them. Exit 77: there is no io_uring here.
#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>

namespace {

constexpr int kPairs = 100;
constexpr std::string_view kAnswer = "answer";

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

io_uring_sqe* Request(io_uring& ring) {
  io_uring_sqe* const request = io_uring_get_sqe(&ring);
  if (request == nullptr) Fail("no room in the ring");
  return request;
}
// What the next request that ends has come to.
int Await(io_uring& ring) {
  __kernel_timespec wait{.tv_sec = 5, .tv_nsec = 0};
  io_uring_cqe* done = nullptr;
  if (io_uring_wait_cqe_timeout(&ring, &done, &wait) != 0) Fail("nothing came by io_uring");
  const int result = done->res;
  io_uring_cqe_seen(&ring, done);
  return result;
}
void Submit(io_uring& ring) {
  if (io_uring_submit(&ring) != 1) Fail("cannot submit");
}
void ReceiveAnswer(int fd) {
  std::array<char, 8> bytes{};
  const ssize_t got = recv(fd, bytes.data(), kAnswer.size(), MSG_WAITALL);
  if (got != static_cast<ssize_t>(kAnswer.size()) || kAnswer != bytes.data()) Fail("wrong bytes");
}
void Ready(int fd) {
  const char byte = 'r';
  if (send(fd, &byte, 1, 0) != 1) Fail("no send");
}

// Each is run by who has accepted; the other end sends the answer when it has heard Ready.

void Receives(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<char, 8> bytes{};
  Ready(fd);
  io_uring_prep_recv(Request(ring), fd, bytes.data(), kAnswer.size(), MSG_WAITALL);
  Submit(ring);
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
  if (kAnswer != bytes.data()) Fail("wrong bytes");
}

// Those of a table, and asked for by the call that waits.
void ReceivesByPlace(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<char, 8> bytes{};
  if (io_uring_register_files(&ring, &fd, 1) != 0) Fail("cannot register");
  Ready(fd);
  io_uring_sqe* const request = Request(ring);
  io_uring_prep_recv(request, 0, bytes.data(), kAnswer.size(), MSG_WAITALL);
  request->flags |= IOSQE_FIXED_FILE;
  if (io_uring_submit_and_wait(&ring, 1) != 1) Fail("cannot submit");
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
  if (io_uring_unregister_files(&ring) != 0) Fail("cannot unregister");
}

// Past liburing, whose ring it is.
void ReceivesBySystemCall(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<char, 8> bytes{};
  Ready(fd);
  io_uring_prep_recv(Request(ring), fd, bytes.data(), kAnswer.size(), MSG_WAITALL);
  ring.sq.array[0] = 0;
  io_uring_smp_store_release(ring.sq.ktail, 1U);
  if (io_uring_enter(static_cast<unsigned>(ring.ring_fd), 1, 0, 0, nullptr) != 1) Fail("no enter");
  ring.sq.sqe_head = ring.sq.sqe_tail;
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
}

void ReceivesByNumber(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<char, 8> bytes{};
  Ready(fd);
  io_uring_prep_recv(Request(ring), fd, bytes.data(), kAnswer.size(), MSG_WAITALL);
  ring.sq.array[0] = 0;
  io_uring_smp_store_release(ring.sq.ktail, 1U);
  if (syscall(SYS_io_uring_enter, ring.ring_fd, 1, 0, 0, nullptr, 0) != 1) Fail("no enter");
  ring.sq.sqe_head = ring.sq.sqe_tail;
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
}

// Put into a table of none by a request.
void ReceivesByPlaceGivenLater(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<char, 8> bytes{};
  int table = -1;
  if (io_uring_register_files(&ring, &table, 1) != 0) Fail("cannot register");
  io_uring_prep_files_update(Request(ring), &fd, 1, 0);
  Submit(ring);
  if (Await(ring) != 1) Fail("cannot update");
  Ready(fd);
  io_uring_sqe* const request = Request(ring);
  io_uring_prep_recv(request, 0, bytes.data(), kAnswer.size(), MSG_WAITALL);
  request->flags |= IOSQE_FIXED_FILE;
  Submit(ring);
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
  if (io_uring_unregister_files(&ring) != 0) Fail("cannot unregister");
}

// The second of two requests in a ring of wide ones.
void ReceivesByWideRing(io_uring&, int fd) {
  io_uring ring{};
  if (io_uring_queue_init(4, &ring, IORING_SETUP_SQE128) != 0) Fail("no wide ring");
  Talk(fd, false);
  std::array<char, 8> bytes{};
  Ready(fd);
  io_uring_prep_nop(Request(ring));
  io_uring_prep_recv(Request(ring), fd, bytes.data(), kAnswer.size(), MSG_WAITALL);
  if (io_uring_submit(&ring) != 2 || Await(ring) != 0) Fail("cannot submit");
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
}

// Out of the connection, into a pipe.
void Splices(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) Fail("no pipe");
  Ready(fd);
  io_uring_prep_splice(Request(ring), fd, -1, ends[1], -1, kAnswer.size(), 0);
  Submit(ring);
  if (Await(ring) != static_cast<int>(kAnswer.size())) Fail("not all came by io_uring");
  std::array<char, 8> bytes{};
  if (read(ends[0], bytes.data(), bytes.size()) != static_cast<ssize_t>(kAnswer.size())) {
    Fail("not all came by the pipe");
  }
}

// Asked for before there was anything to move.
void PollsFromTheBegin(io_uring& ring, int fd) {
  char byte = 0;
  if (recv(fd, &byte, 1, MSG_PEEK) != 1) Fail("no recv");
  io_uring_prep_poll_add(Request(ring), fd, POLLRDHUP);
  Submit(ring);
  Talk(fd, false);
  Ready(fd);
  ReceiveAnswer(fd);
  Ready(fd);  // for the end
  if ((Await(ring) & POLLRDHUP) == 0) Fail("no end told by io_uring");
}

void PollsSet(io_uring& ring, int fd) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) Fail("no epoll");
  for (int i = 0; i < kPairs; ++i) {
    char byte = 0;
    if (epoll_wait(set, &event, 1, 1000) != 1 || recv(fd, &byte, 1, 0) != 1) Fail("no recv");
    if (send(fd, &byte, 1, 0) != 1) Fail("no send");
  }
  io_uring_prep_poll_add(Request(ring), set, POLLIN);
  Submit(ring);
  Ready(fd);
  if ((Await(ring) & POLLIN) == 0) Fail("the set is not ready");
  if (epoll_wait(set, &event, 1, 1000) != 1 || event.data.fd != fd) Fail("the set tells nothing");
  ReceiveAnswer(fd);
}

// By a request, which epoll_ctl(2) does not see.
void FillsSet(io_uring& ring, int fd) {
  Talk(fd, false);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  io_uring_prep_epoll_ctl(Request(ring), set, fd, EPOLL_CTL_ADD, &event);
  Submit(ring);
  if (Await(ring) != 0) Fail("cannot add");
  Ready(fd);
  if (epoll_wait(set, &event, 1, 5000) != 1 || event.data.fd != fd) Fail("the set tells nothing");
  ReceiveAnswer(fd);
}

// A file's, which is nothing to the connection.
void WritesFile(io_uring& ring, int fd) {
  const int file = memfd_create("file", MFD_CLOEXEC);
  for (int i = 0; i < 3; ++i) {
    Talk(fd, false);
    io_uring_prep_write(Request(ring), file, "content", 7, static_cast<unsigned>(7 * i));
    Submit(ring);
    if (Await(ring) != 7) Fail("not written");
    if (i < 2) continue;
    Ready(fd);
    ReceiveAnswer(fd);
  }
  if (lseek(file, 0, SEEK_END) != 21) Fail("not all written");
}

// Another process receives it, which has no library that it was told to.
void HandsOn(io_uring& ring, int fd) {
  Talk(fd, false);
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) Fail("no socket pair");
  char byte = 'f';
  iovec piece{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &fd, sizeof(fd));
  if (io_uring_register_files(&ring, ends.data(), 1) != 0) Fail("cannot register");
  io_uring_sqe* const request = Request(ring);
  io_uring_prep_sendmsg(request, 0, &message, 0);
  request->flags |= IOSQE_FIXED_FILE;
  Submit(ring);
  if (Await(ring) != 1) Fail("not sent");
  control = {};
  if (recvmsg(ends[1], &message, 0) != 1) Fail("not received");
  int passed = -1;
  memcpy(&passed, CMSG_DATA(head), sizeof(passed));
  Ready(fd);
  ReceiveAnswer(passed);  // no number that the library knows
  close(passed);
}

// A place in a table, by requests that have other things where most have a descriptor: nothing that
// concerns the connection, or the set that is number 0.
void ClosesPlace(io_uring& ring, int fd) {
  constexpr unsigned kFutexWait = 51;  // IORING_OP_FUTEX_WAIT
  constexpr int kFlags = 130;          // private, of 32 bits
  if (dup2(fd, kFlags) != kFlags) Fail("no descriptor");
  Talk(fd, false);
  if (close(0) != 0 || epoll_create1(EPOLL_CLOEXEC) != 0) Fail("number 0 is not free");
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(0, EPOLL_CTL_ADD, fd, &event) != 0) Fail("no epoll");
  const int file = memfd_create("file", MFD_CLOEXEC);
  if (io_uring_register_files(&ring, &file, 1) != 0) Fail("cannot register");
  io_uring_prep_close_direct(Request(ring), 0);
  Submit(ring);
  if (Await(ring) != 0) Fail("not closed");
  std::uint32_t word = 1;
  io_uring_sqe* const request = Request(ring);
  io_uring_prep_rw(kFutexWait, request, kFlags, &word, 0, 2);
  request->addr3 = ~0U;
  Submit(ring);
  (void)Await(ring);  // a value that it has not, or a kernel that has no such request
  Ready(fd);
  if (epoll_wait(0, &event, 1, 5000) != 1) Fail("the set tells nothing");
  ReceiveAnswer(fd);
  close(kFlags);
}

// One thread submits while another waits with a time, which is nothing to what is being filled in.
void WaitsBeside(io_uring& ring, int fd) {
  if ((ring.features & IORING_FEAT_EXT_ARG) == 0) Fail("an older kernel");
  Talk(fd, false);
  io_uring small{};
  std::array<int, 2> ends{};
  if (io_uring_queue_init(1, &small, 0) != 0) Fail("no ring");
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends.data()) != 0) Fail("no socket pair");
  std::atomic<int> done{0};
  std::thread waiter([&] {
    while (done < 3) {
      __kernel_timespec wait{.tv_sec = 0, .tv_nsec = 1'000'000};
      io_uring_cqe* entry = nullptr;
      if (io_uring_wait_cqe_timeout(&small, &entry, &wait) != 0) continue;
      io_uring_cqe_seen(&small, entry);
      ++done;
    }
  });
  for (int i = 0; i < 3; ++i) {
    io_uring_sqe* const request = Request(small);
    usleep(20'000);  // has what was there before: a message whose memory is gone
    void* const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* const message = new (page) msghdr{};
    char byte = 'x';
    iovec piece{&byte, 1};
    message->msg_iov = &piece;
    message->msg_iovlen = 1;
    io_uring_prep_sendmsg(request, ends[0], message, 0);
    Submit(small);
    while (done == i) usleep(100);
    munmap(page, 4096);
  }
  waiter.join();
  Ready(fd);
  ReceiveAnswer(fd);
}

void Closes(io_uring& ring, int fd) {
  Talk(fd, false);
  Ready(fd);
  ReceiveAnswer(fd);
  const int copy = dup(fd);  // main closes it
  io_uring_prep_close(Request(ring), fd);
  Submit(ring);
  if (Await(ring) != 0) Fail("not closed");
  if (dup2(copy, fd) != fd || close(copy) != 0) Fail("no descriptor");
}

struct Scenario {
  std::string_view name;
  void (*answer)(io_uring&, int);
  int talks = 1;
  bool hears_end = false;
};
constexpr auto kScenarios = std::to_array<Scenario>({
    {"receives", Receives},
    {"receives-by-place", ReceivesByPlace},
    {"receives-by-place-given-later", ReceivesByPlaceGivenLater},
    {"receives-by-system-call", ReceivesBySystemCall},
    {"receives-by-number", ReceivesByNumber},
    {"receives-by-wide-ring", ReceivesByWideRing},
    {"splices", Splices},
    {"polls-from-the-begin", PollsFromTheBegin, 1, true},
    {"polls-set", PollsSet},
    {"fills-set", FillsSet},
    {"writes-file", WritesFile, 3},
    {"hands-on", HandsOn},
    {"closes-place", ClosesPlace},
    {"waits-beside", WaitsBeside},
    {"closes", Closes},
});

void Ask(const sockaddr_in& address, const Scenario& scenario) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    Fail("no connection");
  }
  for (int i = 0; i < scenario.talks; ++i) Talk(fd, true);
  char byte = 0;
  if (recv(fd, &byte, 1, 0) != 1) Fail("not ready");
  if (send(fd, kAnswer.data(), kAnswer.size(), 0) != static_cast<ssize_t>(kAnswer.size())) {
    Fail("no send");
  }
  if (scenario.hears_end) {
    if (recv(fd, &byte, 1, 0) != 1 || shutdown(fd, SHUT_WR) != 0) Fail("no shutdown");
  }
  if (recv(fd, &byte, 1, 0) != 0) Fail("no end");
}

}  // namespace

int main(int argc, char** argv) {
  const Scenario* scenario = nullptr;
  for (const Scenario& known : kScenarios) {
    if (argc == 2 && known.name == argv[1]) scenario = &known;
  }
  if (scenario == nullptr) Fail("which scenario?");
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
    Ask(address, *scenario);
    _exit(0);
  }
  const int fd = accept(listener, nullptr, nullptr);
  scenario->answer(ring, fd);
  close(fd);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
