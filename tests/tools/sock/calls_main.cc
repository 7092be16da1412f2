// calls RDSOCK: runs every scenario four times, with rdsock around both ends, either, and none, and
// compares what the ends say. Fails also when connections with both ends under rdsock were not
// upgraded. `calls --end client|server BESIDE` is one end of it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {

void Party::Meet() {
  Tell(0);
  (void)Hear();
}
void Party::Tell(long number) {
  if (write(beside_, &number, sizeof(number)) != sizeof(number)) _exit(3);
}
long Party::Hear() {
  long number = 0;
  if (read(beside_, &number, sizeof(number)) != sizeof(number)) _exit(3);
  return number;
}
void Party::Say(const std::string& what, long result) {
  const int error = errno;
  transcript_ += "  " + what + ": " + std::to_string(result);
  if (result == -1) transcript_ += std::string(" ") + strerrorname_np(error);
  transcript_ += '\n';
}
void Party::SayBytes(const std::string& what, ssize_t got, const std::vector<char>& bytes) {
  Say(what, got);
  if (got <= 0) return;
  const std::size_t sum = std::accumulate(
      bytes.begin(), bytes.begin() + got, std::size_t{0},
      [](std::size_t before, char c) { return before * 31 + static_cast<unsigned char>(c); });
  transcript_ += "    bytes " + std::to_string(sum) + '\n';
}

std::vector<char> Bytes(std::size_t from, std::size_t count) {
  std::vector<char> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<char>((from + i) * 2654435761U >> 13U);
  return bytes;
}

void Send(Party& party, std::size_t from, std::size_t count, int flags) {
  const std::vector<char> bytes = Bytes(from, count);
  party.Say("send", send(party.fd, bytes.data(), bytes.size(), flags));
}
void Receive(Party& party, const char* what, std::size_t size, int flags) {
  std::vector<char> bytes(size, 'U');  // what nobody writes to is the same everywhere
  const ssize_t got = recv(party.fd, bytes.data(), size, flags);
  party.SayBytes(what, got, bytes);
}
void SayPoll(Party& party, const char* what, short events, int timeout) {
  pollfd fd{party.fd, events, 0};
  party.Say(what, poll(&fd, 1, timeout));
  party.Say("revents", fd.revents);
}

void WarmUp(int fd, bool first) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  char byte = 'x';
  for (int i = 0; i < kWarmUp; ++i) {
    if (first && send(fd, &byte, 1, 0) != 1) _exit(3);
    if (recv(fd, &byte, 1, 0) != 1) _exit(3);
    if (!first && send(fd, &byte, 1, 0) != 1) _exit(3);
  }
}

int Connect(int beside, void (*prepare)(int fd)) {
  const int port = static_cast<int>(Party(-1, beside).Hear());
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (prepare != nullptr) prepare(fd);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(3);
  return fd;
}

int Accept(int beside, void (*prepare)(int listener)) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (prepare != nullptr) prepare(listener);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    _exit(3);
  }
  Party(-1, beside).Tell(ntohs(address.sin_port));
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  close(listener);
  return fd;
}

