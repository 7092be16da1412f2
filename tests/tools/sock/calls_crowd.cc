// Scenarios of several threads and processes at work at once: many that send and receive on one
// connection, workers that share a listener, daemons, programs that run beside it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <numeric>
#include <thread>
#include <utility>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

// --- many that send, each its records, which nobody takes apart

constexpr int kSenders = 4;  // of each kind
constexpr int kRecords = 24;
constexpr std::size_t kRecord = 64;
using Record = std::array<char, kRecord>;
Record RecordOf(int sender, int number) {
  Record record;
  record.fill(static_cast<char>('a' + sender));
  record[0] = static_cast<char>(sender);
  record[1] = static_cast<char>(number);
  return record;
}
bool SendRecords(int fd, int sender) {
  for (int i = 0; i < kRecords; ++i) {
    const Record record = RecordOf(sender, i);
    if (send(fd, record.data(), kRecord, 0) != static_cast<ssize_t>(kRecord)) return false;
    if (i % 4 == 0) sched_yield();
  }
  return true;
}
// Threads of this process and processes of their own; less than any socket has room for.
void ManySend(Party& party) {
  std::array<pid_t, kSenders> children{};
  for (int i = 0; i < kSenders; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(SendRecords(party.fd, i) ? 0 : 1);
    children[static_cast<std::size_t>(i)] = child;
  }
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = kSenders; i < 2 * kSenders; ++i) {
    threads.emplace_back([&, i] { good += SendRecords(party.fd, i) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    good += status == 0 ? 1 : 0;
  }
  party.Say("sent all", good);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}
void ReceivesRecords(Party& party) {
  party.Meet();
  std::array<int, 2 * kSenders> next{};
  int wrong = 0;
  Record record;
  while (recv(party.fd, record.data(), kRecord, MSG_WAITALL) == static_cast<ssize_t>(kRecord)) {
    const auto sender = static_cast<std::size_t>(record[0]);
    if (sender >= next.size() || record != RecordOf(record[0], next[sender]++)) ++wrong;
  }
  party.Say("wrong", wrong);
  party.Say("all", std::accumulate(next.begin(), next.end(), 0));
}

// --- many that receive: each byte is one's

constexpr std::size_t kBytes = 2'000'000;
void SendsToMany(Party& party) {
  Send(party, 0, kBytes);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Receive(party, "the sum", 100, MSG_WAITALL);
  party.Meet();
}
std::uint64_t SumOf(const char* bytes, std::size_t count) {
  return std::accumulate(bytes, bytes + count, std::uint64_t{0}, [](std::uint64_t sum, char c) {
    return sum + static_cast<unsigned char>(c);
  });
}
struct Share {
  std::uint64_t bytes, sum;
};
Share ReceiveShare(int fd) {
  Share share{};
  std::array<char, 5000> some;
  for (ssize_t got = 0; (got = recv(fd, some.data(), some.size(), 0)) > 0;) {
    share.bytes += static_cast<std::uint64_t>(got);
    share.sum += SumOf(some.data(), static_cast<std::size_t>(got));
  }
  return share;
}
void ManyReceive(Party& party) {
  int shares[2];
  if (pipe2(shares, O_CLOEXEC) != 0) _exit(3);
  std::array<pid_t, 2> children{};
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    const Share share = ReceiveShare(party.fd);
    _exit(write(shares[1], &share, sizeof(share)) == sizeof(share) ? 0 : 1);
  }
  Share all{};
  std::thread other([&] {
    const Share share = ReceiveShare(party.fd);
    (void)!write(shares[1], &share, sizeof(share));
  });
  const Share own = ReceiveShare(party.fd);
  other.join();
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    party.Say("the child's status", status);
  }
  all = own;
  for (int i = 0; i < 3; ++i) {
    Share share{};
    if (read(shares[0], &share, sizeof(share)) != sizeof(share)) break;
    all.bytes += share.bytes;
    all.sum += share.sum;
  }
  const std::vector<char> bytes = Bytes(0, kBytes);
  party.Say("all", static_cast<long>(all.bytes));
  party.Say("their sum is right", all.sum == SumOf(bytes.data(), bytes.size()) ? 1 : 0);
  Send(party, 0, 100);
  close(shares[0]);
  close(shares[1]);
  party.Meet();
}

// --- workers that were made before anybody came

