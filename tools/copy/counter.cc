#include "tools/copy/counter.h"

namespace rdfs::copy {

Counter::Counter(const Count& count) {
  if (!count) return;
  thread_ = std::thread([this, count] {
    count(files_, bytes_, stop_);
    counted_ = !stop_;
  });
}

Counter::~Counter() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

std::optional<Totals> Counter::totals() const {
  return counted_ ? std::optional(Totals{files_, bytes_}) : std::nullopt;
}

}  // namespace rdfs::copy
