#include "transport/base/control_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/base/local_filesystem.h"
#include "transport/base/runtime_directory.h"

namespace rdfs {
namespace {

constexpr std::chrono::seconds kPatience{1};
constexpr std::size_t kMaxAnswer = 4 << 20;
// Out of descriptors: the listener stays readable, so it is left alone for a while.
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::string_view kEnding = ".sock";
// Looked at for what killed programs have left.
constexpr std::size_t kMostSiblings = 256;

std::optional<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Status TooLong(const std::string& path) {
  return {Code::kInvalidArgument, path + " is longer than the name of a socket may be"};
}

bool MayAsk(int peer) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         (credentials.uid == geteuid() || credentials.uid == 0);
}

// False at the deadline, or an error.
bool WaitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool SendAll(int fd, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    if (!WaitFor(fd, POLLOUT, deadline)) return false;
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// The line, without its end; none when it does not come in time or is too long.
std::optional<std::string> ReceiveRequest(int fd, Deadline deadline) {
  std::string line;
  std::array<char, ControlSocket::kMaxRequest + 1> buffer{};
  while (WaitFor(fd, POLLIN, deadline)) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0 && !(got < 0 && (errno == EAGAIN || errno == EINTR))) return std::nullopt;
    if (got > 0) line.append(buffer.data(), static_cast<std::size_t>(got));
    if (const std::size_t end = line.find('\n'); end != line.npos) return line.substr(0, end);
    if (line.size() > ControlSocket::kMaxRequest) return std::nullopt;
  }
  return std::nullopt;
}

// Of what opendir returned, which is closed then; of null none.
std::vector<std::string> NamesOfSockets(DIR* directory, const std::string& program) {
  if (directory == nullptr) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(directory, closedir);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(program + "-") && name.ends_with(kEnding)) names.emplace_back(name);
  }
  return names;
}

// Whether only this kernel's programs can have sockets in it: those of others (on NFS, virtiofs)
// refuse here though they live. overlayfs is what a container has.
bool IsOursAlone(const std::string& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0) return false;
  return IsOfThisHost(info) || static_cast<std::uint32_t>(info.f_type) == OVERLAYFS_SUPER_MAGIC;
}

// A connection to who listens there. What a killed program has left is removed: one that lives has
// listened since before it had its name (Listen).
Result<Fd> Reach(const std::string& path) {
  const auto address = AddressOf(path);
  if (!address) return TooLong(path);
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status::FromErrno(errno, "cannot make a socket");
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) {
    return socket;
  }
  const int error = errno;
  if (error == ECONNREFUSED && IsOursAlone(path.substr(0, path.rfind('/')))) unlink(path.c_str());
  return Status(Code::kDisconnected, error, "nobody answers on " + path);
}

// What killed programs of that name have left there. One that lives drops who says nothing.
void RemoveDead(const std::string& directory, const std::string& program) {
  std::vector<std::string> names = NamesOfSockets(opendir(directory.c_str()), program);
  if (names.size() > kMostSiblings) names.resize(kMostSiblings);
  for (const std::string& name : names) (void)Reach(directory + "/" + name);
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::Listen(const std::string& program,
                                                             Answer answer) {
  RDFS_ASSIGN_OR_RETURN(std::string path, MakeRuntimeDirectory());
  RemoveDead(path, program);
  path += "/" + program + "-" + std::to_string(getpid());
  path += kEnding;
  // Who looks for sockets takes away one that nobody listens on: it has its name when it does.
  const std::string unready = path + ".new";
  const auto address = AddressOf(unready);
  if (!address) return TooLong(path);
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return Status::FromErrno(errno, "cannot make a socket");
  RDFS_ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  unlink(unready.c_str());  // of an earlier process of this number
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      chmod(unready.c_str(), 0600) != 0 || listen(listener.get(), 8) != 0 ||
      rename(unready.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(unready.c_str());
    return Status::FromErrno(error, "cannot listen on " + path);
  }
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(std::move(path), std::move(listener), std::move(stop), std::move(answer)));
}

ControlSocket::ControlSocket(std::string path, Fd listener, EventFd stop, Answer answer)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      answer_(std::move(answer)),
      thread_([this] { Run(); }) {}

ControlSocket::~ControlSocket() {
  stop_.Ring();
  thread_.join();
  unlink(path_.c_str());
}

void ControlSocket::Run() {
  for (;;) {
    std::array<pollfd, 2> entries{pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    const Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.valid()) {
      if (MayAsk(peer.get())) Serve(peer);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      (void)WaitFor(stop_.fd(), POLLIN, DeadlineAfter(kAcceptPause));
    }
  }
}

void ControlSocket::Serve(const Fd& peer) const {
  const Deadline deadline = DeadlineAfter(kPatience);
  const auto request = ReceiveRequest(peer.get(), deadline);
  if (request) (void)SendAll(peer.get(), answer_(*request), deadline);
}

std::vector<std::string> FindControlSockets(const std::string& program) {
  std::vector<std::string> found;
  for (const std::string& directory : RuntimeDirectories()) {
    if (!CheckRuntimeDirectory(directory).ok()) continue;
    for (const std::string& name : NamesOfSockets(opendir(directory.c_str()), program)) {
      found.push_back(directory + "/" + name);
    }
  }
  return found;
}

void VisitForeignControlSockets(
    const std::string& program,
    const std::function<bool(uid_t owner, const std::string& path)>& ask) {
  for (ForeignDirectory& place : ForeignRuntimeDirectories()) {
    std::vector<std::string> names = NamesOfSockets(fdopendir(dup(place.directory.get())), program);
    if (names.size() > kMostOfOthers) names.resize(kMostOfOthers);
    for (const std::string& name : names) {
      const Fd socket(openat(place.directory.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      struct stat about {};
      const bool theirs = socket.valid() && fstat(socket.get(), &about) == 0 &&
                          S_ISSOCK(about.st_mode) && about.st_uid == place.owner;
      if (theirs && !ask(place.owner, "/proc/self/fd/" + std::to_string(socket.get()))) break;
    }
  }
}

Result<std::string> AskControl(const std::string& path, std::string_view request,
                               Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(const Fd socket, Reach(path));
  std::string line(request);
  if (!SendAll(socket.get(), line += '\n', deadline)) {
    return Status(Code::kDisconnected, "nobody takes a request on " + path);
  }
  std::string answer;
  std::array<char, 4096> buffer{};
  while (WaitFor(socket.get(), POLLIN, deadline)) {
    const ssize_t got = recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return answer;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Status::FromErrno(errno, path);
    if (got > 0) answer.append(buffer.data(), static_cast<std::size_t>(got));
    if (answer.size() > kMaxAnswer) return Status(Code::kProtocolError, path + " never ends");
  }
  return Status(Code::kDeadlineExceeded, "nobody answers on " + path);
}

}  // namespace rdfs
