#include "fs/fuse/command/mount_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "fs/fuse/command/mount_point.h"

namespace rdfs::fs::fuse {

bool Abandonment::Note(bool detached, bool server_is_there, TimePoint now) {
  if (!detached || server_is_there) {
    patient_until_ = TimePoint::max();
    return false;
  }
  if (patient_until_ == TimePoint::max()) patient_until_ = now + kPatience;
  return now >= patient_until_;
}

Result<std::unique_ptr<MountWatch>> MountWatch::Create(MachineSleep sleep) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  Fd mounts(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  return std::unique_ptr<MountWatch>(
      new MountWatch(std::move(wake), std::move(mounts), std::move(sleep)));
}

void MountWatch::Wake() const { wake_.Ring(); }

bool MountWatch::Wait(const std::string& device, const std::function<bool()>& server_is_there,
                      const std::function<void()>& slept) {
  constexpr int kLookAgainMs = 200;  // while detached; also the most often that mounts are read
  Abandonment abandonment;
  bool detached = false;
  for (;;) {
    // poll(2) ignores a negative descriptor. The mounts are looked at again while detached: a bind
    // mount may have come back.
    std::array<pollfd, 3> entries{{{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = sleep_.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = mounts_.get(), .events = POLLPRI, .revents = 0}}};
    const int ready = poll(entries.data(), detached ? 2 : 3, detached ? kLookAgainMs : -1);
    if (ready < 0 && errno != EINTR) return false;
    if (entries[0].revents != 0) return false;
    if (entries[1].revents != 0 && sleep_.Look()) slept();
    const std::string mountinfo = ReadMountInfo();
    detached = !mountinfo.empty() && !IsDeviceMounted(mountinfo, device);
    if (abandonment.Note(detached, server_is_there(), BootClock::now())) return true;
  }
}

}  // namespace rdfs::fs::fuse