namespace {

bool MayFilter() {
  const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sock_filter all{BPF_RET | BPF_K, 0, 0, UINT_MAX};
  const sock_fprog program{1, &all};
  const bool may = setsockopt(tcp, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
  close(tcp);
  return may;
}

std::vector<Scenario> All() {
  std::vector<Scenario> all = kDataScenarios;
  for (const auto* more : {&kWaitScenarios, &kTurnScenarios, &kProcessScenarios, &kExecScenarios,
                           &kSignalScenarios, &kErrorScenarios, &kThreadScenarios, &kRareScenarios,
                           &kFlagScenarios, &kUrgentScenarios, &kEndScenarios, &kCrowdScenarios}) {
    all.insert(all.end(), more->begin(), more->end());
  }
  // For who looks for a fault: those alone whose names begin so.
  if (const char* const only = getenv("RDSOCK_CALLS"); only != nullptr) {
    std::erase_if(all,
                  [&](const Scenario& one) { return !std::string(one.name).starts_with(only); });
  }
  if (!MayFilter()) std::erase_if(all, [](const Scenario& one) { return one.needs_filter; });
  return all;
}

int RunEnd(bool client, int beside) {
  for (const Scenario& scenario : All()) {
    alarm(50);  // one that hangs is a failure
    Party party(client ? Connect(beside, nullptr) : Accept(beside, nullptr), beside);
    WarmUp(party.fd, client);
    party.Meet();
    (client ? scenario.client : scenario.server)(party);
    if (party.fd >= 0) close(party.fd);
    printf("%s\n%s", scenario.name, party.transcript().c_str());
    fflush(stdout);
    party.Meet();
  }
  return 0;
}

struct Output {
  std::string text, notes;
};

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> some;
  for (ssize_t got = 0; (got = read(fd, some.data(), some.size())) > 0;) {
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

struct Child {
  pid_t pid = -1;
  int text = -1, notes = -1;
};

Child Start(const char* self, const char* rdsock, const char* role, int beside) {
  int text[2];
  int notes[2];
  if (pipe2(text, O_CLOEXEC) != 0 || pipe2(notes, O_CLOEXEC) != 0) abort();
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    dup2(text[1], STDOUT_FILENO);
    dup2(notes[1], STDERR_FILENO);
    fcntl(beside, F_SETFD, 0);
    const std::string number = std::to_string(beside);
    if (rdsock != nullptr) {
      execl(rdsock, rdsock, "--stats", self, "--end", role, number.c_str(), nullptr);
    } else {
      execl(self, self, "--end", role, number.c_str(), nullptr);
    }
    _exit(127);
  }
  close(text[1]);
  close(notes[1]);
  child.text = text[0];
  child.notes = notes[0];
  return child;
}

// What both ends say; empty when one of them failed.
std::array<Output, 2> RunBoth(const char* self, const char* client, const char* server) {
  int beside[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, beside) != 0) abort();
  const std::array<Child, 2> children = {Start(self, client, "client", beside[0]),
                                         Start(self, server, "server", beside[1])};
  close(beside[0]);
  close(beside[1]);
  std::array<Output, 2> outputs;
  for (std::size_t i = 0; i < 2; ++i) {
    outputs[i].text = ReadAll(children[i].text);
    outputs[i].notes = ReadAll(children[i].notes);
    int status = 0;
    waitpid(children[i].pid, &status, 0);
    if (status == 0) continue;
    fprintf(stderr, "an end failed (status %d): %s\nlast said:\n%s\n", status,
            outputs[i].notes.c_str(),
            outputs[i]
                .text
                .substr(outputs[i].text.size() - std::min<std::size_t>(outputs[i].text.size(), 400))
                .c_str());
    outputs[i].text.clear();
  }
  return outputs;
}

// The first line that differs, with the scenario that it belongs to.
bool Same(const std::string& expected, const std::string& got, const char* which) {
  if (expected == got) return true;
  const auto lines = [](const std::string& text) {
    std::vector<std::string> split;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      split.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return split;
  };
  const auto one = lines(expected);
  const auto other = lines(got);
  std::string scenario;
  for (std::size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    const std::string a = i < one.size() ? one[i] : "(nothing)";
    const std::string b = i < other.size() ? other[i] : "(nothing)";
    if (!a.starts_with(" ")) scenario = a;
    if (a == b) continue;
    fprintf(stderr, "%s, %s: TCP says '%s', here '%s'\n", which, scenario.c_str(), a.c_str(),
            b.c_str());
    // Later lines of the same scenario follow from it.
    while (i + 1 < one.size() && one[i + 1].starts_with(" ")) ++i;
    if (i + 1 < other.size() && (i + 1 >= one.size() || other[i + 1] != one[i + 1])) break;
  }
  return false;
}

long Upgraded(const std::string& notes) {
  const std::size_t at = notes.find(" upgraded");
  if (at == std::string::npos) return -1;
  return strtol(notes.c_str() + notes.rfind(' ', at - 1), nullptr, 10);
}

int Compare(const char* self, const char* rdsock) {
  const auto plain = RunBoth(self, nullptr, nullptr);
  bool good = !plain[0].text.empty() && !plain[1].text.empty();
  struct Case {
    const char* name;
    const char* client;
    const char* server;
  };
  for (const Case& now : {Case{"both ends", rdsock, rdsock}, Case{"the client", rdsock, nullptr},
                          Case{"the server", nullptr, rdsock}}) {
    const auto said = RunBoth(self, now.client, now.server);
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string which =
          std::string(now.name) + " under rdsock, " + (i == 0 ? "client" : "server");
      good = Same(plain[i].text, said[i].text, which.c_str()) && good;
      const bool both = now.client != nullptr && now.server != nullptr;
      long expected = 0;
      for (const Scenario& scenario : All()) expected += both ? scenario.upgraded : 0;
      const bool counted = (i == 0 ? now.client : now.server) != nullptr;
      if (counted && Upgraded(said[i].notes) != expected) {
        fprintf(stderr, "%s: %ld connections upgraded instead of %ld:\n%s", which.c_str(),
                Upgraded(said[i].notes), expected, said[i].notes.c_str());
        good = false;
      }
    }
  }
  if (!MayFilter())
    printf("without those that need a socket filter, which only root may set here\n");
  printf("%zu scenarios %s\n", All().size(), good ? "alike" : "DIFFER");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace rdfs::sock

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 4 && std::string(argv[1]) == "--end") {
    return rdfs::sock::RunEnd(std::string(argv[2]) == "client", atoi(argv[3]));
  }
  if (argc != 2) {
    fprintf(stderr, "usage: calls RDSOCK\n");
    return 2;
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return rdfs::sock::Compare(self.c_str(), argv[1]);
}
