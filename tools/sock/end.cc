#include "tools/sock/end.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <new>

namespace rdfs::sock {
namespace {

// Numbers of <netinet/tcp.h>, which cannot stand beside <linux/tcp.h> (the whole of tcp_info).
enum : std::uint8_t {
  kFinWait1 = 4,
  kFinWait2 = 5,
  kTimeWait = 6,
  kCloseWait = 8,
  kLastAck = 9,
  kClosing = 11
};

bool OurFinWent(std::uint8_t state) {
  return state == kFinWait1 || state == kFinWait2 || state == kTimeWait || state == kLastAck ||
         state == kClosing;
}
bool TheirFinCame(std::uint8_t state) {
  return state == kTimeWait || state == kCloseWait || state == kLastAck || state == kClosing;
}

Result<tcp_info> Info(int tcp) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(tcp, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return Status::FromErrno(errno, "TCP_INFO");
  }
  return info;
}

// TCP_INFO and what `request` counts, of one and the same moment.
struct Moment {
  tcp_info info;
  std::uint64_t queued;
};
Result<Moment> At(int tcp, unsigned long request) {
  for (;;) {
    RDFS_ASSIGN_OR_RETURN(const tcp_info before, Info(tcp));
    int queued = 0;
    if (ioctl(tcp, request, &queued) != 0) return Status::FromErrno(errno, "the socket's queue");
    RDFS_ASSIGN_OR_RETURN(const tcp_info after, Info(tcp));
    if (before.tcpi_bytes_acked == after.tcpi_bytes_acked &&
        before.tcpi_bytes_received == after.tcpi_bytes_received &&
        before.tcpi_state == after.tcpi_state) {
      return Moment{after, static_cast<std::uint64_t>(queued)};
    }
  }
}

bool InitLock(pthread_mutex_t& lock) {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK) == 0 &&
                    pthread_mutex_init(&lock, &attributes) == 0;
  pthread_mutexattr_destroy(&attributes);
  return made;
}

}  // namespace

Result<std::uint64_t> SentPosition(int tcp, bool opened) {
  RDFS_ASSIGN_OR_RETURN(const Moment moment, At(tcp, SIOCOUTQ));
  const std::uint64_t extra = (opened ? 1U : 0U) + (OurFinWent(moment.info.tcpi_state) ? 1U : 0U);
  return moment.info.tcpi_bytes_acked + moment.queued - extra;
}

Result<std::uint64_t> ReceivedPosition(int tcp) {
  RDFS_ASSIGN_OR_RETURN(const Moment moment, At(tcp, SIOCINQ));
  return moment.info.tcpi_bytes_received - moment.queued -
         (TheirFinCame(moment.info.tcpi_state) ? 1U : 0U);
}

Result<EndMemory*> EndMemory::Create(void* place, int tcp, bool opened, std::uint32_t largest_ring,
                                     Far far) {
  RDFS_ASSIGN_OR_RETURN(const std::uint64_t sent, SentPosition(tcp, opened));
  RDFS_ASSIGN_OR_RETURN(const std::uint64_t received, ReceivedPosition(tcp));
  auto* memory = new (place) EndMemory;
  if (!InitLock(memory->send_lock) || !InitLock(memory->receive_lock)) {
    return Status(Code::kUnavailable, "no robust locks between processes here");
  }
  memory->sender = Sender(sent, largest_ring, far);
  memory->receiver = Receiver(received, largest_ring, far);
  return memory;
}

void End::Reset(int tcp) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  (void)connect(tcp, &none, sizeof(none));
}

End::Stand End::Broken(int tcp) {
  Reset(tcp);
  errno = ECONNRESET;
  return Stand::kError;
}

}  // namespace rdfs::sock
