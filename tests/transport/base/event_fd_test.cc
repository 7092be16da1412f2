#include "transport/base/event_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace rdfs {
namespace {

bool IsReadable(const EventFd& event) {
  pollfd entry{.fd = event.fd(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

TEST(EventFd, IsReadableFromARingUntilItIsDrained) {
  auto event = EventFd::Create();
  ASSERT_TRUE(event.ok()) << event.status().ToString();
  EXPECT_FALSE(IsReadable(*event));
  event->Drain();  // of nothing: does not wait
  event->Ring();
  event->Ring();
  EXPECT_TRUE(IsReadable(*event));
  event->Drain();
  EXPECT_FALSE(IsReadable(*event));
  event->Ring();
  EXPECT_TRUE(IsReadable(*event));
}

TEST(EventFd, ARingDoesNotWaitWhereTheCountIsFull) {
  auto event = EventFd::Create();
  ASSERT_TRUE(event.ok()) << event.status().ToString();
  ASSERT_EQ(eventfd_write(event->fd(), ~eventfd_t{1}), 0);
  event->Ring();
  EXPECT_TRUE(IsReadable(*event));
  event->Drain();
  EXPECT_FALSE(IsReadable(*event));
}

TEST(EventFd, IsNotForChildren) {
  auto event = EventFd::Create();
  ASSERT_TRUE(event.ok()) << event.status().ToString();
  EXPECT_NE(fcntl(event->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(EventFd, OneThatHasNotBeenMadeIsNone) {
  const EventFd none;
  EXPECT_EQ(none.fd(), -1);
  none.Ring();
  none.Drain();
  EXPECT_FALSE(IsReadable(none));
}

}  // namespace
}  // namespace rdfs
