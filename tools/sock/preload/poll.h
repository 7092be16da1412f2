// poll(2), ppoll(2), select(2) and pselect(2) as programs see them. Any thread.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/select.h>

namespace rdfs::sock {

int PollForProgram(pollfd* fds, nfds_t count, int timeout);
int PPollForProgram(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);
int SelectForProgram(int end, fd_set* read, fd_set* write, fd_set* except, timeval* timeout);
int PSelectForProgram(int end, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                      const sigset_t* mask);

}  // namespace rdfs::sock
