// linearizable SECONDS SEED WORKERS MOUNT...
//
// WORKERS real processes (1 or 2) on each of several mounts of one export (worker.h), for SECONDS,
// and whether what all of them saw could have happened in one order (check.h). Says "worker PID
// MOUNT" of each, and "begins". Exit codes: 0, 1 for what is wrong, 2 for a wrong use.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/linearizable/check.h"
#include "tests/e2e/linearizable/worker.h"

namespace rdfs::linearizable {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// A round ends long before that, whatever is frozen meanwhile.
constexpr seconds kPatience{60};

template <typename T>
T* InSharedMemory(std::size_t count) {
  void* const at = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<T*>(at);
}

// Whether all have ended well within `patience`; those that have not are killed.
bool WaitFor(std::vector<pid_t> workers, Shared& shared, steady_clock::time_point stop_at) {
  bool fine = true;
  while (!workers.empty()) {
    const auto now = steady_clock::now();
    if (now >= stop_at) shared.stop = true;
    if (fine && now >= stop_at + kPatience) {
      fmt::print("WRONG: {} workers have not ended\n", workers.size());
      fine = false;
    }
    if (!fine) {
      for (const pid_t pid : workers) ::kill(pid, SIGKILL);
    }
    std::erase_if(workers, [&](pid_t pid) {
      int status = 0;
      if (::waitpid(pid, &status, WNOHANG) == 0) return false;
      if (status != 0 && fine) fmt::print("WRONG: a worker ended with status {}\n", status);
      fine = fine && status == 0;
      return true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fine;
}

int Run(int length, std::uint64_t seed, unsigned each, const std::vector<std::string>& mounts) {
  const auto count = static_cast<unsigned>(mounts.size()) * each;
  auto* const shared_memory = InSharedMemory<Shared>(1);
  auto* const notes = InSharedMemory<Notes>(count);
  if (shared_memory == nullptr || notes == nullptr) {
    std::perror("linearizable: memory for the notes");
    return 1;
  }
  Shared& shared = *new (shared_memory) Shared;
  pthread_barrierattr_t between_processes;
  ::pthread_barrierattr_init(&between_processes);
  ::pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(&shared.barrier, &between_processes, count);
  std::vector<pid_t> workers;
  for (unsigned number = 0; number < count; ++number) {
    const std::string& mount = mounts[number / each];
    const pid_t pid = ::fork();
    if (pid == 0) {
      Worker worker(shared, notes[number], mount, number, number % each % kGroups, seed);
      ::_exit(worker.Run() ? 0 : 1);
    }
    fmt::print("worker {} {}\n", pid, mount);
    workers.push_back(pid);
  }
  fmt::print("begins\n");
  std::fflush(stdout);
  bool fine = WaitFor(workers, shared, steady_clock::now() + seconds(length));
  std::vector<Event> events;
  for (unsigned number = 0; number < count; ++number) {
    events.insert(events.end(), notes[number].events,
                  notes[number].events + notes[number].count.load());
  }
  const Verdict verdict = Check(events);
  for (const std::string& line : verdict.wrong) fmt::print("WRONG: {}\n", line);
  fmt::print("seed {}: {} calls on {} objects, {} of them while another one was under way\n", seed,
             events.size(), verdict.objects, verdict.overlapping);
  fine = fine && verdict.wrong.empty();
  if (verdict.overlapping * 20 < events.size()) {
    fmt::print("WRONG: the workers hardly met\n");
    fine = false;
  }
  return fine ? 0 : 1;
}

}  // namespace
}  // namespace rdfs::linearizable

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 4 || std::stoul(words[2]) > rdfs::linearizable::kGroups) {
    fmt::print(stderr, "linearizable: wrong use; see the head of its main.cc\n");
    return 2;
  }
  return rdfs::linearizable::Run(std::stoi(words[0]), std::stoull(words[1]),
                                 static_cast<unsigned>(std::stoul(words[2])),
                                 {words.begin() + 3, words.end()});
}
