#include "transport/session/addresses.h"

#include <algorithm>
#include <utility>

namespace rdfs::transport::session {

Addresses::Addresses(std::vector<std::string> hosts) {
  for (std::string& host : hosts) all_.push_back({.host = std::move(host)});
}

std::vector<std::size_t> Addresses::ForNextLane(TimePoint now) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all_.size(); ++i) order.push_back((next_ + i) % all_.size());
  next_ = (next_ + 1) % all_.size();
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t index) { return all_[index].rests_until <= now; });
  return order;
}

}  // namespace rdfs::transport::session
