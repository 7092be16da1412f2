// How an end whose peer is on another host asks its user's carrier for a channel: one attempt.
// far/ask.h has the packets, PROTOCOL.md, "Between hosts", the reasons.
//
// Owned by whoever made it, used by one thread. Never sleeps: Go() does what can be done at once.
// Costs one descriptor while it waits and nothing of the TCP connection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "tools/sock/far/ask.h"
#include "tools/sock/meeting.h"

namespace rdfs::sock {

class Asking {
 public:
  // The carrier listens at `name` and is a process of `user`. Errors: kNotFound when there is none;
  // kBusy (try later); kErrno (no descriptors).
  static Result<std::unique_ptr<Asking>> Begin(std::string_view name, uid_t user,
                                               const far::Ask& ask, TimePoint now);

  Meeting::State Go(TimePoint now);
  [[nodiscard]] int fd() const { return socket_.get(); }
  // After kOver: what the carrier has said; none when it went away or has said nothing in time.
  [[nodiscard]] std::optional<far::Refusal> refusal() const { return refusal_; }
  // Once, after kMet.
  Meeting::Result Take();
  // As Meeting's.
  void CloseUnfreed();

 private:
  Asking(Fd socket, const far::Ask& ask, TimePoint now)
      : ask_(ask), deadline_(now + far::kAskTimeout), socket_(std::move(socket)) {}
  Meeting::State Over();

  const far::Ask ask_;
  const Deadline deadline_;
  Fd socket_;
  std::optional<Meeting::Result> met_;
  std::optional<far::Refusal> refusal_;
  Meeting::State state_ = Meeting::State::kWaiting;
};

}  // namespace rdfs::sock
