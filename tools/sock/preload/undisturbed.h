// Work of the library's own in the middle of a call of the program's: no handler of the program's
// runs meanwhile on this thread, nobody cancels it, and errno is as before afterwards.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cerrno>

#include "tools/sock/preload/cancel.h"

namespace rdfs::sock {

class Undisturbed {
 public:
  Undisturbed() : errno_(errno) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
  }
  ~Undisturbed() {
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    errno = errno_;
  }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  NotCancelled not_cancelled_;
  int errno_;
  sigset_t mask_;
};

}  // namespace rdfs::sock
