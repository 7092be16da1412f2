#include "transport/base/control_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace rdfs {
namespace {

constexpr std::chrono::seconds kPatience{1};
constexpr std::size_t kMaxAnswer = 4 << 20;
constexpr std::string_view kEnding = ".sock";

// Where sockets may be, the one for a new socket first. A $XDG_RUNTIME_DIR that came through sudo
// is another user's.
std::vector<std::string> Directories() {
  std::vector<std::string> out;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat about {};
  if (runtime != nullptr && runtime[0] == '/' && stat(runtime, &about) == 0 &&
      about.st_uid == geteuid()) {
    out.push_back(std::string(runtime) + "/rdfs");
  }
  if (geteuid() == 0) out.emplace_back("/run/rdfs");
  return out;
}

Status CheckDirectory(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return Status::FromErrno(errno, path);
  if (S_ISDIR(about.st_mode) && about.st_uid == geteuid() && (about.st_mode & 077U) == 0) return {};
  return {Code::kInvalidArgument, path + " must be a directory of yours with mode 0700; remove it"};
}

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

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::Listen(const std::string& program,
                                                             Answer answer) {
  const std::vector<std::string> directories = Directories();
  if (directories.empty()) {
    return Status(Code::kNotFound, "there is no $XDG_RUNTIME_DIR of this user");
  }
  const std::string& directory = directories.front();
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::FromErrno(errno, "cannot make " + directory);
  }
  RDFS_RETURN_IF_ERROR(CheckDirectory(directory));
  std::string path = directory + "/" + program + "-" + std::to_string(getpid());
  path += kEnding;
  const auto address = AddressOf(path);
  if (!address) return TooLong(path);
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener.valid() || !stop.valid()) return Status::FromErrno(errno, "cannot make a socket");
  unlink(path.c_str());  // of an earlier process of this number
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(listener.get(), 8) != 0) {
    return Status::FromErrno(errno, "cannot listen on " + path);
  }
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(std::move(path), std::move(listener), std::move(stop), std::move(answer)));
}

ControlSocket::ControlSocket(std::string path, Fd listener, Fd stop, Answer answer)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      answer_(std::move(answer)),
      thread_([this] { Run(); }) {}

ControlSocket::~ControlSocket() {
  const std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
  unlink(path_.c_str());
}

void ControlSocket::Run() {
  for (;;) {
    std::array<pollfd, 2> entries{pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    const Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.valid() && MayAsk(peer.get())) Serve(peer);
  }
}

void ControlSocket::Serve(const Fd& peer) const {
  const Deadline deadline = DeadlineAfter(kPatience);
  const auto request = ReceiveRequest(peer.get(), deadline);
  if (request) (void)SendAll(peer.get(), answer_(*request), deadline);
}

std::vector<std::string> FindControlSockets(const std::string& program) {
  std::vector<std::string> found;
  for (const std::string& directory : Directories()) {
    if (!CheckDirectory(directory).ok()) continue;
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(directory.c_str()), closedir);
    if (listing == nullptr) continue;
    while (const dirent* entry = readdir(listing.get())) {
      const std::string_view name = entry->d_name;
      if (!name.starts_with(program + "-") || !name.ends_with(kEnding)) continue;
      found.push_back(directory + "/" + std::string(name));
    }
  }
  return found;
}

Result<std::string> AskControl(const std::string& path, std::string_view request,
                               Deadline deadline) {
  const auto address = AddressOf(path);
  if (!address) return TooLong(path);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status::FromErrno(errno, "cannot make a socket");
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    if (errno == ECONNREFUSED) unlink(path.c_str());  // its program was killed
    return Status(Code::kDisconnected, errno, "nobody answers on " + path);
  }
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
