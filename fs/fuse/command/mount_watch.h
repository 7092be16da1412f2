// MountWatch: sleeps until a mount is over, and tells when it has been abandoned, and when the
// machine has slept (machine_sleep.h).
//
// A mount that somebody else detached (umount -l) lives on while programs hold files of it, and the
// kernel says nothing about it. With the server there that is as it should be. Without it those
// programs would wait for their calls' deadline, and we with them, for nothing: nobody can get at
// the files any more. So such a mount is over once its server has been away for kPatience.
//
// Whether a mount is detached is asked of /proc/self/mountinfo, whose descriptor polls readable
// (POLLPRI) when any mount of this namespace comes or goes (proc(5)); idle, nothing runs. Other
// mount namespaces, which may still have it, are not seen. One thread waits; Wake by any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "fs/fuse/command/machine_sleep.h"
#include "transport/base/clock.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::fs::fuse {

// Pure: since when a detached mount has been without its server.
class Abandonment {
 public:
  static constexpr std::chrono::seconds kPatience{2};
  // What is the case at `now`; whether the mount is abandoned.
  bool Note(bool detached, bool server_is_there, TimePoint now);

 private:
  TimePoint patient_until_ = TimePoint::max();  // max: it is not alone
};

class MountWatch {
 public:
  static Result<std::unique_ptr<MountWatch>> Create(MachineSleep sleep = MachineSleep());

  // Until Wake (false), or until the mount of `device` ("0:45") is abandoned (true). Calls `slept`
  // each time that the machine has.
  bool Wait(const std::string& device, const std::function<bool()>& server_is_there,
            const std::function<void()>& slept);
  void Wake() const;

 private:
  MountWatch(EventFd wake, Fd mounts, MachineSleep sleep)
      : wake_(std::move(wake)), mounts_(std::move(mounts)), sleep_(std::move(sleep)) {}
  EventFd wake_;
  Fd mounts_;  // not valid where there is no /proc: nothing is noticed then
  MachineSleep sleep_;
};

}  // namespace rdfs::fs::fuse
