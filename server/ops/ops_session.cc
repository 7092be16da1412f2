// The session and its lanes: renew, attach, interrupt, the ends of grace and session.
#include "server/ops/ops.h"
#include "transport/base/printable.h"

namespace rdfs::server {

Outcome OpRenew(Call& call) {
  // That it came is all that there is to it: the dispatcher has noted the time.
  return call.Decoded() ? Outcome::Ok() : Outcome::Malformed();
}

Outcome OpAttachLane(Call& call) {
  const auto request = call.body.Read<fs::AttachLaneRequest>();
  if (!call.Decoded() || !call.lane->Attach()) return Outcome::Malformed();
  fs::AttachLaneReply reply{};
  if (!call.session.params().read_only && request.staging_bytes != 0) {
    const auto& own = call.session.params().staging;
    if (own != nullptr && own->free_bytes() < request.staging_bytes) {
      call.core().refusals.Note(Refusals::What::kPinned, call.session.params().client);
    }
    if (std::shared_ptr<Staging> staging = call.lane->MakeStaging(request.staging_bytes)) {
      reply = staging->reply();
      call.lane->SetStaging(std::move(staging));
    }
  }
  call.out.Write(reply);
  call.session.NoteChoice(Printable(AsText(call.extensions.transport)));
  call.session.NoteAttach(call.header.sequence);
  if (IntentRing* const record = call.session.record()) record->NoteGivenUp(false);
  call.core().leases.LaneOpened(call.lane);
  return Outcome::Ok();
}

Outcome OpInterrupt(Call& call) {
  const auto request = call.body.Read<fs::InterruptRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  // What is not waiting any more has been answered or will be: nothing to do.
  call.core().locks.Interrupt(call.session.id(), request.sequence);
  return Outcome::Ok();
}

Outcome OpRecallAck(Call& call) {
  const auto request = call.body.Read<fs::RecallAckRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  if (request.number == fs::kRecallEarlier) {
    call.core().leases.ForgetsEarlier(call.session.id());
  } else if (request.number == fs::kRecallEarlierWrites) {
    call.core().leases.WroteEarlier(call.session.id());
  } else {
    call.core().leases.Acknowledge(call.session.id(), request.number);
  }
  return Outcome::Ok();
}

Outcome OpEndSession(Call& call) {
  if (!call.Decoded()) return Outcome::Malformed();
  call.core().end_session(call.lane->session());
  return Outcome::Ok();
}

Outcome OpGraceEnd(Call& call) {
  if (!call.Decoded()) return Outcome::Malformed();
  call.core().grace.Done(call.session.id());
  return Outcome::Ok();
}

}  // namespace rdfs::server
