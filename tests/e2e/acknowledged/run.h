// The workload: several threads on one or several mounts of one export.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/e2e/acknowledged/worker.h"

namespace rdfs::acknowledged {

struct Ran {
  std::vector<std::string> wrong;
  std::uint64_t calls = 0;
  std::uint64_t unsure = 0;
  std::chrono::milliseconds longest{0};
  std::string longest_call;
};

// Makes the directories and shared files, without faults yet.
void Prepare(const std::string& root, int threads, int shared);
// Until `stop`, or until one of the threads finds something wrong, which sets it.
Ran Run(const Plan& plan, int threads, std::atomic<bool>& stop);

}  // namespace rdfs::acknowledged
