// The two ends of a TCP connection that is measured, with blocking calls as simple programs make
// them. `talk serve [ADDRESS]` prints its port and serves one connection: it echoes messages of 64
// bytes, or takes what comes. `talk echo PORT SECONDS [ADDRESS]` prints round trips a second, `talk
// stream PORT SECONDS [ADDRESS]` bytes a second, in writes of 1 MiB.
// `talk accept` prints its port and closes each connection that it accepts; `talk connect PORT
// COUNT` makes so many, waits for the end of each, closes it, and prints how many a second.
// `talk keep COUNT` prints its port and echoes a little on each of so many connections; `talk open
// PORT COUNT` opens them, and says so. Then both keep them and do nothing until they are killed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMessage = 64;
constexpr const char* kHere = "127.0.0.1";
using Clock = std::chrono::steady_clock;

sockaddr_in Address(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = inet_addr(host);
  return address;
}

void Must(bool good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

// Prints its port.
int Listen(const char* host = kHere) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Address(host, 0);
  socklen_t size = sizeof(address);
  Must(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  Must(listen(listener, 128) == 0, "listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return listener;
}

int Accept(int listener) {
  const int fd = accept(listener, nullptr, nullptr);
  Must(fd >= 0, "accept");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

int Connect(int port, const char* host = kHere) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Address(host, port);
  Must(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

// The first byte says what the client wants: 'e' in each message, or 's' once and then anything.
int Serve(const char* host) {
  const int fd = Accept(Listen(host));
  std::vector<char> bytes(1 << 20);
  ssize_t got = recv(fd, bytes.data(), kMessage, MSG_WAITALL);
  if (got <= 0) return 1;
  if (bytes[0] == 'e') {
    while (got == kMessage && send(fd, bytes.data(), kMessage, 0) == kMessage) {
      got = recv(fd, bytes.data(), kMessage, MSG_WAITALL);
    }
    return 0;
  }
  while (recv(fd, bytes.data(), bytes.size(), 0) > 0) {
  }
  return 0;
}

int AcceptAll() {
  const int listener = Listen();
  for (;;) close(Accept(listener));
}

int ConnectOften(int port, int count) {
  const auto one = [&] {
    const int fd = Connect(port);
    char end = 0;
    Must(read(fd, &end, 1) == 0, "the end");
    close(fd);
  };
  for (int i = 0; i < 100; ++i) one();
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) one();
  const std::chrono::duration<double> passed = Clock::now() - start;
  printf("%f\n", count / passed.count());
  return 0;
}

// On each connection enough for both ends to have met.
constexpr int kEchoes = 100;

int Keep(int count) {
  const int listener = Listen();
  char message[kMessage];
  for (int i = 0; i < count; ++i) {
    const int fd = Accept(listener);
    for (int k = 0; k < kEchoes; ++k) {
      Must(recv(fd, message, kMessage, MSG_WAITALL) == kMessage, "recv");
      Must(send(fd, message, kMessage, 0) == kMessage, "send");
    }
  }
  return pause();
}

int Open(int port, int count) {
  char message[kMessage] = {};
  for (int i = 0; i < count; ++i) {
    const int fd = Connect(port);
    for (int k = 0; k < kEchoes; ++k) {
      Must(send(fd, message, kMessage, 0) == kMessage, "send");
      Must(recv(fd, message, kMessage, MSG_WAITALL) == kMessage, "recv");
    }
  }
  printf("open\n");
  fflush(stdout);
  return pause();
}

int Talk(bool echo, int port, double seconds, const char* host) {
  const int fd = Connect(port, host);
  std::vector<char> bytes(echo ? kMessage : 1 << 20, echo ? 'e' : 's');
  const auto step = [&] {
    ssize_t went = send(fd, bytes.data(), bytes.size(), 0);
    if (echo && went > 0) went = recv(fd, bytes.data(), kMessage, MSG_WAITALL);
    Must(went > 0, "the connection");
    return static_cast<double>(echo ? 1 : went);
  };
  for (int i = 0; i < 200; ++i) step();  // both ends have met
  const auto start = Clock::now();
  double done = 0;
  std::chrono::duration<double> passed{};
  while (passed.count() < seconds) {
    for (int i = 0; i < (echo ? 200 : 1); ++i) done += step();
    passed = Clock::now() - start;
  }
  close(fd);  // rsocket leaves it to the program
  printf("%f\n", done / passed.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "serve") return Serve(argc > 2 ? argv[2] : kHere);
  if (what == "accept") return AcceptAll();
  if (what == "keep" && argc == 3) return Keep(atoi(argv[2]));
  if (what == "connect" && argc == 4) return ConnectOften(atoi(argv[2]), atoi(argv[3]));
  if (what == "open" && argc == 4) return Open(atoi(argv[2]), atoi(argv[3]));
  if (argc < 4 || (what != "echo" && what != "stream")) return 2;
  return Talk(what == "echo", atoi(argv[2]), atof(argv[3]), argc > 4 ? argv[4] : kHere);
}
