#include "tools/copy/remote/talk.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "tools/pipe/wire/lane_loop.h"

namespace rdfs::copy {

using transport::Completion;

namespace {

// There is progress to draw, and perhaps a better lane.
constexpr std::chrono::milliseconds kLookAround{200};
// Last words that its buffers did not take at once.
constexpr std::chrono::milliseconds kLookAtLeft{5};

}  // namespace

Status Talk::Lost(const Status& why) {
  lost_ = true;
  return {Code::kDisconnected,
          "the connection to the other rdcp broke before the end: " + why.message()};
}

Status Talk::Say(const Bytes& message) {
  if (hearing_ || leaving_) {
    later_.push_back(message);
    return {};
  }
  RDFS_RETURN_IF_ERROR(Checked(lane_->Send(ByteSpan(message))));
  liveness_.Sent(BootClock::now());
  return {};
}

Status Talk::Tell(const Notice& notice) {
  if (!settings_.tell) return Say(notice.Encode());
  settings_.tell(notice);
  return {};
}

Status Talk::SayWhatWaits() {
  for (const Bytes& message : std::exchange(later_, {})) RDFS_RETURN_IF_ERROR(Say(message));
  return {};
}

transport::Connection* Talk::better() {
  if (moved_) return nullptr;
  if (better_ == nullptr && settings_.better) better_ = settings_.better();
  return better_;
}

Status Talk::Leave() {
  RDFS_RETURN_IF_ERROR(Say(EncodeBare(MessageType::kMoved)));
  leaving_ = true;
  return {};
}

Status Talk::Follow() {
  peer_left_ = false;
  if (!leaving_) {
    RDFS_RETURN_IF_ERROR(SayWhatWaits());
    RDFS_RETURN_IF_ERROR(Leave());
  }
  left_ = std::exchange(lane_, better_);
  leaving_ = false;
  moved_ = true;
  return SayWhatWaits();
}

Result<bool> Talk::Hear(const OnMessage& on_message, const OnCompletion& on_completion) {
  std::array<Completion, 32> completions;
  if (left_ != nullptr) {
    RDFS_RETURN_IF_ERROR(Checked(left_->Flush()));
    if (left_->backlog_bytes() == 0) left_ = nullptr;
  }
  const auto count = lane_->Poll(completions);
  if (!count.ok()) return Lost(count.status());
  const TimePoint now = BootClock::now();
  if (*count > 0) liveness_.Heard(now);
  hearing_ = true;
  const Status handled = HandleAll(std::span(completions).first(*count), on_message, on_completion);
  hearing_ = false;
  RDFS_RETURN_IF_ERROR(handled);
  if (peer_left_) RDFS_RETURN_IF_ERROR(Follow());
  if (!leaving_) RDFS_RETURN_IF_ERROR(SayWhatWaits());
  RDFS_RETURN_IF_ERROR(pipe::CheckInterrupt(settings_.interrupts));
  if (liveness_.Dead(now)) {
    lost_ = true;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(liveness_.limit());
    return Status(Code::kDeadlineExceeded, "nothing was heard of the other rdcp for " +
                                               std::to_string(seconds.count()) + " s");
  }
  if (liveness_.PingDue(now) && !leaving_)
    RDFS_RETURN_IF_ERROR(Say(EncodeBare(MessageType::kPing)));
  return *count > 0;
}

Status Talk::HandleAll(std::span<const Completion> completions, const OnMessage& on_message,
                       const OnCompletion& on_completion) {
  for (const Completion& completion : completions) {
    if (completion.kind == Completion::Kind::kMessage) {
      RDFS_RETURN_IF_ERROR(Handle(completion.message, on_message));
      continue;
    }
    RDFS_RETURN_IF_ERROR(completion.status);
    if (on_completion) on_completion(completion);
  }
  return {};
}

Status Talk::Handle(ByteSpan message, const OnMessage& on_message) {
  const auto type = TypeOf(message);
  if (!type) return {Code::kProtocolError, "the other rdcp sent an unknown message"};
  switch (*type) {
    case MessageType::kPing:
      return {};
    case MessageType::kAbort:
      aborted_ = true;
      return DecodeAbort(message);
    case MessageType::kNotice: {
      RDFS_ASSIGN_OR_RETURN(const Notice notice, Notice::Decode(message));
      if (notice.bad()) ++failures_heard_;
      if (settings_.tell) settings_.tell(notice);
      return {};
    }
    case MessageType::kMoved:
      if (better() == nullptr || peer_left_) return OutOfTurn();
      peer_left_ = true;
      return {};
    default:
      return on_message(*type, message);
  }
}

Status Talk::Sleep(std::initializer_list<int> others) {
  RDFS_RETURN_IF_ERROR(Checked(lane_->Flush()));
  std::array<int, 4> fds{};
  std::size_t count = 0;
  for (const int fd : others) {
    if (fd >= 0) fds[count++] = fd;
  }
  if (settings_.interrupts >= 0) fds[count++] = settings_.interrupts;
  const auto most = left_ == nullptr ? kLookAround : kLookAtLeft;
  const Deadline next = std::min(liveness_.Next(), DeadlineAfter(most));
  const Status slept = pipe::SleepUntil(*lane_, std::span(fds).first(count), next);
  return slept.ok() ? slept : Lost(slept);
}

Status Talk::HearUntil(const bool& done, const OnMessage& on_message) {
  while (!done) {
    RDFS_ASSIGN_OR_RETURN(const bool heard, Hear(on_message, nullptr));
    if (!heard && !done) RDFS_RETURN_IF_ERROR(Sleep({}));
  }
  return {};
}

pipe::RingSize ChooseRing(const Talk& talk, bool several) {
  const transport::Kind kind = talk.memory_kind();
  const bool far = kind == transport::Kind::kTcp && !talk.lane().capabilities().same_host;
  return several && far ? pipe::kWideRing : pipe::ChooseRing(kind);
}

Status Talk::Part(Status status) {
  if (lost_ || aborted_) return status;
  // Who leaves has said all there: the peer hears us where it goes.
  if (std::exchange(leaving_, false)) lane_ = better_;
  if (status.ok()) {
    // The peer closes as well, or takes our going for what it is.
    (void)lane_->Flush();
  } else if (Say(EncodeAbort(status)).ok()) {
    pipe::Part(*lane_);
  }
  return status;
}

}  // namespace rdfs::copy
