// A module of a program's that uses liburing, which the program does not: see uring_host_main.cc.
#include <liburing.h>

namespace {

io_uring g_ring;

}  // namespace

extern "C" {
// 0, or what liburing says.
int Prepare() {
  const int error = io_uring_queue_init(4, &g_ring, 0);
  if (error != 0) return error;
  io_uring_prep_nop(io_uring_get_sqe(&g_ring));
  io_uring_prep_nop(io_uring_get_sqe(&g_ring));
  return 0;
}
// What io_uring_submit says of two requests: called from here, or as the last thing, so that it
// returns to whoever has called this.
int Submit() {
  const int submitted = io_uring_submit(&g_ring);
  io_uring_queue_exit(&g_ring);
  return submitted;
}
int SubmitAsLast() { return io_uring_submit(&g_ring); }
}
