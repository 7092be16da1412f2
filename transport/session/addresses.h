// The addresses of one server, and which of them a lane is made over.
//
// Lanes go over one after the other, so that several carry more than one NIC can, and a lane that
// is made anew does not begin with the address that it was lost with. One that did not answer is
// tried last for a while.
//
// Pure; the caller brings the time. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "transport/base/clock.h"

namespace rdfs::transport::session {

class Addresses {
 public:
  static constexpr std::chrono::seconds kRest{10};

  // `hosts`: at least one, each once; the first lane begins with the first.
  explicit Addresses(std::vector<std::string> hosts);

  // What the next lane is to try, in this order: all of them.
  [[nodiscard]] std::vector<std::size_t> ForNextLane(TimePoint now);
  void Failed(std::size_t index, TimePoint now) { all_[index].rests_until = now + kRest; }

  [[nodiscard]] const std::string& host(std::size_t index) const { return all_[index].host; }
  [[nodiscard]] std::size_t count() const { return all_.size(); }

 private:
  struct Address {
    std::string host;
    TimePoint rests_until{};
  };
  std::vector<Address> all_;
  std::size_t next_ = 0;
};

}  // namespace rdfs::transport::session
