// Scenarios of exec: while a connection is plain still, whether the program that comes next stands
// in its way, and what that finds open; and while many are in memory, how long they keep it.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/tools/sock/calls.h"

namespace rdfs::sock {
namespace {

namespace fs = std::filesystem;

// A program in a folder of its own, while this lives.
class Program {
 public:
  explicit Program(const char* name) {
    std::array<char, 32> folder = {"/tmp/rdsock-calls-XXXXXX"};
    if (mkdtemp(folder.data()) == nullptr) _exit(3);
    folder_ = folder.data();
    path_ = folder_ / name;
  }
  ~Program() { fs::remove_all(folder_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  void SetMode(unsigned mode) const { fs::permissions(path_, static_cast<fs::perms>(mode)); }

 private:
  fs::path folder_, path_;
};

void Discard(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// --- a connection that closes on exec

void HearsAnother(Party& party) {
  const int other = std::exchange(party.fd, Accept(party.beside(), nullptr));
  WarmUp(party.fd, false);
  Receive(party, "recv", 1000, MSG_WAITALL);
  Receive(party, "the end", 10);
  Send(party, 0, 500);
  close(std::exchange(party.fd, other));
  party.Meet();
}
void Ends(Party& party) {
  WarmUp(party.fd, true);
  Send(party, 0, 1000);
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  Receive(party, "recv", 500, MSG_WAITALL);
}

constexpr const char* kTellAndStay = "echo; exec sleep 60";
void ByPath() { execl("/bin/sh", "sh", "-c", kTellAndStay, nullptr); }
void BySearch() { execlp("sh", "sh", "-c", kTellAndStay, nullptr); }
void AsScript() {
  const Program script("script");
  std::ofstream(script.path()) << "#!/bin/sh\nrm -r \"$(dirname \"$0\")\"\necho\nexec sleep 60\n";
  script.SetMode(0755);
  execl(script.path().c_str(), "script", nullptr);
}

// A program that a child has executed, and that has the connection no more, runs beside it.
template <void (*execute)()>
void StartsAnother(Party& party) {
  std::array<int, 2> out{};
  if (pipe2(out.data(), O_CLOEXEC) != 0) _exit(3);
  const int other = std::exchange(party.fd, Connect(party.beside(), nullptr));
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    execute();
    _exit(127);
  }
  char byte = 0;
  party.Say("it runs", read(out[0], &byte, 1));
  Ends(party);
  party.Say("it still runs", waitpid(child, nullptr, WNOHANG));
  Discard(child);
  for (const int open : {std::exchange(party.fd, other), out[0], out[1]}) close(open);
  party.Meet();
}

// --- what is open for a program

constexpr const char* kList = "/bin/ls";
char* const kListOpen[] = {const_cast<char*>("ls"), const_cast<char*>("/proc/self/fd"), nullptr};
char* const kNoVariables[] = {nullptr};

// How many descriptors a program finds open that a child executes.
template <typename Execute>
void SayOpen(Party& party, const char* what, Execute execute) {
  std::array<int, 2> out{};
  if (pipe2(out.data(), O_CLOEXEC) != 0) _exit(3);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    execute();
    _exit(127);
  }
  close(out[1]);
  long lines = 0;
  std::array<char, 4096> text;
  for (ssize_t got = 0; (got = read(out[0], text.data(), text.size())) > 0;) {
    lines += std::count(text.begin(), text.begin() + got, '\n');
  }
  close(out[0]);
  party.Say(what, lines);
  waitpid(child, nullptr, 0);
}

// Programs that the library does not come into, or may not: what is its own is not for them.
void StartsStrangers(Party& party) {
  const int other = std::exchange(party.fd, Connect(party.beside(), nullptr));
  SayOpen(party, "without variables", [] { execve(kList, kListOpen, kNoVariables); });
  SayOpen(party, "without the library", [] {
    unsetenv("LD_PRELOAD");
    execvp("ls", kListOpen);
  });
  SayOpen(party, "with another one's name", [] {
    const char* const preload = getenv("LD_PRELOAD");
    if (preload != nullptr) setenv("LD_PRELOAD", (std::string(preload) + "s").c_str(), 1);
    execv(kList, kListOpen);
  });
  SayOpen(party, "by descriptor",
          [] { fexecve(open(kList, O_RDONLY | O_CLOEXEC), kListOpen, environ); });
  const Program privileged("ls");
  fs::copy_file(kList, privileged.path());
  for (const unsigned mode : {04755U, 02755U}) {
    privileged.SetMode(mode);
    SayOpen(party, "set-ID", [&] { execv(privileged.path().c_str(), kListOpen); });
    SayOpen(party, "set-ID and searched", [&] {
      const std::string path = privileged.path().parent_path().string() + ":" + getenv("PATH");
      setenv("PATH", path.c_str(), 1);
      execvp("ls", kListOpen);
    });
  }
  // Open for it: for good on TCP.
  SayOpen(party, "and the connection", [&] {
    fcntl(party.fd, F_SETFD, 0);
    execve(kList, kListOpen, kNoVariables);
  });
  Ends(party);
  close(std::exchange(party.fd, other));
  party.Meet();
}

// --- many that it leaves open, with bytes from ends that make no call

constexpr std::size_t kSilent = 8;
constexpr std::chrono::seconds kSoon{5};  // a second for each is more
void IsSilent(Party& party) {
  std::array<int, kSilent> many{};
  for (int& fd : many) WarmUp(fd = Accept(party.beside(), nullptr), false);
  const std::vector<char> bytes = Bytes(0, 200);
  for (const int fd : many) party.Say("send", send(fd, bytes.data(), 100, 0));
  party.Meet();
  party.Meet();
  for (const int fd : many) party.Say("send", send(fd, bytes.data() + 100, 100, 0));
  party.Meet();
  for (const int fd : many) close(fd);
}
void RunsAProgram(Party& party) {
  std::array<int, kSilent> many{};
  for (int& fd : many) {
    fd = Connect(party.beside(), nullptr);
    fcntl(fd, F_SETFD, 0);
    WarmUp(fd, true);
  }
  party.Meet();
  const auto before = std::chrono::steady_clock::now();
  party.Say("system", system("exit 3"));
  party.Say("soon", std::chrono::steady_clock::now() - before < kSoon);
  party.Meet();
  for (const int fd : many) {
    std::vector<char> bytes(200);
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_WAITALL);
    party.SayBytes("recv", got, bytes);
    close(fd);
  }
  party.Meet();
}

}  // namespace

const std::vector<Scenario> kExecScenarios = {
    {"exec that closes it", StartsAnother<ByPath>, HearsAnother, 2},
    {"exec that closes it, of what is searched", StartsAnother<BySearch>, HearsAnother, 2},
    {"exec that closes it, of a script", StartsAnother<AsScript>, HearsAnother, 2},
    {"exec of strangers", StartsStrangers, HearsAnother},
    {"a program beside many that are silent", RunsAProgram, IsSilent, 1 + kSilent, true},
};

}  // namespace rdfs::sock
