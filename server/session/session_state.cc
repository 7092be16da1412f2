#include "server/session/session_state.h"

namespace rdfs::server {

bool SessionState::LaneOpened(TimePoint now) {
  if (over()) return false;
  Seen(now);
  ++lanes_;
  phase_ = Phase::kAttached;
  return true;
}

void SessionState::LaneClosed(TimePoint now) {
  if (lanes_ > 0) --lanes_;
  if (over()) return;
  // The lease counts from the loss: until then the client had no reason to ask for anything.
  Seen(now);
  if (lanes_ == 0) phase_ = Phase::kDetached;
}

bool SessionState::Expire(TimePoint now) {
  if (over() || now < deadline()) return false;
  phase_ = Phase::kOver;
  return true;
}

}  // namespace rdfs::server
