// Locks: getlk, setlk, reclaiming one, and flush, which drops its owner's.
#include <cerrno>

#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

bool IsValid(const fs::LockRequest& request) {
  if (request.type > static_cast<std::uint32_t>(fs::LockType::kUnlock)) return false;
  if ((request.flags & ~(fs::kLockWait | fs::kLockFlock)) != 0) return false;
  return request.start <= request.end && request.end <= LockTable::kEnd;
}

Lock ToLock(const Call& call, const fs::LockRequest& request) {
  const bool flock = (request.flags & fs::kLockFlock) != 0;
  return {.owner = {.session = call.session.id(), .owner = request.owner, .flock = flock},
          .type = static_cast<fs::LockType>(std::uint32_t{request.type}),
          .start = flock ? 0 : std::uint64_t{request.start},
          .end = flock ? LockTable::kEnd : std::uint64_t{request.end},
          .open = request.open,
          .pid = request.pid};
}

// The session may have ended while the lock was taken: then nobody would drop it any more.
void DropIfEnded(Call& call, const OpenFile& open) {
  if (!call.session.ended()) return;
  call.core().locks.Released(open);
  call.core().locks.SessionEnded(call.session.id());
}

}  // namespace

Outcome OpGetLock(Call& call) {
  const auto request = call.body.Read<fs::LockRequest>();
  if (!call.Decoded() || !IsValid(request)) return Outcome::Malformed();
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  Lock found;
  if (const int error = call.core().locks.Test(*open, ToLock(call, request), found); error != 0) {
    return Outcome::Errno(error);
  }
  fs::LockReply reply;
  reply.start = found.start;
  reply.end = found.end;
  reply.type = static_cast<std::uint32_t>(found.type);
  reply.pid = found.pid;
  call.out.Write(reply);
  return Outcome::Ok();
}

Outcome OpSetLock(Call& call) {
  const auto request = call.body.Read<fs::LockRequest>();
  if (!call.Decoded() || !IsValid(request)) return Outcome::Malformed();
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  if (open->directory && (request.flags & fs::kLockFlock) == 0) return Outcome::Errno(EBADF);
  const Lock wanted = ToLock(call, request);
  const bool wait = (request.flags & fs::kLockWait) != 0 && wanted.type != fs::LockType::kUnlock;
  const int error = call.core().locks.Set(open, wanted, wait ? &call.responder : nullptr);
  DropIfEnded(call, *open);
  if (error == LockService::kParked) return Outcome::Pending();
  return error == ENOLCK ? call.Refuse(Refusals::What::kLocks, error) : Outcome::Errno(error);
}

Outcome OpReclaimLock(Call& call) {
  const auto request = call.body.Read<fs::LockRequest>();
  const bool unlocks = request.type == static_cast<std::uint32_t>(fs::LockType::kUnlock);
  if (!call.Decoded() || !IsValid(request) || unlocks || (request.flags & fs::kLockWait) != 0) {
    return Outcome::Malformed();
  }
  const Core& core = call.core();
  if (core.grace.active(core.clock.Now()) && !core.grace.Awaits(call.session.id())) {
    return Outcome::Error(fs::WireError::kGrace);
  }
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  if (open->directory && (request.flags & fs::kLockFlock) == 0) return Outcome::Errno(EBADF);
  const int error =
      call.core().locks.Reclaim(open, ToLock(call, request), call.session.params().may_reclaim);
  DropIfEnded(call, *open);
  return Outcome::Errno(error);
}

Outcome OpFlush(Call& call) {
  const auto request = call.body.Read<fs::FlushRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  const LockOwner owner{.session = call.session.id(), .owner = request.lock_owner, .flock = false};
  call.core().locks.OwnerClosed(*open, owner);
  return Outcome::Ok();
}

}  // namespace rdfs::server
