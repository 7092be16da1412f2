// A module of a program's that uses liburing, which the program does not: see uring_host_main.cc.
#include <liburing.h>

// What io_uring_submit says of one request.
extern "C" int SubmitOne() {
  io_uring ring{};
  const int error = io_uring_queue_init(4, &ring, 0);
  if (error != 0) return error;
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  const int submitted = io_uring_submit(&ring);
  io_uring_queue_exit(&ring);
  return submitted;
}
