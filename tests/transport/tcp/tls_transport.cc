#include "tests/transport/tcp/tls_transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <utility>
#include <vector>

#include "transport/tcp/preface.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::tcp {
namespace {

std::array<std::byte, 32> FixedPsk() {
  std::array<std::byte, 32> psk{};
  psk.fill(std::byte{42});
  return psk;
}

Status WriteText(ByteStream& stream, std::string text, Deadline deadline) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const iovec part{text.data() + sent, text.size() - sent};
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, stream.Write(std::span(&part, 1)));
    sent += count;
    if (count == 0 && BootClock::now() > deadline) return {Code::kDeadlineExceeded, "too late"};
  }
  return {};
}

Status ReadBytes(ByteStream& stream, MutableByteSpan out, Deadline deadline) {
  while (!out.empty()) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, stream.Read(out));
    out = out.subspan(count);
    if (count > 0) continue;
    if (BootClock::now() >= deadline) return {Code::kDeadlineExceeded, "too late"};
    pollfd entry{.fd = stream.read_fd(), .events = stream.read_events(), .revents = 0};
    (void)poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
  }
  return {};
}

class TlsIncoming final : public Incoming {
 public:
  TlsIncoming(std::unique_ptr<ByteStream> stream, std::vector<std::byte> token)
      : stream_(std::move(stream)), peer_(stream_->peer()), token_(std::move(token)) {}
  [[nodiscard]] ByteSpan token() const override { return token_; }
  [[nodiscard]] std::string peer() const override { return peer_; }
  Result<std::unique_ptr<Connection>> Accept(const std::shared_ptr<Domain>& domain) override {
    if (stream_ == nullptr) return Status(Code::kInvalidArgument, "this peer was answered already");
    RDFS_RETURN_IF_ERROR(
        WriteText(*stream_, EncodeVerdict({}), DeadlineAfter(std::chrono::seconds(5))));
    return MakeConnection(std::move(stream_), domain, "tcp with TLS");
  }
  void Reject(const Status& why) override {
    (void)WriteText(*stream_, EncodeVerdict(why), DeadlineAfter(std::chrono::seconds(5)));
    stream_->Shutdown();
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::string peer_;
  std::vector<std::byte> token_;
};

// Finishes each peer's handshake before it looks at the next: enough for peers that connect.
class TlsListener final : public Listener {
 public:
  TlsListener(Endpoint endpoint, Fd socket)
      : endpoint_(std::move(endpoint)), socket_(std::move(socket)) {}
  [[nodiscard]] Endpoint endpoint() const override { return endpoint_; }
  [[nodiscard]] int fd() const override { return socket_.get(); }
  Result<std::unique_ptr<Incoming>> Accept() override {
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return std::unique_ptr<Incoming>();
    const Deadline deadline = DeadlineAfter(std::chrono::seconds(5));
    RDFS_ASSIGN_OR_RETURN(auto stream, WrapInTls(MakeSocketStream(std::move(socket), "a client"),
                                                 TlsRole::kServer, FixedPsk(), deadline));
    Preface preface;
    RDFS_RETURN_IF_ERROR(
        ReadBytes(*stream, std::as_writable_bytes(std::span(&preface, 1)), deadline));
    RDFS_ASSIGN_OR_RETURN(const std::size_t size, CheckPreface(preface));
    std::vector<std::byte> token(size);
    RDFS_RETURN_IF_ERROR(ReadBytes(*stream, token, deadline));
    return std::unique_ptr<Incoming>(
        std::make_unique<TlsIncoming>(std::move(stream), std::move(token)));
  }

 private:
  Endpoint endpoint_;
  Fd socket_;
};

class TlsTransport final : public Transport {
 public:
  [[nodiscard]] Kind kind() const override { return Kind::kTcp; }
  [[nodiscard]] Viability Probe() const override { return {.viable = true, .reason = ""}; }
  Result<std::unique_ptr<Listener>> Listen(const Endpoint& endpoint) override {
    Endpoint taken = endpoint;
    RDFS_ASSIGN_OR_RETURN(Fd socket, ListenSocket(endpoint.host, endpoint.port));
    RDFS_ASSIGN_OR_RETURN(taken.port, LocalPort(socket.get()));
    return std::unique_ptr<Listener>(
        std::make_unique<TlsListener>(std::move(taken), std::move(socket)));
  }
  Result<std::unique_ptr<Connection>> Connect(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline) override {
    if (token.size() > kMaxTokenBytes) return Status(Code::kInvalidArgument, "too long a token");
    RDFS_ASSIGN_OR_RETURN(Fd socket, ConnectSocket(endpoint.host, endpoint.port, deadline));
    RDFS_ASSIGN_OR_RETURN(auto stream, WrapInTls(MakeSocketStream(std::move(socket), "the server"),
                                                 TlsRole::kClient, FixedPsk(), deadline));
    RDFS_RETURN_IF_ERROR(WriteText(*stream, EncodePreface(token), deadline));
    Verdict verdict;
    RDFS_RETURN_IF_ERROR(
        ReadBytes(*stream, std::as_writable_bytes(std::span(&verdict, 1)), deadline));
    RDFS_ASSIGN_OR_RETURN(const std::size_t size, CheckVerdict(verdict));
    std::vector<std::byte> words(size);
    RDFS_RETURN_IF_ERROR(ReadBytes(*stream, words, deadline));
    RDFS_RETURN_IF_ERROR(VerdictStatus(verdict, AsText(words)));
    return MakeConnection(std::move(stream), domain, "tcp with TLS");
  }
};

}  // namespace

std::unique_ptr<Transport> MakeTlsTransport() { return std::make_unique<TlsTransport>(); }

}  // namespace rdfs::transport::tcp
