#include "transport/ssh/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

extern "C" char** environ;

namespace rdfs::transport::ssh {
namespace {

struct Pipe {
  Fd read_end;
  Fd write_end;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno(errno, "cannot make a pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// The two records that posix_spawn takes, released together.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  void Connect(int fd, int as) { posix_spawn_file_actions_adddup2(&actions_, fd, as); }
  // A command that ignores INT, QUIT and HUP hands that on; the rest is as
  // a program expects it.
  void SetSignals(bool own_session) {
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGTERM, SIGUSR1, SIGCHLD}) {
      sigaddset(&defaults, signal);
    }
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    if (own_session) flags |= POSIX_SPAWN_SETSID;
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
  }
  int Spawn(const std::vector<std::string>& arguments, pid_t& pid) {
    std::vector<std::string> copies = arguments;
    std::vector<char*> argv;
    for (std::string& argument : copies) argv.push_back(argument.data());
    argv.push_back(nullptr);
    return posix_spawnp(&pid, argv[0], &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<ChildProcess::Started> ChildProcess::Start(const std::vector<std::string>& arguments,
                                                  bool own_session, int errors) {
  RDFS_ASSIGN_OR_RETURN(Pipe input, MakePipe());
  RDFS_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  SpawnPlan plan;
  plan.Connect(input.read_end.get(), STDIN_FILENO);
  plan.Connect(output.write_end.get(), STDOUT_FILENO);
  if (errors >= 0) plan.Connect(errors, STDERR_FILENO);
  plan.SetSignals(own_session);
  pid_t pid = 0;
  const int error = plan.Spawn(arguments, pid);
  if (error != 0) return Status::FromErrno(error, "cannot run " + arguments.front());
  return Started{std::unique_ptr<ChildProcess>(new ChildProcess(pid)), std::move(input.write_end),
                 std::move(output.read_end)};
}

ChildProcess::ChildProcess(pid_t pid) : pid_(pid) {
  reaper_ = std::jthread([this] { Reap(); });
}

void ChildProcess::Reap() {
  // Waits without reaping first: until it is noted below, pid_ is this child's and may be
  // signalled.
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  const std::lock_guard lock(mutex_);
  int status = 0;
  pid_t got = 0;
  while ((got = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  if (got == pid_) status_ = status;
  reaped_ = true;
  ended_.notify_all();
}

bool ChildProcess::WaitForEnd(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  while (!reaped_) {
    const TimePoint now = BootClock::now();
    if (now >= deadline) return false;
    // In steps: a deadline may be too far away for the clock that this waits by.
    ended_.wait_for(lock,
                    std::min<std::chrono::nanoseconds>(deadline - now, std::chrono::hours(1)));
  }
  return true;
}

std::optional<int> ChildProcess::Wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return WaitForEnd(lock, deadline) ? status_ : std::nullopt;
}

void ChildProcess::Terminate() {
  const std::lock_guard lock(mutex_);
  if (!reaped_) kill(pid_, SIGTERM);
}

ChildProcess::~ChildProcess() {
  std::unique_lock lock(mutex_);
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (WaitForEnd(lock, DeadlineAfter(std::chrono::seconds(1)))) return;
    kill(pid_, signal);
  }
}

}  // namespace rdfs::transport::ssh
