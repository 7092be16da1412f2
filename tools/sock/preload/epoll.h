// epoll as programs see it. What the kernel knows of a descriptor is what the program has said,
// save for connections that are attached: their entry carries a mark of ours in place of the
// program's data, and their bells lie in a second set, which lies in the first. So the kernel wakes
// the program's wait for both, and what it says is translated: PROTOCOL.md, "Wake-ups".
//
// An instance belongs to this process (a child of fork has a copy of what is known here, and shares
// the kernel's part, as the kernel has it). Any thread; its lock is never held asleep.
#pragma once

#include <signal.h>
#include <sys/epoll.h>

#include <cstdint>

namespace rdfs::sock {

class Connection;

// epoll_ctl(2), and epoll_pwait(2): `mask` may be null.
int EpollControl(int epoll, int operation, int fd, epoll_event* event);
int EpollWait(int epoll, epoll_event* events, int most, int timeout, const sigset_t* mask);
// epoll_pwait2(2).
int EpollWait(int epoll, epoll_event* events, int most, const timespec* timeout,
              const sigset_t* mask);
// A connection was attached, or went back to TCP: sets that have it are told.
void EpollAttached(Connection& connection);
void EpollDetached(Connection& connection);
// A program was told that it may not send now, by this descriptor of the connection.
void EpollRefused(const Connection& connection, int fd);
// Somebody is about to wait for this descriptor, by something else than epoll_wait on it. If it is
// an instance, it is ready for them when, and as long as, a wait on it would tell of something.
void EpollWaitedForBy(int fd);
// Whether this process has put it into a set by this number.
bool EpollHas(int fd);
// A descriptor is about to be closed.
void EpollForget(int fd);
// Descriptors of the instance itself.
void EpollDuplicated(std::uint32_t index);
void EpollClosed(std::uint32_t index);
// From here on, until the fork is over, the kernel has what the program has put into its sets.
void EpollBeforeFork();
void EpollAfterForkInParent();
void EpollAfterForkInChild();

}  // namespace rdfs::sock
