// Worker: one thread of the workload. It does what its seed says, notes it, and stops at the first
// answer that no correct file system gives.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/e2e/acknowledged/journal.h"
#include "tests/e2e/acknowledged/model.h"
#include "transport/base/fd.h"

namespace rdfs::acknowledged {

struct Plan {
  std::vector<std::string> mounts;  // of one export
  std::string journal;              // a directory elsewhere
  std::uint64_t seed = 1;
  int shared = 400;                      // how many files there are to be taken and grabbed
  std::vector<int> unsure;               // errnos after which a call may have been done or not
  std::chrono::milliseconds longest{0};  // that a call may take; 0: any time
};

class Worker {
 public:
  Worker(const Plan& plan, int thread);

  // Until `stop`, or until something is wrong; then closes its files.
  void Run(const std::atomic<bool>& stop);

  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] std::uint64_t calls() const { return number_; }
  [[nodiscard]] std::uint64_t unsure() const { return unsure_; }
  [[nodiscard]] std::chrono::milliseconds longest() const { return longest_; }
  [[nodiscard]] const std::string& longest_call() const { return longest_call_; }

 private:
  // Chosen; not always Sensible.
  Op Choose();
  void Do(const Op& op);
  // The errno; 0: done. What it read and must not have read is in wrong_.
  int Execute(const Op& op);
  int ExecuteOnSlot(const Op& op);
  int ExecuteShared(const Op& op);
  int OpenInto(const Op& op, int flags);
  int Look(const Op& op);
  int Claim(const Op& op);
  int Log(const Op& op);
  void Wrong(const Op& op, const std::string& what);
  // What was written through this slot, and not synced, is not there: its fsync has to say so.
  void AskForLoss(const Op& op, int slot);
  [[nodiscard]] std::string Path(const Op& op, int file) const;
  [[nodiscard]] std::string Shared(const Op& op, const std::string& name) const;
  int Pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  const Plan& plan_;
  const int thread_;
  std::mt19937_64 random_;
  Model model_;
  Journal journal_;
  std::array<Fd, kSlots> slots_;
  std::vector<Fd> logs_;  // one a mount
  int next_shared_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t unsure_ = 0;
  std::chrono::milliseconds longest_{0};
  std::string longest_call_;
  std::string wrong_;
  std::optional<int> lost_;  // the slot that a look asks for what it misses
};

}  // namespace rdfs::acknowledged
