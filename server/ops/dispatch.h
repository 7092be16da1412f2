// The dispatcher: from a message to its handler and back.
//
// One a worker, on its thread. Checks the header, refuses what does not belong to the session,
// looks into the session's record so that a mutating request happens once, acts as the caller, runs
// the handler of the table in dispatch.cc and sends the answer, unless the handler took that over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "server/ops/call.h"

namespace rdfs::server {

class Dispatcher {
 public:
  explicit Dispatcher(Worker& worker) : worker_(worker) {}

  // False: no correct client sends this; the lane must end (kMalformed has been answered). The
  // bytes are not used after the return.
  [[nodiscard]] bool Handle(const LanePtr& lane, ByteSpan message);

 private:
  using Handler = Outcome (*)(Call&);
  enum class Next : std::uint8_t { kRun, kAnswered, kAsDone, kOpenAgain, kHeldBack, kEnd };

  // What the record says about a mutating request; answers it where it can. `made`: by kOpenAgain.
  Next Replay(Call& call, std::uint64_t digest, PriorState& before, fs::Handle& made);
  // Of a request that no record has: whether carrying it out is safe where it may have been before.
  static bool IsSafeWithoutRecord(const Call& call, const PriorState& now);
  static Next AnswerUnknown(Call& call);
  Next AnswerDone(Call& call, const IntentRing::Found& found, fs::Handle& made);
  // What an earlier epoch has opened, and made perhaps.
  static Outcome OpenAgain(Call& call, const fs::Handle& made);
  Next Wait(Call& call, std::uint64_t digest);
  // Of a request that was counted; again when it has waited.
  bool Serve(const LanePtr& lane, ByteSpan message, Responder responder);
  Outcome Run(Call& call);
  // As whom the request acts; what `outcome` says instead where it may not, or is parked until it
  // is known which groups its caller is in.
  bool Become(Call& call, Outcome& outcome);
  // A request that waits with its message, to be served anew.
  struct Parked;
  // Null: it is refused, and answered, because too much waits already.
  std::shared_ptr<Parked> BeginParking(Call& call);
  // Serves it, on the lane's thread: from any thread, behind what this one does now.
  std::function<void()> GoOnWith(std::shared_ptr<Parked> parked);
  void Park(Parked& parked, Call& call);
  // False: the request is parked until others believe nothing of what it changes, and what they
  // have written of what it tells is here.
  bool MayGoOn(Call& call);
  // Whether it has to wait until the clients of an earlier epoch are back.
  [[nodiscard]] bool HeldBack(const Call& call) const;
  // Runs the handler, a second time where it says so.
  Outcome Carry(Call& call, Handler handler);
  bool Finish(Call& call, Outcome outcome);

  Worker& worker_;
  ByteSpan message_;  // that is being served
};

}  // namespace rdfs::server
