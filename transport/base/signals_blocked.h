// SignalsBlocked: as long as one lives, its thread blocks every signal, and so do the threads that
// it starts meanwhile, for good: signals are for the threads that the program has for them.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace rdfs {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace rdfs
