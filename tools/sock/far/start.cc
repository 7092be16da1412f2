// The carrier as a process of its own: how it is started, and how it begins and ends.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>

#include "tools/sock/far/ask.h"
#include "tools/sock/far/carrier.h"
#include "tools/sock/packet.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/log.h"
#include "transport/base/sigpipe.h"

namespace rdfs::sock::far {
namespace {

constexpr std::chrono::seconds kStartTime{1};
// What the carrier says on standard output when it can be asked.
constexpr char kReady = '\n';

// Standard input, output and error become nothing: who started us may wait for their end.
void LetGoOfOutput() {
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) (void)dup2(nothing, fd);
  if (nothing > STDERR_FILENO) (void)close(nothing);
}

Status SayHold() {
  RDFS_ASSIGN_OR_RETURN(const Fd socket, MakePacketSocket());
  sockaddr_un address;
  const socklen_t length = AbstractAddress(CarrierName(geteuid()), address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return {Code::kNotFound, errno, "no carrier runs"};
  }
  if (PartnerOf(socket.get()) != geteuid()) {
    return {Code::kAuthenticationFailed, "another user has taken the carrier's name"};
  }
  const HoldWire hold;
  return SendPacket(socket.get(), std::as_bytes(std::span(&hold, 1)));
}

// The child of a child, so that nobody has to wait for it.
[[noreturn]] void BecomeCarrier(int ready) {
  (void)setsid();
  if (fork() != 0) _exit(0);
  (void)!chdir("/");
  unsetenv("LD_PRELOAD");  // its connections are its own
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  (void)dup2(nothing, STDIN_FILENO);
  (void)dup2(nothing, STDERR_FILENO);
  (void)dup2(ready, STDOUT_FILENO);
  // What else is open is not ours: somebody may wait for its end.
  (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  std::array<char*, 3> arguments = {const_cast<char*>("rdsock"), const_cast<char*>("--carrier"),
                                    nullptr};
  execv("/proc/self/exe", arguments.data());
  _exit(127);
}

Status StartOne() {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return Status::FromErrno(errno, "a pipe");
  const Fd ours(ready[0]);
  Fd theirs(ready[1]);
  const pid_t child = fork();
  if (child < 0) return Status::FromErrno(errno, "cannot start the carrier");
  if (child == 0) BecomeCarrier(theirs.get());
  theirs.Reset();
  (void)waitpid(child, nullptr, 0);
  pollfd said{ours.get(), POLLIN, 0};
  const Deadline deadline = DeadlineAfter(kStartTime);
  while (poll(&said, 1, PollTimeoutMs(deadline, BootClock::now())) < 0 && errno == EINTR) {
  }
  char word = 0;
  if ((said.revents & POLLIN) != 0 && read(ours.get(), &word, 1) == 1) return {};
  return {Code::kUnavailable, "the carrier does not start; `rdsock --carrier` says why"};
}

}  // namespace

Status EnsureCarrier() {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PairsPath());
  if (access(path.c_str(), R_OK) != 0) return {Code::kNotFound, "no host is paired"};
  Status held = SayHold();
  if (held.code() != Code::kNotFound) return held;
  RDFS_RETURN_IF_ERROR(StartOne());
  return SayHold();
}

int CarrierMain() {
  SetLogName("rdsock");
  IgnoreSigpipe();
  // Before there are threads, which inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  (void)sigprocmask(SIG_BLOCK, &signals, nullptr);
  const auto path = PairsPath();
  auto created = path.ok() ? Carrier::Create({.name = {}, .pairs = *path}) : path.status();
  if (!created.ok() && created.status().code() == Code::kBusy) {
    (void)!write(STDOUT_FILENO, &kReady, 1);  // somebody was faster
    return 0;
  }
  if (!created.ok()) {
    LogError("no carrier: {}", created.status().message());
    return 1;
  }
  const std::shared_ptr<Carrier> carrier = *std::move(created);
  std::thread([carrier, signals] {
    int number = 0;
    if (sigwait(&signals, &number) == 0) carrier->Stop();
  }).detach();
  (void)!write(STDOUT_FILENO, &kReady, 1);
  LetGoOfOutput();
  const Status status = carrier->Run();
  if (!status.ok()) LogError("the carrier ends: {}", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace rdfs::sock::far
