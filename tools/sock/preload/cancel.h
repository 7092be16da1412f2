// Where pthread_cancel(3) may strike inside this library: in sleeps alone, which let go of what
// their thread has. Everything else that it does for a call is done to its end.
#pragma once

#include <pthread.h>
#include <sys/single_threaded.h>

namespace rdfs::sock {

// While it lives the calling thread is not cancelled.
class NotCancelled {
 public:
  NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// A call that may sleep. When the thread is cancelled in there, undo(what) is all that is done: no
// destructor runs in code without exceptions.
template <typename Call>
auto Cancellable(Call call, void (*undo)(void* what), void* what) {
  if (__libc_single_threaded != 0) return call();  // there is nobody to do it
  decltype(call()) result;
  pthread_cleanup_push(undo, what);
  result = call();
  pthread_cleanup_pop(0);
  return result;
}

}  // namespace rdfs::sock
