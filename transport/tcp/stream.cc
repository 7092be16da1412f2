#include "transport/tcp/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

#include "transport/base/sigpipe.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::tcp {
namespace {

void SetNonBlocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return;
  (void)fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

// Whatever fails on a descriptor of ours, the stream under it is over.
Status Broken(int error, std::string_view peer) {
  std::string message = "the connection to ";
  message += peer;
  if (error == 0 || error == EPIPE || error == ECONNRESET) {
    return {Code::kDisconnected, message + " was closed at its other end"};
  }
  return {Code::kDisconnected, message + " broke: " + Status::FromErrno(error, "socket").message()};
}

bool IsTransient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// What a read or write returned, as a Result. `end_is_zero`: a count of 0 is the end of the stream.
Result<std::size_t> Counted(ssize_t count, bool end_is_zero, std::string_view peer) {
  if (count > 0) return static_cast<std::size_t>(count);
  if (count < 0 && IsTransient(errno)) return std::size_t{0};
  if (count == 0 && !end_is_zero) return std::size_t{0};
  return Broken(count == 0 ? 0 : errno, peer);
}

std::size_t TotalSize(std::span<const iovec> parts) {
  std::size_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  return total;
}

class SocketStream final : public ByteStream {
 public:
  SocketStream(Fd socket, std::string peer)
      : socket_(std::move(socket)),
        peer_(std::move(peer)),
        remote_(!IsLocalPeer(socket_.get())),
        has_incoming_cpu_(IncomingCpu(socket_.get()) >= 0) {}

  Result<std::size_t> Read(MutableByteSpan out) override {
    const iovec part{out.data(), out.size()};
    return Receive({&part, 1}, MSG_DONTWAIT);
  }
  Result<std::size_t> ReadParts(std::span<const iovec> parts) override {
    return Receive(parts, MSG_DONTWAIT);
  }
  [[nodiscard]] bool CanNap() const override { return true; }
  // The one call without MSG_DONTWAIT: SO_RCVTIMEO bounds it.
  Result<std::size_t> NapAndRead(std::span<const iovec> parts) override {
    return Receive(parts, 0);
  }
  Result<std::size_t> Write(std::span<const iovec> parts) override {
    constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
    if (parts.size() == 1) {  // a message: send(2) is cheaper than sendmsg(2)
      return Counted(send(socket_.get(), parts[0].iov_base, parts[0].iov_len, kFlags), false,
                     peer_);
    }
    const msghdr message = Header(parts);
    return Counted(sendmsg(socket_.get(), &message, kFlags), false, peer_);
  }
  [[nodiscard]] bool HasBufferedInput() const override { return false; }
  [[nodiscard]] short read_events() const override { return POLLIN; }
  [[nodiscard]] short write_events() const override { return POLLOUT; }
  [[nodiscard]] int read_fd() const override { return socket_.get(); }
  [[nodiscard]] int write_fd() const override { return socket_.get(); }
  [[nodiscard]] bool encrypted() const override { return false; }
  [[nodiscard]] bool same_host() const override { return !remote_; }
  [[nodiscard]] std::string peer() const override { return peer_; }
  // Over loopback a segment is received on the processor that sent it (socket(7), SO_INCOMING_CPU).
  [[nodiscard]] bool PeerNeedsThisProcessor() const override {
    if (remote_) return false;
    return !has_incoming_cpu_ || IncomingCpu(socket_.get()) == sched_getcpu();
  }
  void Shutdown() override { (void)shutdown(socket_.get(), SHUT_WR); }

 private:
  static msghdr Header(std::span<const iovec> parts) {
    msghdr message{};
    message.msg_iov =
        const_cast<iovec*>(parts.data());  // never written to (recvmsg(2), sendmsg(2))
    message.msg_iovlen = parts.size();
    return message;
  }

  Result<std::size_t> Receive(std::span<const iovec> parts, int flags) {
    if (TotalSize(parts) == 0) return std::size_t{0};
    if (parts.size() == 1) {
      return Counted(recv(socket_.get(), parts[0].iov_base, parts[0].iov_len, flags), true, peer_);
    }
    msghdr message = Header(parts);
    return Counted(recvmsg(socket_.get(), &message, flags), true, peer_);
  }
  static int IncomingCpu(int socket) {
    int cpu = -1;
    socklen_t size = sizeof cpu;
    if (getsockopt(socket, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &size) != 0) return -1;
    return cpu;
  }

  Fd socket_;
  std::string peer_;
  const bool remote_;
  const bool has_incoming_cpu_;  // UNIX sockets have none
};

class PipeStream final : public ByteStream {
 public:
  PipeStream(Fd read_fd, Fd write_fd, std::string peer)
      : read_fd_(std::move(read_fd)), write_fd_(std::move(write_fd)), peer_(std::move(peer)) {}

  Result<std::size_t> Read(MutableByteSpan out) override {
    if (out.empty()) return std::size_t{0};
    return Counted(read(read_fd_.get(), out.data(), out.size()), true, peer_);
  }
  Result<std::size_t> ReadParts(std::span<const iovec> parts) override {
    if (TotalSize(parts) == 0) return std::size_t{0};
    return Counted(readv(read_fd_.get(), parts.data(), static_cast<int>(parts.size())), true,
                   peer_);
  }
  Result<std::size_t> Write(std::span<const iovec> parts) override {
    if (!write_fd_.valid()) return Broken(EPIPE, peer_);
    const SigpipeHeld held;
    return Counted(writev(write_fd_.get(), parts.data(), static_cast<int>(parts.size())), false,
                   peer_);
  }
  [[nodiscard]] bool HasBufferedInput() const override { return false; }
  [[nodiscard]] short read_events() const override { return POLLIN; }
  [[nodiscard]] short write_events() const override { return POLLOUT; }
  [[nodiscard]] int read_fd() const override { return read_fd_.get(); }
  [[nodiscard]] int write_fd() const override { return write_fd_.get(); }
  [[nodiscard]] bool encrypted() const override { return false; }
  [[nodiscard]] std::string peer() const override { return peer_; }
  void Shutdown() override { write_fd_.Reset(); }

 private:
  Fd read_fd_, write_fd_;
  std::string peer_;
};

}  // namespace

Result<std::size_t> ByteStream::ReadParts(std::span<const iovec> parts) {
  for (const iovec& part : parts) {
    if (part.iov_len > 0) return Read({static_cast<std::byte*>(part.iov_base), part.iov_len});
  }
  return std::size_t{0};
}

std::unique_ptr<ByteStream> MakeSocketStream(Fd socket, std::string peer) {
  // Each call says MSG_DONTWAIT, all but NapAndRead, which this bounds.
  const timeval nap{.tv_sec = 0, .tv_usec = std::chrono::microseconds(ByteStream::kNap).count()};
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &nap, sizeof nap);
  SetNonBlocking(socket.get(), false);
  const int on = 1;  // refused by UNIX sockets, which have nothing to delay
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return std::make_unique<SocketStream>(std::move(socket), std::move(peer));
}

std::unique_ptr<ByteStream> MakePipeStream(Fd read_fd, Fd write_fd, std::string peer) {
  SetNonBlocking(read_fd.get(), true);
  SetNonBlocking(write_fd.get(), true);
  return std::make_unique<PipeStream>(std::move(read_fd), std::move(write_fd), std::move(peer));
}

}  // namespace rdfs::transport::tcp
