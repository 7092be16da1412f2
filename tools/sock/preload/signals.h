// Which signals end a system call: poll(2) is always ended, read(2) only by a handler that was set
// without SA_RESTART (signal(7)). Any thread, also in a signal handler.
#pragma once

namespace rdfs::sock {

// Whether a call that a signal has woken has to say EINTR. When the program has handlers of both
// kinds it does, since which of them ran is not known.
bool SignalsInterrupt();

}  // namespace rdfs::sock
