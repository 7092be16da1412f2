#include "fs/client/mailbox.h"

namespace rdfs::fs::client {

Result<std::shared_ptr<Mailbox>> Mailbox::Create() {
  RDFS_ASSIGN_OR_RETURN(EventFd event, EventFd::Create());
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
  event_.Ring();
}

Mailbox::Letters Mailbox::Take() {
  // The event is drained first: a letter put from here on is readable again.
  event_.Drain();
  pending_.store(false, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  return std::exchange(letters_, {});
}

}  // namespace rdfs::fs::client
