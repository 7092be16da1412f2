// Talk: what both ends do with their lane, whichever way the files go: say and hear messages, tell
// of single files, keep the peer convinced that we live, and part so that the last words arrive.
//
// A talk that began over ssh moves to a better lane: one end leaves the lane that it is on (Moved
// is its last word there), the other hears that, says the same, and both go on over the better one.
//
// One thread, the driver's. Nothing blocks but Sleep, for 200 ms at most, HearUntil, and Part,
// for 2 s.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "tools/copy/remote/wire.h"
#include "tools/pipe/wire/liveness.h"
#include "tools/pipe/wire/ring.h"
#include "transport/transport.h"

namespace rdfs::copy {

struct TalkSettings {
  pipe::Liveness::Duration silence = pipe::Liveness::kDefaultLimit;  // of the peer
  int interrupts = -1;  // a descriptor: readable when the user wants to stop
  // What is told of single files, by either end. Empty at the far end: the caller is told.
  std::function<void(const Notice&)> tell;
  // Another lane to the same peer that is better than this one, as soon as there is one. It
  // outlives the talk. May be empty.
  std::function<transport::Connection*()> better;
};

class Talk {
 public:
  Talk(transport::Connection& lane, TalkSettings settings)
      : lane_(&lane),
        settings_(std::move(settings)),
        liveness_(settings_.silence, BootClock::now()) {}
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  [[nodiscard]] transport::Connection& lane() const { return *lane_; }
  Status Say(const Bytes& message);
  // What a call on the lane returned: an error that ends it is Lost's.
  Status Checked(const Status& status) {
    return status.ok() || status.scope() == Scope::kRequest ? status : Lost(status);
  }
  // One of ours: to the user here, or to the caller.
  Status Tell(const Notice& notice);
  // The peer does not take what we say: nothing more should be said that can wait.
  [[nodiscard]] bool congested() const {
    return lane_->backlog_bytes() > transport::Connection::kBacklogLimit;
  }

  // For which lanes memory is made: small enough for the one that we may move to.
  [[nodiscard]] transport::Kind memory_kind() const {
    return may_move() ? transport::Kind::kVerbs : lane_->capabilities().kind;
  }
  // There may be a better lane some time.
  [[nodiscard]] bool may_move() const { return settings_.better != nullptr && !moved_; }
  // It, when it is there and we are not on it.
  transport::Connection* better();
  // Leaves this lane for it. What is said from now on waits until the peer has left it, too.
  Status Leave();
  [[nodiscard]] bool leaving() const { return leaving_; }
  [[nodiscard]] bool moved() const { return moved_; }

  using OnMessage = std::function<Status(MessageType, ByteSpan)>;
  using OnCompletion = std::function<void(const transport::Completion&)>;
  // Takes what has come, at most a few messages; false when there was nothing. Errors: the lane's,
  // the peer's (kAbort), the handler's, the user's wish to stop, silence.
  Result<bool> Hear(const OnMessage& on_message, const OnCompletion& on_completion);
  // Until there may be something to hear, one of `others` is readable (-1: nothing, of three at
  // most), or it is time to look around.
  Status Sleep(std::initializer_list<int> others);
  // Both, until the handler has set `done`: for who has nothing else to do.
  Status HearUntil(const bool& done, const OnMessage& on_message);
  // The end: what went wrong here is said to the peer, if that can still hear it.
  Status Part(Status status);
  // Of single files, that the peer has told of.
  [[nodiscard]] std::uint64_t failures_heard() const { return failures_heard_; }
  // The peer is gone; what it may have said before has been heard.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  Status HandleAll(std::span<const transport::Completion> completions, const OnMessage& on_message,
                   const OnCompletion& on_completion);
  Status Handle(ByteSpan message, const OnMessage& on_message);
  Status Lost(const Status& why);
  // The peer has left the lane.
  Status Follow();
  Status SayWhatWaits();

  transport::Connection* lane_;
  transport::Connection* better_ = nullptr;
  transport::Connection* left_ = nullptr;  // with last words that have not gone out yet
  const TalkSettings settings_;
  pipe::Liveness liveness_;
  bool hearing_ = false;
  bool leaving_ = false, peer_left_ = false, moved_ = false;
  // Said while hearing, since what was heard is valid until we send; or while leaving.
  std::vector<Bytes> later_;
  std::uint64_t failures_heard_ = 0;
  bool lost_ = false;     // the connection is over
  bool aborted_ = false;  // by the peer
};

// The ring over that talk's lane, which others may carry batches beside.
pipe::RingSize ChooseRing(const Talk& talk, bool several);

}  // namespace rdfs::copy
