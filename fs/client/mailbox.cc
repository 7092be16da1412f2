#include "fs/client/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace rdfs::fs::client {

Result<std::shared_ptr<Mailbox>> Mailbox::Create() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return Status::FromErrno(errno, "eventfd");
  return std::shared_ptr<Mailbox>(new Mailbox(std::move(event)));
}

void Mailbox::PutDestroyed() {
  {
    const std::lock_guard lock(mutex_);
    letters_.connection_destroyed = true;
  }
  Wake();
}

void Mailbox::PutLink(std::unique_ptr<LaneLink> link) {
  {
    const std::lock_guard lock(mutex_);
    letters_.link = std::move(link);
  }
  Wake();
}

void Mailbox::PutCancel(std::uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    letters_.cancels.push_back(ticket);
  }
  Wake();
}

void Mailbox::Wake() {
  pending_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // Fails only when the counter is full: readable then already.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

Mailbox::Letters Mailbox::Take() {
  // The event is cleared first: a letter put from here on is readable again.
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(event_.get(), &count, sizeof(count));
  pending_.store(false, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  return std::exchange(letters_, {});
}

}  // namespace rdfs::fs::client
