#include "transport/metrics/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <vector>

#include "transport/metrics/listener.h"
#include "transport/metrics/request.h"

namespace rdfs::metrics {
namespace {

// What one that has had its answer may still send.
constexpr std::size_t kMostDrained = 64 * 1024;
constexpr std::chrono::seconds kPause{1};

bool WouldBlock() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

Result<std::unique_ptr<Server>> Server::Listen(const Address& address,
                                               std::function<std::string()> metrics,
                                               std::chrono::milliseconds patience) {
  Address bound = address;
  RDFS_ASSIGN_OR_RETURN(Fd listener, metrics::Listen(bound));
  RDFS_ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  return std::unique_ptr<Server>(new Server(std::move(bound), std::move(listener), std::move(stop),
                                            std::move(metrics), patience));
}

Server::Server(Address address, Fd listener, EventFd stop, std::function<std::string()> metrics,
               std::chrono::milliseconds patience)
    : address_(std::move(address)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      names_(IsLoopback(address_) ? Names::kLocal : Names::kAny),
      metrics_(std::move(metrics)),
      patience_(patience),
      thread_([this] { Run(); }) {}

Server::~Server() {
  stop_.Ring();
  thread_.join();
  if (!address_.path.empty()) unlink(address_.path.c_str());
}

void Server::Run() {
  std::vector<pollfd> entries;
  for (;;) {
    const TimePoint now = BootClock::now();
    const bool room = peers_.size() < kMostPeers && now >= accept_again_;
    Deadline wake = room || peers_.size() == kMostPeers ? Deadline::max() : accept_again_;
    entries = {pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0},
               pollfd{.fd = room ? listener_.get() : -1, .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) {
      const auto events = static_cast<short>(peer.answering() ? POLLOUT : POLLIN);
      entries.push_back({.fd = peer.socket.get(), .events = events, .revents = 0});
      wake = std::min(wake, peer.deadline);
    }
    if (poll(entries.data(), entries.size(), PollTimeoutMs(wake, now)) < 0 && errno != EINTR)
      return;
    if (entries[0].revents != 0) return;
    auto entry = entries.begin() + 2;
    for (auto peer = peers_.begin(); peer != peers_.end(); ++entry) {
      const bool over = entry->revents != 0 && !Serve(*peer);
      peer = over ? peers_.erase(peer) : std::next(peer);
    }
    if (entries[1].revents != 0) Accept();
    EndLate(BootClock::now());
  }
}

void Server::Accept() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    peers_.push_back({.socket = std::move(socket), .deadline = DeadlineAfter(patience_)});
  } else if (!WouldBlock() && errno != ECONNABORTED) {
    accept_again_ = DeadlineAfter(kPause);  // it stays readable: no descriptor or memory left
  }
}

bool Server::Serve(Peer& peer) const {
  if (peer.answer.empty() && !Receive(peer)) return false;
  if (peer.answering() && !Answer(peer)) return false;
  return peer.answer.empty() || peer.answering() || Drain(peer);
}

bool Server::Receive(Peer& peer) const {
  std::array<char, 4096> buffer;
  const ssize_t got = recv(peer.socket.get(), buffer.data(), buffer.size(), 0);
  if (got <= 0) return got < 0 && WouldBlock();
  peer.received.append(buffer.data(), static_cast<std::size_t>(got));
  if (const auto request = Judge(peer.received, names_)) {
    peer.answer =
        MakeAnswer(*request, request->status == 200 ? metrics_() : "", std::time(nullptr));
  }
  return true;
}

bool Server::Answer(Peer& peer) {
  const std::string_view rest = std::string_view(peer.answer).substr(peer.sent);
  const ssize_t sent = send(peer.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return WouldBlock();
  peer.sent += static_cast<std::size_t>(sent);
  if (!peer.answering()) shutdown(peer.socket.get(), SHUT_WR);
  return true;
}

bool Server::Drain(Peer& peer) {
  std::array<char, 4096> buffer;
  const ssize_t got = recv(peer.socket.get(), buffer.data(), buffer.size(), 0);
  if (got <= 0) return got < 0 && WouldBlock();
  peer.drained += static_cast<std::size_t>(got);
  return peer.drained <= kMostDrained;
}

void Server::EndLate(TimePoint now) {
  for (Peer& peer : peers_) {
    if (peer.deadline > now || !peer.answer.empty()) continue;
    peer.answer = MakeAnswer(kTooSlow, "", std::time(nullptr));
    (void)Answer(peer);
  }
  std::erase_if(peers_, [now](const Peer& peer) { return peer.deadline <= now; });
}

}  // namespace rdfs::metrics
