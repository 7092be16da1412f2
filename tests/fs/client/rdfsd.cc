#include "tests/fs/client/rdfsd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/transport/kinds.h"

namespace rdfs::fs::client {
namespace {

constexpr std::string_view kReady = "ready on port ";

std::size_t DescriptorsOf(pid_t pid) {
  const std::filesystem::path fds = "/proc/" + std::to_string(pid) + "/fd";
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(fds),
                                                std::filesystem::directory_iterator()));
}

}  // namespace

Rdfsd::Rdfsd(std::vector<std::string> options, std::size_t descriptors, OpensByHandle by_handle)
    : options_(std::move(options)), descriptors_(descriptors), by_handle_(by_handle) {
  std::string pattern = std::filesystem::temp_directory_path() / "rdfs-live-XXXXXX";
  directory_ = mkdtemp(pattern.data());
  root_ = directory_ / "root";
  std::filesystem::create_directory(root_);
  Start();
}

Rdfsd::~Rdfsd() {
  KillAll();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Rdfsd::Start() {
  // The killed one's processes may still have its port, or any program that was given it since.
  std::string said = StartOnce();
  for (int i = 0; i < 100 && port_ != 0 && !said.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    said = StartOnce();
  }
  ASSERT_EQ(said, "") << "rdfsd did not start";
}

std::string Rdfsd::StartOnce() {
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return "no pipe";
  // A server that is root squashes root otherwise, which is not what is tested here.
  const std::string exported = "live=" + root_.string() + (geteuid() == 0 ? ",trusted" : "");
  const std::string port = std::to_string(port_), address = transport::TestAddress();
  const std::string runtime = directory_ / "run";
  std::filesystem::create_directory(runtime);
  pid_ = fork();
  if (pid_ < 0) return "no process";
  if (pid_ == 0) {
    setpgid(0, 0);
    if (descriptors_ != 0) {
      const rlimit limit{.rlim_cur = descriptors_, .rlim_max = descriptors_};
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (by_handle_ == OpensByHandle::kNo) {
      for (const int capability : {CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN}) {
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
      }
    }
    setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
    dup2(pipe_ends[1], STDERR_FILENO);
    dup2(pipe_ends[1], STDOUT_FILENO);
    std::vector<std::string> arguments = {"rdfsd",  "-f",       "--no-auth", "--pool",
                                          "64M",    "--port",   port,        "--export",
                                          exported, "--listen", address};
    arguments.insert(arguments.end(), options_.begin(), options_.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(RDFSD_PATH, argv.data());
    _exit(127);
  }
  setpgid(pid_, pid_);
  close(pipe_ends[1]);
  std::string text;
  std::array<char, 512> chunk{};
  while (true) {
    const ssize_t got = read(pipe_ends[0], chunk.data(), chunk.size());
    if (got <= 0) {
      close(pipe_ends[0]);
      KillAll();
      return text.empty() ? "nothing was said" : text;
    }
    text.append(chunk.data(), static_cast<std::size_t>(got));
    const std::size_t at = text.find(kReady);
    if (at == text.npos || text.find('\n', at) == text.npos) continue;
    port_ = static_cast<std::uint16_t>(std::stoi(text.substr(at + kReady.size())));
    break;
  }
  // What it says later goes to the test's own log.
  std::thread([fd = pipe_ends[0]] {
    std::array<char, 512> rest{};
    while (true) {
      const ssize_t got = read(fd, rest.data(), rest.size());
      if (got <= 0) break;
      [[maybe_unused]] const ssize_t put =
          write(STDERR_FILENO, rest.data(), static_cast<std::size_t>(got));
    }
    close(fd);
  }).detach();
  return "";
}

std::size_t Rdfsd::WorkerDescriptors() const { return DescriptorsOf(Worker()); }
std::size_t Rdfsd::SupervisorDescriptors() const { return DescriptorsOf(pid_); }

pid_t Rdfsd::Worker() const {
  // Not every kernel has /proc/PID/task/PID/children.
  for (int i = 0; i < 2000; ++i) {
    for (const auto& process : std::filesystem::directory_iterator("/proc")) {
      std::ifstream stat(process.path() / "stat");
      pid_t pid = 0, parent = 0;
      std::string name;
      char state = 0;
      if (stat >> pid >> name >> state >> parent && parent == pid_) return pid;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

void Rdfsd::KillWorker() {
  const pid_t worker = Worker();
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(worker, SIGKILL), 0);
}

void Rdfsd::KillAll() {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Rdfsd::Stop() {
  const pid_t worker = Worker();
  ASSERT_EQ(kill(worker, SIGSTOP), 0);
  // The signal is on its way only: a thread that runs stops at its next entry to the kernel.
  const std::filesystem::path tasks = "/proc/" + std::to_string(worker) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string text;
    for (int i = 0; i < 2000 && text.find(") T ") == text.npos; ++i) {
      std::ifstream stat(task.path() / "stat");
      std::getline(stat, text);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_NE(text.find(") T "), text.npos) << "a thread does not stop: " << text;
  }
}
void Rdfsd::Continue() { ASSERT_EQ(kill(Worker(), SIGCONT), 0); }

DialFunction Rdfsd::Dialer(transport::Kind kind) const {
  return [kind, port = port_](std::vector<std::byte> request,
                              std::shared_ptr<transport::Domain> domain, Deadline deadline) {
    transport::DialOptions options;
    options.host = transport::TestAddress();
    options.port = port;
    options.require = kind;
    options.service = kServiceName;
    options.request = std::move(request);
    options.deadline = deadline;
    return transport::Session::Dial(std::move(options), std::move(domain));
  };
}

}  // namespace rdfs::fs::client
