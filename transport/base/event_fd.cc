#include "transport/base/event_fd.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace rdfs {

Result<EventFd> EventFd::Create() {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return Status::FromErrno(errno, "eventfd");
  return EventFd(std::move(fd));
}

// Fails only where the count is at its top: readable then already.
void EventFd::Ring() const { (void)eventfd_write(fd_.get(), 1); }

void EventFd::Drain() const {
  eventfd_t ignored = 0;
  (void)eventfd_read(fd_.get(), &ignored);
}

}  // namespace rdfs
