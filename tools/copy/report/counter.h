// Counter: how much there is to do, counted by a thread of its own while it is being done: for
// progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "tools/copy/report/report.h"

namespace rdfs::copy {

class Counter {
 public:
  // Adds what there is to do, until that is all or `stop` is set.
  using Count =
      std::function<void(std::atomic<std::uint64_t>& files, std::atomic<std::uint64_t>& bytes,
                         const std::atomic<bool>& stop)>;
  // Null: nothing is counted.
  explicit Counter(const Count& count);
  ~Counter();
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  // When all of it has been counted. Any thread.
  [[nodiscard]] std::optional<Totals> totals() const;

 private:
  std::atomic<bool> stop_{false}, counted_{false};
  std::atomic<std::uint64_t> files_{0}, bytes_{0};
  std::thread thread_;
};

}  // namespace rdfs::copy
