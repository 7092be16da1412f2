#include "transport/tcp/listener.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "transport/base/log.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::tcp {
namespace {

// New peers of one Accept: a flood must not keep those that are ready waiting.
constexpr int kMaxNewAtOnce = 64;

std::string AddressText(const sockaddr_storage& storage, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, host.data(), host.size(),
                  port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  std::string name = host.data();
  // IPv4 as the dual-stack socket shows it.
  if (name.starts_with("::ffff:") && name.find('.') != std::string::npos) name.erase(0, 7);
  const bool six = name.find(':') != std::string::npos;
  return (six ? "[" + name + "]" : name) + ":" + port.data();
}

class TcpIncoming final : public Incoming {
 public:
  TcpIncoming(Fd socket, std::string peer, ByteSpan token)
      : stream_(MakeSocketStream(std::move(socket), peer)),
        peer_(std::move(peer)),
        token_(token.begin(), token.end()) {}

  [[nodiscard]] ByteSpan token() const override { return token_; }
  [[nodiscard]] std::string peer() const override { return peer_; }

  Result<std::unique_ptr<Connection>> Accept(const std::shared_ptr<Domain>& domain) override {
    if (stream_ == nullptr) return Status(Code::kInvalidArgument, "this peer was answered already");
    RDFS_RETURN_IF_ERROR(Answer({}));
    return MakeConnection(std::move(stream_), domain, "tcp " + peer_);
  }

  void Reject(const Status& why) override {
    if (stream_ == nullptr) return;
    (void)Answer(why);  // a peer that went away needs no answer
    stream_->Shutdown();
    stream_.reset();
  }

 private:
  // The first bytes that this end writes: there is always room for them.
  Status Answer(const Status& status) {
    std::string verdict = EncodeVerdict(status);
    const iovec part{verdict.data(), verdict.size()};
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, stream_->Write(std::span(&part, 1)));
    if (count == verdict.size()) return {};
    return {Code::kDisconnected, "the connection to " + peer_ + " takes no answer"};
  }

  std::unique_ptr<ByteStream> stream_;
  std::string peer_;
  std::vector<std::byte> token_;
};

}  // namespace

Result<std::unique_ptr<Listener>> TcpListener::Create(const Endpoint& endpoint) {
  Endpoint taken = endpoint;
  taken.kind = Kind::kTcp;
  RDFS_ASSIGN_OR_RETURN(Fd socket, ListenSocket(endpoint.host, endpoint.port));
  RDFS_ASSIGN_OR_RETURN(taken.port, LocalPort(socket.get()));
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd timer(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll.valid() || !timer.valid()) return Status::FromErrno(errno, "cannot make a listener");
  std::unique_ptr<TcpListener> listener(
      new TcpListener(std::move(taken), std::move(socket), std::move(epoll), std::move(timer)));
  RDFS_RETURN_IF_ERROR(listener->Watch(listener->socket_.get()));
  RDFS_RETURN_IF_ERROR(listener->Watch(listener->timer_.get()));
  return std::unique_ptr<Listener>(std::move(listener));
}

Status TcpListener::Watch(int fd) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Status::FromErrno(errno, "epoll_ctl");
}

// One ready peer a call: the others' bytes stay in their sockets, and so fd() stays readable.
Result<std::unique_ptr<Incoming>> TcpListener::Accept() {
  DropExpired();
  const Status taken = TakeNew();
  SetTimer();
  for (auto peer = half_open_.begin(); peer != half_open_.end();) {
    auto incoming = Advance(*peer);
    if (incoming.ok() && *incoming == nullptr) {
      ++peer;
      continue;
    }
    if (!incoming.ok()) LogDebug("{} was dropped: {}", peer->peer, incoming.status().message());
    peer = half_open_.erase(peer);
    if (incoming.ok()) return incoming;
  }
  RDFS_RETURN_IF_ERROR(taken);
  return std::unique_ptr<Incoming>();
}

Status TcpListener::TakeNew() {
  for (int i = 0; i < kMaxNewAtOnce; ++i) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    Fd socket(accept4(socket_.get(), reinterpret_cast<sockaddr*>(&storage), &size,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE) {
        return {Code::kResourceExhausted, errno,
                "too many open descriptors to accept a peer; raise the limit (ulimit -n)"};
      }
      return {};  // nobody (EAGAIN), or somebody who went away again (accept(2))
    }
    RDFS_RETURN_IF_ERROR(Watch(socket.get()));
    if (half_open_.size() == kMaxHalfOpen) half_open_.pop_front();
    half_open_.push_back({.socket = std::move(socket),
                          .peer = AddressText(storage, size),
                          .deadline = DeadlineAfter(kPrefacePatience)});
  }
  return {};
}

void TcpListener::DropExpired() {
  const TimePoint now = BootClock::now();
  while (!half_open_.empty() && half_open_.front().deadline <= now) half_open_.pop_front();
}

void TcpListener::SetTimer() {
  itimerspec when{};
  if (!half_open_.empty()) {
    // 0 would disarm it.
    const auto left = std::max<std::chrono::nanoseconds>(
        half_open_.front().deadline - BootClock::now(), std::chrono::nanoseconds(1));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    when.it_value = {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  }
  (void)timerfd_settime(timer_.get(), 0, &when, nullptr);  // also takes an expiry back
}

Result<std::unique_ptr<Incoming>> TcpListener::Advance(HalfOpen& peer) const {
  std::size_t wanted = sizeof(Preface);
  while (true) {
    if (peer.received >= sizeof(Preface)) {
      ByteReader reader(peer.bytes);
      RDFS_ASSIGN_OR_RETURN(const std::size_t token_bytes, CheckPreface(reader.Read<Preface>()));
      wanted = sizeof(Preface) + token_bytes;
    }
    if (peer.received == wanted) break;
    const ssize_t count = recv(peer.socket.get(), peer.bytes.data() + peer.received,
                               wanted - peer.received, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::unique_ptr<Incoming>();
    if (count <= 0) return Status(Code::kDisconnected, "it went away before its token came");
    peer.received += static_cast<std::size_t>(count);
  }
  // From here on the descriptor is the connection's.
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
  const ByteSpan token = ByteSpan(peer.bytes).subspan(sizeof(Preface), wanted - sizeof(Preface));
  return std::unique_ptr<Incoming>(
      std::make_unique<TcpIncoming>(std::move(peer.socket), std::move(peer.peer), token));
}

}  // namespace rdfs::transport::tcp
