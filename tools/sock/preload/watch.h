// Watch: the connections among the descriptors of one call of poll, kept while it lasts. For those
// that are attached, what their End says stands beside what the kernel says of the socket, and
// their bells are waited for, too; the others cannot be attached while somebody waits in the kernel
// for them alone.
//
// On the stack of the call; one thread.
#pragma once

#include <poll.h>
#include <signal.h>

#include <cstddef>
#include <span>

#include "tools/sock/call_clock.h"
#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/room.h"

namespace rdfs::sock {

class Watch {
 public:
  explicit Watch(std::span<pollfd> fds);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Whether none is attached: then the call is the kernel's.
  [[nodiscard]] bool plain() const { return attached_ == 0; }
  // ppoll(2). `mask`: null to leave the signal mask alone.
  int Poll(CallDeadline deadline, const sigset_t* mask);
  // A wait in the kernel, in which the thread may be cancelled: then this is over.
  template <typename Wait>
  int InKernel(Wait wait) {
    return Cancellable(
        wait, [](void* watch) { static_cast<Watch*>(watch)->~Watch(); }, this);
  }

 private:
  struct Watched {
    Connection* connection;  // null when it is none of ours
    Connection::Road road;
    short ready;
    End::Outlet outlet;  // kFull: the room bell tells when bytes can be sent
  };

  [[nodiscard]] bool ByEnd(std::size_t i) const;
  bool Look(bool arm);
  std::size_t AddBells();
  [[nodiscard]] CallDeadline Patience(CallDeadline deadline) const;
  int Collect(std::size_t bells);
  int Once(bool sleep, CallDeadline deadline, const sigset_t* mask);
  bool Spin();

  std::span<pollfd> fds_;
  Room<Watched, 32> watched_;
  // What the kernel is asked: as many as fds_, then bells.
  Room<pollfd, 96> asked_;
  std::size_t attached_ = 0;
};

}  // namespace rdfs::sock