constexpr int kWorkers = 3;
constexpr int kClients = 6;  // one after the other, and then two at once
void EchoUntilTheEnd(int fd) {
  std::array<char, 1000> bytes;
  for (ssize_t got = 0; (got = recv(fd, bytes.data(), bytes.size(), 0)) > 0;) {
    if (send(fd, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) != got) return;
  }
}
void Serve(int listener) {
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) _exit(1);
    EchoUntilTheEnd(fd);
    close(fd);
  }
}
void HasWorkers(Party& party) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 10) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    _exit(3);
  }
  std::array<pid_t, kWorkers> workers{};
  for (pid_t& worker : workers) {
    worker = fork();
    if (worker == 0) Serve(listener);
  }
  close(listener);
  party.Tell(ntohs(address.sin_port));
  party.Meet();
  for (const pid_t worker : workers) {
    kill(worker, SIGKILL);
    int status = -1;
    waitpid(worker, &status, 0);
    party.Say("the worker's end", status);
  }
}
bool EchoesBytes(int fd) {
  WarmUp(fd, true);
  const std::vector<char> bytes = Bytes(0, 5000);
  std::vector<char> back(bytes.size());
  return send(fd, bytes.data(), bytes.size(), 0) == std::ssize(bytes) &&
         recv(fd, back.data(), back.size(), MSG_WAITALL) == std::ssize(back) && back == bytes;
}
void AsksWorkers(Party& party) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(party.Hear()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto connected = [&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(3);
    return fd;
  };
  int good = 0;
  for (int i = 0; i < kClients - 2; ++i) {
    const int fd = connected();
    good += EchoesBytes(fd) ? 1 : 0;
    close(fd);
  }
  const int one = connected();
  const int two = connected();
  good += EchoesBytes(one) ? 1 : 0;
  good += EchoesBytes(two) ? 1 : 0;
  good += EchoesBytes(one) ? 1 : 0;
  close(one);
  close(two);
  party.Say("answers", good);
  party.Meet();
}

// --- a daemon, and programs beside the connection

// Its parent ends, as those of daemons do, and the connection is its alone.
void BecomesDaemon(Party& party) {
  Send(party, 0, 500);
  int done[2];
  if (pipe2(done, O_CLOEXEC) != 0) _exit(3);
  const pid_t child = fork();
  if (child == 0) {
    if (daemon(1, 1) != 0) _exit(1);
    const std::vector<char> bytes = Bytes(500, 500);
    char status = 0;
    if (send(party.fd, bytes.data(), 500, 0) != 500) status = 1;
    if (shutdown(party.fd, SHUT_WR) != 0) status = 2;
    std::vector<char> answer(500);
    if (recv(party.fd, answer.data(), 500, MSG_WAITALL) != 500) status = 3;
    if (answer != Bytes(0, 500)) status = 4;
    _exit(write(done[1], &status, 1) == 1 ? 0 : 1);
  }
  close(done[1]);
  party.Say("close", close(std::exchange(party.fd, -1)));
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("its parent's status", status);
  char result = -1;
  party.Say("it says", read(done[0], &result, 1));
  party.Say("its result", result);
  party.Say("nothing more", read(done[0], &result, 1));
  close(done[0]);
  party.Meet();
}
void RunsPrograms(Party& party) {
  Send(party, 0, 300);
  party.Say("system", system("exit 3"));
  Send(party, 300, 300);
  FILE* const program = popen("echo hello; exit 5", "r");
  std::array<char, 100> line{};
  party.Say("fgets", fgets(line.data(), line.size(), program) != nullptr ? 1 : 0);
  party.Say("its length", static_cast<long>(std::string(line.data()).size()));
  party.Say("pclose", pclose(program));
  Send(party, 600, 400);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Receive(party, "answer", 500, MSG_WAITALL);
  party.Meet();
}
// A child that lives long and never touches what it has, as one does that saves; meanwhile both
// directions go on, and it is killed.
void Saves(Party& party) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  Send(party, 0, 600);
  Receive(party, "answer", 300, MSG_WAITALL);
  kill(child, SIGKILL);
  int status = -1;
  waitpid(child, &status, 0);
  party.Say("the child's end", status);
  Send(party, 600, 400);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Receive(party, "answer", 200, MSG_WAITALL);
  party.Meet();
}
void HearsSaver(Party& party) {
  Receive(party, "recv", 600, MSG_WAITALL);
  Send(party, 0, 300);
  Receive(party, "recv", 400, MSG_WAITALL);
  Receive(party, "the end", 10, MSG_WAITALL);
  Send(party, 300, 200);
  party.Meet();
}

void Hears(Party& party) {
  Receive(party, "recv", 1000, MSG_WAITALL);
  Receive(party, "the end", 10, MSG_WAITALL);
  Send(party, 0, 500);
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kCrowdScenarios = {
    {"many send", ManySend, ReceivesRecords},
    {"many send, the other way", ReceivesRecords, ManySend},
    {"many receive", SendsToMany, ManyReceive},
    {"workers on one listener", AsksWorkers, HasWorkers, 1 + kClients},
    {"a daemon", BecomesDaemon, Hears},
    {"a daemon, the other way", Hears, BecomesDaemon},
    {"system and popen", RunsPrograms, Hears},
    {"a child that saves", Saves, HearsSaver},
};

}  // namespace rdfs::sock
