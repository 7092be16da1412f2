// Output: lines for a reader that may be slow, written by a thread of its own. Who tells never
// waits; it is asked to tell no more while a lot is waiting.
//
// Threads: the caller's, one, and the one that writes. That one has the caller's signals blocked,
// which must include SIGPIPE.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "transport/base/status.h"

namespace rdfs::fs::watch {

class Output {
 public:
  // `fd` stays the caller's. `gone`: nothing can be written any more; from the thread that writes.
  static Result<std::unique_ptr<Output>> Start(int fd, std::function<void()> gone);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  void Tell(std::string_view line);
  // Whether more than kMostBytes wait, or did, and half of them still do.
  [[nodiscard]] bool full() const;
  // Readable when it is full no longer, until TakeRoom.
  [[nodiscard]] int fd() const;
  void TakeRoom();
  // Nothing more is told: returns when all is written, at most kPatience after `stop` is readable.
  // Errors: why something could not be written, unless the reader has gone, who needs no more.
  Status End(int stop);

  static constexpr std::size_t kMostBytes = 64 * 1024;
  static constexpr std::chrono::seconds kPatience{2};

 private:
  struct State;
  explicit Output(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;  // the thread's as well: a reader may never let it end
  std::thread thread_;
};

}  // namespace rdfs::fs::watch
