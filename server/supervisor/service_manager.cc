#include "server/supervisor/service_manager.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "server/command/environment.h"
#include "transport/base/parse_number.h"

namespace rdfs::server {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START

struct Address {
  sockaddr_un socket{};
  socklen_t size = 0;
};

std::optional<Address> ManagersAddress() {
  const char* path = ::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return std::nullopt;
  Address address;
  address.socket.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof(address.socket.sun_path)) return std::nullopt;
  std::memcpy(address.socket.sun_path, path, length);
  if (path[0] == '@') address.socket.sun_path[0] = '\0';  // an abstract name
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  return address;
}

std::optional<int> NumberFromEnvironment(const char* name) {
  return ParseNumber<int>(FromEnvironment(name));
}

Status WaitUntil(int fd, short event, Deadline deadline) {
  pollfd entry{.fd = fd, .events = event, .revents = 0};
  while (poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now())) <= 0) {
    if (BootClock::now() >= deadline) {
      return Status(Code::kDeadlineExceeded, "the service manager does not read what it is told");
    }
  }
  return {};
}

}  // namespace

bool HasServiceManager() { return ManagersAddress().has_value(); }

Status NotifyServiceManager(std::string_view lines, std::span<const int> descriptors,
                            Deadline deadline) {
  const std::optional<Address> address = ManagersAddress();
  if (!address) return Status(Code::kNotFound, "there is no service manager to tell");
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address->socket),
                                 address->size) != 0) {
    return Status::FromErrno(errno, "NOTIFY_SOCKET");
  }
  iovec text{.iov_base = const_cast<char*>(lines.data()), .iov_len = lines.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  while (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Status::FromErrno(errno, "NOTIFY_SOCKET");
    RDFS_RETURN_IF_ERROR(WaitUntil(socket.get(), POLLOUT, deadline));
  }
  return {};
}

Status WaitForServiceManager(Deadline deadline) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const int passed = write_end.get();
  RDFS_RETURN_IF_ERROR(NotifyServiceManager("BARRIER=1", std::span(&passed, 1), deadline));
  write_end.Reset();
  return WaitUntil(read_end.get(), POLLIN, deadline);  // it is hung up when the manager closes it
}

std::vector<Fd> TakePassedDescriptors(std::string_view name) {
  std::vector<Fd> taken;
  const std::optional<int> process = NumberFromEnvironment("LISTEN_PID");
  const std::optional<int> count = NumberFromEnvironment("LISTEN_FDS");
  const std::string names = FromEnvironment("LISTEN_FDNAMES");
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  if (process != ::getpid() || !count) return taken;
  std::string_view left = names;
  for (int i = 0; i < *count && !left.empty(); ++i) {
    const std::string_view one = left.substr(0, left.find(':'));
    left.remove_prefix(std::min(one.size() + 1, left.size()));
    const int fd = kFirstPassed + i;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) break;
    if (one == name) taken.emplace_back(fd);
  }
  return taken;
}

}  // namespace rdfs::server
