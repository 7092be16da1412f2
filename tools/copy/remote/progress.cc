#include "tools/copy/remote/progress.h"

#include <chrono>
#include <utility>

namespace rdfs::copy {
namespace {

// As often as it is drawn.
constexpr std::chrono::milliseconds kTellEvery{200};

}  // namespace

Status ProgressTeller::Turn(std::uint64_t bytes, std::uint64_t kept, const Totals& passed,
                            const std::optional<Totals>& totals, TimePoint now) {
  if (!on_ || now < next_ || caller_.congested()) return {};
  next_ = now + kTellEvery;
  if (totals && !std::exchange(totals_told_, true)) {
    RDFS_RETURN_IF_ERROR(caller_.Say(EncodeTotals(*totals)));
  }
  return caller_.Say(Progress{{files_, bytes}, {passed.files, passed.bytes + kept}}.Encode());
}

}  // namespace rdfs::copy
