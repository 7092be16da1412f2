// Head: the beginning of a relayed stream, as far as the relay's own host has it in a file from an
// earlier run. How far that is, is known once the sender has said where it goes on.
//
// Set by one thread, once; asked by others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::pipe {

class Head {
 public:
  static Result<std::shared_ptr<Head>> Create();

  // `file`, open for reading, has the first `bytes` of the stream, and goes on having them.
  void Set(Fd file, std::uint64_t bytes);

  // Nothing while it is not known; told() becomes readable then, and stays so.
  [[nodiscard]] std::optional<std::uint64_t> bytes() const {
    return known_.load(std::memory_order_acquire) ? std::optional(bytes_) : std::nullopt;
  }
  [[nodiscard]] int told() const { return told_.fd(); }
  // The file, once bytes() is known.
  [[nodiscard]] int file() const { return file_.get(); }

 private:
  explicit Head(EventFd told) : told_(std::move(told)) {}

  const EventFd told_;
  Fd file_;                  // before known_,
  std::uint64_t bytes_ = 0;  // as this is
  std::atomic<bool> known_{false};
};

}  // namespace rdfs::pipe
