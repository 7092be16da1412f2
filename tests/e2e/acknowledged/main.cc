// acknowledged prepare EXPORT SHARED THREADS
// acknowledged run JOURNALS SHARED THREADS SEED SECONDS LONGEST UNSURE MOUNT...
// acknowledged check JOURNALS SHARED UNSURE EXPORT
//
// A workload that knows what it was told (worker.h), and what must be there afterwards (check.h).
// LONGEST: the seconds that a call may take. UNSURE: errnos by number with commas between them, or
// "-", after which a call may have been done or not. `run` begins when it has said "begins", and
// ends after SECONDS or with a line on standard input. Exit codes: 0, 1 for what is wrong, 2 for a
// wrong use.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "tests/e2e/acknowledged/check.h"
#include "tests/e2e/acknowledged/run.h"

namespace rdfs::acknowledged {
namespace {

std::vector<int> Errnos(const std::string& text) {
  std::vector<int> out;
  std::istringstream in(text == "-" ? "" : text);
  for (std::string number; std::getline(in, number, ',');) out.push_back(std::stoi(number));
  return out;
}

int Tell(const std::vector<std::string>& wrong) {
  for (const std::string& line : wrong) fmt::print("WRONG: {}\n", line);
  return wrong.empty() ? 0 : 1;
}

int RunFor(const std::vector<std::string>& words) {
  Plan plan;
  plan.journal = words[1];
  plan.shared = std::stoi(words[2]);
  plan.seed = std::stoull(words[4]);
  plan.longest = std::chrono::seconds(std::stoi(words[6]));
  plan.unsure = Errnos(words[7]);
  plan.mounts.assign(words.begin() + 8, words.end());
  std::atomic<bool> stop{false}, over{false};
  fmt::print("begins\n");
  std::fflush(stdout);
  std::thread watch([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoi(words[5]));
    while (!over && std::chrono::steady_clock::now() < end) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, 20) != 0) break;
    }
    stop = true;
  });
  const Ran ran = Run(plan, std::stoi(words[3]), stop);
  over = true;
  watch.join();
  fmt::print("{} calls, {} of them unsure; the longest took {} ms: {}\n", ran.calls, ran.unsure,
             ran.longest.count(), ran.longest_call);
  return Tell(ran.wrong);
}

int Main(const std::vector<std::string>& words) {
  if (words.size() == 4 && words[0] == "prepare") {
    Prepare(words[1], std::stoi(words[3]), std::stoi(words[2]));
    return 0;
  }
  if (words.size() >= 9 && words[0] == "run") return RunFor(words);
  if (words.size() == 5 && words[0] == "check") {
    return Tell(Check(words[1], words[4], std::stoi(words[2]), Errnos(words[3])));
  }
  fmt::print(stderr, "acknowledged: wrong use; see the head of its main.cc\n");
  return 2;
}

}  // namespace
}  // namespace rdfs::acknowledged

int main(int argc, char** argv) {
  return rdfs::acknowledged::Main(std::vector<std::string>(argv + 1, argv + argc));
}
