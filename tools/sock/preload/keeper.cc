#include "tools/sock/preload/keeper.h"

#include <limits.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/sock/preload/calling.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/slot.h"

namespace rdfs::sock {
namespace {

// The program waits itself then, with its signals.
constexpr std::chrono::seconds kWithoutFilter{10};

// A filter of a TCP socket sees packets from the TCP header on (tcp_filter() in net/ipv4); flags
// are its byte 13 (RFC 9293, 3.1).
bool DropFin(int tcp) {
  std::array<sock_filter, 4> code = {{{BPF_LD | BPF_B | BPF_ABS, 0, 0, 13},
                                      {BPF_JMP | BPF_JSET | BPF_K, 0, 1, TH_FIN},
                                      {BPF_RET | BPF_K, 0, 0, 0},
                                      {BPF_RET | BPF_K, 0, 0, UINT_MAX}}};
  const sock_fprog program{code.size(), code.data()};
  return setsockopt(tcp, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}
void LetFinIn(int tcp) {
  const int unused = 0;
  (void)setsockopt(tcp, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

bool FinCame(int tcp) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(tcp, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
         info.tcpi_state != TCP_ESTABLISHED;
}

void CloseAllBut(std::array<int, 3> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 0;
  for (const int fd : kept) {
    if (fd < 0) continue;
    const auto number = static_cast<unsigned>(fd);
    if (number > first) (void)libc().close_range(first, number - 1, 0);
    first = number + 1;
  }
  (void)libc().close_range(first, UINT_MAX, 0);
}

[[noreturn]] void Run(int tcp, End& end, std::uint32_t slot) {
  Calling::IsOver();  // the number is this process's own
  (void)setsid();
  (void)prctl(PR_SET_NAME, "rdsock-keeper", 0, 0, 0);
  // The program's handlers are not ours. If we are killed the other end takes its bytes back, too.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigset_t deadly;
  sigemptyset(&deadly);
  for (const int number : {SIGTERM, SIGINT}) {
    (void)libc().sigaction(number, &standard, nullptr);
    sigaddset(&deadly, number);
  }
  CloseAllBut({tcp, end.bells().data, end.bells().room});
  sigprocmask(SIG_UNBLOCK, &deadly, nullptr);
  (void)end.AwaitReturn(tcp);
  LetFinIn(tcp);
  if (Slots()[slot].Leave(getpid())) Slots().Give(slot);
  _exit(0);
}

}  // namespace

bool StartKeeper(int tcp, End& end, std::uint32_t slot, TimePoint since) {
  const bool drops = DropFin(tcp);
  // What shut its half down can send nothing again.
  if (FinCame(tcp)) return false;
  if (!drops) return end.AwaitReturn(tcp, since + kWithoutFilter);
  // Nobody closes it before the keeper has it.
  const Calling::Number number(tcp);
  // Between us and the keeper a process that is gone at once. It sends no signal when it ends, and
  // is seen only by who asks for such.
  const auto between = static_cast<pid_t>(libc().syscall(SYS_clone, 0, 0, 0, 0, 0, 0));
  if (between == 0) {
    const pid_t keeper = libc()._Fork();
    if (keeper == 0) Run(number.get(), end, slot);
    // Before the program can close what it has: another connection would get the keeper's memory.
    if (keeper > 0) Slots()[slot].Join(keeper);
    _exit(keeper > 0 ? 0 : 1);
  }
  int status = -1;
  while (between > 0 && waitpid(between, &status, __WALL) < 0 && errno == EINTR) {
  }
  if (status == 0) return true;
  LetFinIn(tcp);
  return false;
}

}  // namespace rdfs::sock
