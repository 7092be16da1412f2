#include "tools/sock/preload/watch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/timeout.h"

namespace rdfs::sock {
namespace {

constexpr short kIn = POLLIN | POLLRDNORM;
constexpr short kOut = POLLOUT | POLLWRNORM;

}  // namespace

Watch::Watch(std::span<pollfd> fds) : fds_(fds), watched_(fds.size()), asked_(3 * fds.size()) {
  if (watched_.data() == nullptr || asked_.data() == nullptr) {
    fds_ = {};
    return;
  }
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    Use use(fds_[i].fd);
    if (!use) {
      EpollWaitedForBy(fds_[i].fd);
      continue;
    }
    watched_[i].road = use->Enter(fds_[i].fd, false);
    watched_[i].connection = use.Release();
    if (watched_[i].road == Connection::Road::kEnd) ++attached_;
  }
}

// Whether what the End says of a descriptor counts: who waits looks its number up again whenever it
// is woken, as the kernel does (do_pollfd() in fs/select.c), and by then another thread may have
// closed it.
bool Watch::ByEnd(std::size_t i) const {
  const Watched& watched = watched_[i];
  return watched.connection != nullptr && watched.road == Connection::Road::kEnd &&
         Registry().Get(fds_[i].fd) == Word(Word::Kind::kConnection, watched.connection->index());
}

Watch::~Watch() {
  const int saved = errno;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    Connection* const connection = watched_[i].connection;
    if (connection == nullptr) continue;
    if (watched_[i].road == Connection::Road::kCounted) connection->Leave(0);
    connection->DropUser();
  }
  errno = saved;
}

// What the ends say, and what to ask the kernel. Whether any end is ready.
bool Watch::Look(bool arm) {
  bool any = false;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    const pollfd& fd = fds_[i];
    asked_[i] = {fd.fd, fd.events, 0};
    watched_[i].ready = 0;
    watched_[i].outlet = End::Outlet::kTcp;
    if (!ByEnd(i)) continue;
    End& end = watched_[i].connection->end();
    int ready = 0;
    if ((fd.events & kIn) != 0 && end.Readable(fd.fd, arm)) ready |= fd.events & kIn;
    if ((fd.events & kOut) != 0) {
      const End::Outlet outlet = end.Writable(fd.fd, arm);
      if (outlet == End::Outlet::kRoom) ready |= fd.events & kOut;
      watched_[i].outlet = outlet;
      // What the kernel's socket has room for is of no use now.
      if (outlet != End::Outlet::kTcp) asked_[i].events = static_cast<short>(fd.events & ~kOut);
    }
    // Looking has taken it away from the kernel's socket.
    if (end.memory().receive_error != 0) ready |= POLLERR;
    watched_[i].ready = static_cast<short>(ready);
    any = any || ready != 0;
  }
  return any;
}

std::size_t Watch::AddBells() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    if (!ByEnd(i)) continue;
    const End& end = watched_[i].connection->end();
    if (end.hung_up()) continue;
    pollfd* const bells = asked_.data() + fds_.size();
    if ((fds_[i].events & kIn) != 0) bells[count++] = {end.bells().data, POLLIN, 0};
    // Of the others nobody has taken the ring that may still lie there.
    if (watched_[i].outlet == End::Outlet::kFull) bells[count++] = {end.bells().room, POLLIN, 0};
  }
  return count;
}

// Until when to sleep: of a ring that stays full there is more to be said later, and no bell tells
// that the peer has left a system call.
CallDeadline Watch::Patience(CallDeadline deadline) const {
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    const End::Outlet outlet = watched_[i].outlet;
    if (outlet == End::Outlet::kSoon) deadline = std::min(deadline, CallDeadlineAfter(kQuietLook));
    if (outlet != End::Outlet::kFull) continue;
    deadline =
        std::min(deadline, CallDeadlineAfter(watched_[i].connection->end().PatienceForRoom()));
  }
  return deadline;
}

// Both answers in one. How many descriptors have one.
int Watch::Collect(std::size_t bells) {
  const std::span<const pollfd> rung(asked_.data() + fds_.size(), bells);
  const auto hung_up = [&](int bell) {
    return std::any_of(rung.begin(), rung.end(), [&](const pollfd& fd) {
      return fd.fd == bell && (fd.revents & (POLLHUP | POLLERR)) != 0;
    });
  };
  int count = 0;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    fds_[i].revents = static_cast<short>(watched_[i].ready | asked_[i].revents);
    if (fds_[i].revents != 0) ++count;
    if (!ByEnd(i)) continue;
    End& end = watched_[i].connection->end();
    if ((fds_[i].revents & POLLERR) != 0) end.Failed();
    if (hung_up(end.bells().data) || hung_up(end.bells().room)) end.HungUp();
  }
  return count;
}

// One look at everything and, when nothing is there and `sleep`, a wait.
int Watch::Once(bool sleep, CallDeadline deadline, const sigset_t* mask) {
  const bool any = Look(sleep);
  const bool wait = sleep && !any;
  const std::size_t bells = wait ? AddBells() : 0;
  if (wait) deadline = Patience(deadline);
  const timespec left = wait ? Left(deadline) : timespec{};
  const bool for_ever = wait && deadline == CallDeadline::max();
  const int woken = InKernel([&] {
    return libc().ppoll(asked_.data(), fds_.size() + bells, for_ever ? nullptr : &left, mask);
  });
  if (woken < 0 && !any) return -1;
  if (wait) ++TheCounts().sleeps;
  return Collect(bells);
}

// Whether the only connection that is waited for has become readable meanwhile.
bool Watch::Spin() {
  End* only = nullptr;
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    if (!ByEnd(i) || (fds_[i].events & kIn) == 0) continue;
    if (only != nullptr) return false;
    only = &watched_[i].connection->end();
  }
  return only != nullptr && only->SpinForBytes();
}

int Watch::Poll(CallDeadline deadline, const sigset_t* mask) {
  int count = Once(false, deadline, mask);
  // The kernel lets no signal in when a descriptor is ready, be it a bell. So who was woken for
  // nothing looks without the bells before it sleeps again. So does who has spun: if nothing is
  // there then, it sleeps.
  bool spun = false;
  for (bool sleep = true; count == 0 && CallClock::now() < deadline; sleep = spun || !sleep) {
    spun = sleep && !spun && Spin();
    count = Once(sleep && !spun, deadline, mask);
  }
  return count;
}

}  // namespace rdfs::sock
