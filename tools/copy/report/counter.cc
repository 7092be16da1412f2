#include "tools/copy/report/counter.h"

#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {

Counter::Counter(const Count& count) {
  if (!count) return;
  // Without a thread nothing is ever counted.
  (void)pipe::StartThread(thread_, [this, count] {
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
