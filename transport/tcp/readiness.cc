#include "transport/tcp/readiness.h"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>

namespace rdfs::transport::tcp {

Status Readiness::Open(const ByteStream& stream) {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) {
    if (errno != EMFILE && errno != ENFILE) return Status::FromErrno(errno, "epoll_create1");
    return {Code::kResourceExhausted, errno,
            "too many open descriptors; raise the limit (ulimit -n)"};
  }
  input_.fd = stream.read_fd();
  output_.fd = stream.write_fd();
  return Update(stream, false);
}

Status Readiness::Update(const ByteStream& stream, bool output_waits) {
  const int wanted =
      stream.read_events() | (output_waits ? stream.write_events() : static_cast<short>(0));
  const unsigned in = (wanted & POLLIN) != 0 ? static_cast<unsigned>(EPOLLIN) : 0U;
  const unsigned out = (wanted & POLLOUT) != 0 ? static_cast<unsigned>(EPOLLOUT) : 0U;
  if (input_.fd == output_.fd) return Watch(input_, in | out);
  RDFS_RETURN_IF_ERROR(Watch(input_, in));
  return Watch(output_, out);
}

// A pipe that is not waited for is taken out: epoll always reports errors, and a reader that went
// away would keep everybody awake who has nothing to write.
Status Readiness::Watch(Watched& watched, unsigned events) {
  if (watched.events == events) return {};
  epoll_event event{};
  event.events = events;
  const int operation =
      events == 0 ? EPOLL_CTL_DEL : (watched.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
  if (epoll_ctl(epoll_.get(), operation, watched.fd, &event) != 0) {
    return Status::FromErrno(errno, "cannot wait for the stream's descriptor");
  }
  watched.events = events;
  return {};
}

}  // namespace rdfs::transport::tcp
