// Talk: what both ends do with their lane, whichever way the files go: say and hear messages, tell
// of single files, keep the peer convinced that we live, and part so that the last words arrive.
//
// One thread, the driver's. Nothing blocks but Sleep, for 200 ms at most, HearUntil, and Part,
// for 2 s.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/copy/remote/wire.h"
#include "tools/pipe/liveness.h"
#include "transport/transport.h"

namespace rdfs::copy {

struct TalkSettings {
  pipe::Liveness::Duration silence = pipe::Liveness::kDefaultLimit;  // of the peer
  int interrupts = -1;  // a descriptor: readable when the user wants to stop
  // What is told of single files, by either end. Empty at the far end: the caller is told.
  std::function<void(const Notice&)> tell;
};

class Talk {
 public:
  Talk(transport::Connection& lane, TalkSettings settings)
      : lane_(lane),
        settings_(std::move(settings)),
        liveness_(settings_.silence, BootClock::now()) {}
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  [[nodiscard]] transport::Connection& lane() const { return lane_; }
  Status Say(const Bytes& message);
  // What a call on the lane returned: an error that ends it is Lost's.
  Status Checked(const Status& status) {
    return status.ok() || status.scope() == Scope::kRequest ? status : Lost(status);
  }
  // One of ours: to the user here, or to the caller.
  Status Tell(const Notice& notice);
  // The peer does not take what we say: nothing more should be said that can wait.
  [[nodiscard]] bool congested() const {
    return lane_.backlog_bytes() > transport::Connection::kBacklogLimit;
  }

  using OnMessage = std::function<Status(MessageType, ByteSpan)>;
  using OnCompletion = std::function<void(const transport::Completion&)>;
  // Takes what has come, at most a few messages; false when there was nothing. Errors: the lane's,
  // the peer's (kAbort), the handler's, the user's wish to stop, silence.
  Result<bool> Hear(const OnMessage& on_message, const OnCompletion& on_completion);
  // Until there may be something to hear, `crew` is readable, or it is time to look around.
  Status Sleep(int crew);
  // Both, until the handler has set `done`: for who has nothing else to do.
  Status HearUntil(const bool& done, const OnMessage& on_message);
  // The end: what went wrong here is said to the peer, if that can still hear it.
  Status Part(Status status);
  // The peer is gone; what it may have said before has been heard.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  Status HandleAll(std::span<const transport::Completion> completions, const OnMessage& on_message,
                   const OnCompletion& on_completion);
  Status Handle(ByteSpan message, const OnMessage& on_message);
  Status Lost(const Status& why);

  transport::Connection& lane_;
  const TalkSettings settings_;
  pipe::Liveness liveness_;
  bool hearing_ = false;
  std::vector<Bytes> later_;  // said while hearing: what was heard is valid until we send
  bool lost_ = false;         // the connection is over
  bool aborted_ = false;      // by the peer
};

}  // namespace rdfs::copy
