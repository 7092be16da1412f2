#include "tests/e2e/acknowledged/run.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

namespace rdfs::acknowledged {

void Prepare(const std::string& root, int threads, int shared) {
  namespace files = std::filesystem;
  files::create_directory(root + "/shared");
  const auto touch = [&root](const std::string& name) { std::ofstream(root + "/" + name); };
  touch(kLogName);
  for (int k = 0; k < shared; ++k) {
    touch(FreeName(k));
    touch(GiftName(k));
  }
  for (int thread = 0; thread < threads; ++thread) {
    files::create_directory(root + "/" + ThreadDirectory(thread));
  }
}

Ran Run(const Plan& plan, int threads, std::atomic<bool>& stop) {
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    workers.push_back(std::make_unique<Worker>(plan, thread));
  }
  for (const auto& worker : workers) {
    running.emplace_back([&stop, &worker] {
      worker->Run(stop);
      if (!worker->wrong().empty()) stop = true;
    });
  }
  for (std::thread& thread : running) thread.join();
  Ran ran;
  for (const auto& worker : workers) {
    if (!worker->wrong().empty()) ran.wrong.push_back(worker->wrong());
    ran.calls += worker->calls();
    ran.unsure += worker->unsure();
    if (worker->longest() <= ran.longest) continue;
    ran.longest = worker->longest();
    ran.longest_call = worker->longest_call();
  }
  return ran;
}

}  // namespace rdfs::acknowledged
