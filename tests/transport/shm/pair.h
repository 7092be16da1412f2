// What the tests of shm share: a connected pair in this process, and a raw peer that speaks the
// socket's packets itself and may say anything.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/shm/listener.h"
#include "transport/shm/socket.h"
#include "transport/shm/transport.h"
#include "transport/shm/wire.h"

namespace rdfs::transport::shm {

using Bytes = std::vector<std::byte>;

inline constexpr std::chrono::seconds kPatience{20};

inline Bytes Pattern(std::size_t size, std::size_t seed) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(seed * 131 + i % 251 + 1);
  return out;
}

// Sleeps on the listener's descriptor until somebody has said who they are.
inline std::unique_ptr<Incoming> AcceptNext(Listener& listener) {
  const Deadline deadline = DeadlineAfter(kPatience);
  while (BootClock::now() < deadline) {
    auto incoming = listener.Accept();
    EXPECT_TRUE(incoming.ok()) << incoming.status().ToString();
    if (!incoming.ok()) return nullptr;
    if (*incoming != nullptr) return *std::move(incoming);
    pollfd entry{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
  }
  ADD_FAILURE() << "nobody came";
  return nullptr;
}

inline std::unique_ptr<MemoryRegion> MakeRegion(const std::shared_ptr<Domain>& domain,
                                                std::size_t size, Access access,
                                                const std::string& name = "test") {
  const auto peers = access == Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                   : SharedMemory::Peers::kMayWrite;
  auto memory = SharedMemory::Create(name, size, peers);
  EXPECT_TRUE(memory.ok()) << memory.status().ToString();
  auto region = domain->Register(*std::move(memory), access);
  EXPECT_TRUE(region.ok()) << region.status().ToString();
  return *std::move(region);
}

struct Pair {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Domain> client_domain = Domain::Create("client");
  std::shared_ptr<Domain> server_domain = Domain::Create("server");
  std::unique_ptr<Connection> client, server;

  explicit Pair(std::size_t peer_regions = kMaxRegions) : transport(MakeTransport(peer_regions)) {
    auto made = transport->Listen({Kind::kShm, "", 0});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    listener = *std::move(made);
  }
  void Connect() {
    auto dialling = std::async(std::launch::async, [this] {
      return transport->Connect(listener->endpoint(), client_domain, AsBytes("token"),
                                DeadlineAfter(kPatience));
    });
    const std::unique_ptr<Incoming> incoming = AcceptNext(*listener);
    ASSERT_NE(incoming, nullptr);
    auto accepted = incoming->Accept(server_domain);
    ASSERT_TRUE(accepted.ok()) << accepted.status().ToString();
    server = *std::move(accepted);
    auto connected = dialling.get();
    ASSERT_TRUE(connected.ok()) << connected.status().ToString();
    client = *std::move(connected);
  }
};

// What a connection says next: a message's bytes or why it is over.
struct Heard {
  Status status;
  Bytes message;
};
inline Heard WaitForMessage(Connection& connection) {
  std::array<Completion, 1> out;
  const auto count = connection.Wait(out, DeadlineAfter(kPatience));
  if (!count.ok()) return {count.status(), {}};
  if (*count == 0) return {Status(Code::kDeadlineExceeded, "no message came"), {}};
  return {out[0].status, Bytes(out[0].message.begin(), out[0].message.end())};
}
// The status of the one READ or WRITE that was posted.
inline Status WaitForCompletion(Connection& connection, const Result<Ticket>& ticket) {
  if (!ticket.ok()) return ticket.status();
  std::array<Completion, 1> out;
  const auto count = connection.Wait(out, DeadlineAfter(kPatience));
  if (!count.ok()) return count.status();
  if (*count == 0) return {Code::kDeadlineExceeded, "no completion came"};
  EXPECT_EQ(out[0].ticket, *ticket);
  return out[0].status;
}

// A peer that connects to a listener and then follows no rule.
class RawPeer {
 public:
  explicit RawPeer(const Endpoint& endpoint)
      : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const auto address = MakeAbstractAddress(endpoint.host);
    EXPECT_EQ(
        connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length),
        0);
  }
  // Takes over an end of a socket pair.
  explicit RawPeer(Fd end) : fd_(std::move(end)) {}
  [[nodiscard]] int fd() const { return fd_.get(); }

  void SendBytes(ByteSpan bytes) const {
    EXPECT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  template <WireStruct T>
  void Send(const T& wire) const {
    SendBytes(std::as_bytes(std::span<const T, 1>(&wire, 1)));
  }
  template <WireStruct T>
  void SendWithFds(const T& wire, const std::vector<int>& fds) const {
    EXPECT_EQ(TryToSendWithFds(wire, fds), 0);
  }
  // 0 or the errno.
  template <WireStruct T>
  [[nodiscard]] int TryToSendWithFds(const T& wire, const std::vector<int>& fds) const {
    T copy = wire;
    iovec part{.iov_base = &copy, .iov_len = sizeof(copy)};
    std::vector<std::max_align_t> control(
        CMSG_SPACE(fds.size() * sizeof(int)) / sizeof(std::max_align_t) + 1);
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    return sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0 ? errno : 0;
  }
  // Waits for a packet; size 0 when the other end has closed.
  Packet Receive() const {
    PacketSocket socket{Fd(dup(fd_.get()))};
    Packet packet;
    pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&entry, 1, 20'000), 1);
    EXPECT_TRUE(socket.Receive(packet).ok());
    return packet;
  }
  // Takes the channel out of the Accept packet.
  void TakeChannel() {
    Packet packet = Receive();
    ASSERT_EQ(packet.type(), PacketType::kAccept);
    auto memory = SharedMemory::Adopt(std::move(packet.fd), sizeof(ChannelLayout),
                                      SharedMemory::Peers::kMayWrite);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    channel_ = *std::move(memory);
  }
  [[nodiscard]] ChannelLayout& channel() const {
    return *reinterpret_cast<ChannelLayout*>(channel_->bytes().data());
  }
  void Close() { fd_.Reset(); }

 private:
  Fd fd_;
  std::shared_ptr<SharedMemory> channel_;
};

}  // namespace rdfs::transport::shm
