// Readiness: one descriptor that is readable when a stream has something to be done: input, or room
// for output that waits. An epoll(7) instance, so that it stays the same for a connection's life.
#pragma once

#include "transport/base/fd.h"
#include "transport/base/status.h"
#include "transport/tcp/stream.h"

namespace rdfs::transport::tcp {

class Readiness {
 public:
  // Fails for what cannot be polled: regular files.
  Status Open(const ByteStream& stream);
  // Says whether output waits. Costs nothing while that stays as it was.
  Status Update(const ByteStream& stream, bool output_waits);
  [[nodiscard]] int fd() const { return epoll_.get(); }

 private:
  struct Watched {
    int fd = -1;
    unsigned events = 0;  // 0: not watched
  };
  Status Watch(Watched& watched, unsigned events);

  Fd epoll_;
  Watched input_;
  Watched output_;  // pipes only: a socket is watched once for both
};

}  // namespace rdfs::transport::tcp
