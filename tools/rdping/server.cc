#include "tools/rdping/server.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "tools/rdping/protocol.h"
#include "tools/rdping/tcp_peer.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/base/say.h"
#include "transport/session/acceptor.h"
#include "transport/tcp/transport.h"

namespace rdfs::rdping {
namespace {

using transport::Access;
using transport::Completion;
using transport::Connection;
using transport::Domain;
using transport::MemoryRegion;
using std::chrono_literals::operator""ms;

// What every session may read and write: nothing but zeroes and what clients wrote.
struct Memory {
  std::shared_ptr<Domain> domain;
  std::unique_ptr<MemoryRegion> readable, writable;

  static Result<Memory> Create() {
    Memory memory;
    memory.domain = Domain::Create("ping");
    using Peers = SharedMemory::Peers;
    RDFS_ASSIGN_OR_RETURN(auto read_only,
                          SharedMemory::Create("rdping-read", kRegionBytes, Peers::kReadOnly));
    RDFS_ASSIGN_OR_RETURN(auto writable,
                          SharedMemory::Create("rdping-write", kRegionBytes, Peers::kMayWrite));
    RDFS_ASSIGN_OR_RETURN(memory.readable,
                          memory.domain->Register(std::move(read_only), Access::kRemoteRead));
    RDFS_ASSIGN_OR_RETURN(memory.writable,
                          memory.domain->Register(std::move(writable), Access::kRemoteWrite));
    return memory;
  }
};

// Serves one lane until its peer leaves.
class Lane {
 public:
  Lane(std::unique_ptr<Connection> connection, const Memory& memory)
      : connection_(std::move(connection)), memory_(memory) {
    if (SpinningMeasures()) connection_->SpinAtMost(kSpin);
  }

  void Run(const std::stop_token& stop) {
    std::array<Completion, 32> completions;
    Deadline look_for_stop = DeadlineAfter(200ms);
    while (!stop.stop_requested()) {
      const auto count = connection_->Wait(completions, look_for_stop);
      if (!count.ok()) return;
      // Only then: the clock may cost as much as answering does.
      if (*count == 0) look_for_stop = DeadlineAfter(200ms);
      for (std::size_t i = 0; i < *count; ++i) {
        if (completions[i].kind != Completion::Kind::kMessage) continue;
        if (!Answer(completions[i].message).ok()) return;
      }
      if (!connection_->Flush().ok()) return;
    }
  }

 private:
  Status Answer(ByteSpan message) {
    ByteReader reader(message);
    const auto header = reader.Read<PingMessage>();
    if (!reader.ok()) return {Code::kProtocolError, "a short message"};
    switch (static_cast<Op>(std::uint32_t{header.op})) {
      case Op::kEcho:
      case Op::kStreamEnd: {
        // What was received is valid only until the Send: it goes through our own memory.
        scratch_.assign(message.begin(), message.end());
        return connection_->Send(ByteSpan(scratch_));
      }
      case Op::kStream:
        return {};
      case Op::kRegions:
        return AnswerRegions();
    }
    return {Code::kProtocolError, "an unknown message"};
  }

  Status AnswerRegions() {
    RegionsReply reply{};
    reply.header = {static_cast<std::uint32_t>(Op::kRegions), sizeof reply};
    // Memory that cannot be pinned is not offered: the client says so and goes on.
    if (auto region = connection_->Share(*memory_.readable); region.ok()) {
      reply.readable = transport::RemoteRegionWire::From(*region);
    } else {
      LogWarn("READ cannot be measured: {}", region.status().message());
    }
    if (auto region = connection_->Share(*memory_.writable); region.ok()) {
      reply.writable = transport::RemoteRegionWire::From(*region);
    } else {
      LogWarn("WRITE cannot be measured: {}", region.status().message());
    }
    return connection_->Send(std::as_bytes(std::span<const RegionsReply, 1>(&reply, 1)));
  }

  std::unique_ptr<Connection> connection_;
  const Memory& memory_;
  std::vector<std::byte> scratch_;
};

// Threads that each serve somebody, no more of them than a machine bears. Any thread.
class Crew {
 public:
  // False: there are too many already, or the machine has none.
  template <typename Serve>
  bool Start(Serve serve) {
    constexpr std::size_t kMost = 256;
    const std::lock_guard lock(mutex_);
    threads_.remove_if([](const Member& member) { return member.done.load(); });
    if (threads_.size() == kMost) return false;
    Member& member = threads_.emplace_back();
    try {
      member.thread = std::jthread(
          [&done = member.done, serve = std::move(serve)](const std::stop_token& stop) mutable {
            serve(stop);
            done = true;
          });
    } catch (const std::system_error&) {
      threads_.pop_back();
      return false;
    }
    return true;
  }

 private:
  struct Member {
    std::atomic<bool> done{false};
    std::jthread thread;  // last: joined first
  };
  std::mutex mutex_;
  std::list<Member> threads_;
};

class Host final : public transport::SessionHost {
 public:
  Host(Memory memory, const GrantWords& words) : memory_(std::move(memory)), words_(words) {}

  Result<transport::Admission> Admit(const transport::SessionRequest& request) override {
    if (request.service != kServiceName) {
      return Status(Code::kNotFound, "this is an rdping server; it serves '" +
                                         std::string(kServiceName) + "', not '" + request.service +
                                         "'");
    }
    transport::Admission admission;
    admission.domain = memory_.domain;
    const auto bytes = std::as_bytes(std::span<const GrantWords, 1>(&words_, 1));
    admission.grant.assign(bytes.begin(), bytes.end());
    return admission;
  }

  void OnLane(std::uint64_t, const std::shared_ptr<void>&,
              std::unique_ptr<Connection> lane) override {
    LogInfo("a client over {}", lane->Describe());
    const bool serves =
        crew_.Start([this, lane = std::move(lane)](const std::stop_token& stop) mutable {
          Lane(std::move(lane), memory_).Run(stop);
        });
    if (!serves) LogWarn("no more clients can be served at once");
  }

  void OnSessionEnd(std::uint64_t, const std::shared_ptr<void>&) override {}

 private:
  Memory memory_;
  const GrantWords words_;
  Crew crew_;  // last: joined before the memory goes
};

// Accepts plain TCP connections until `stop`.
void ServeTcp(const std::stop_token& stop, int listener, const Pass& pass) {
  Crew crew;
  while (!stop.stop_requested()) {
    pollfd entry{.fd = listener, .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, 200) <= 0) continue;
    Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    // It would be told of for as long as there are no descriptors.
    if (!socket.valid()) std::this_thread::sleep_for(100ms);
    if (!socket.valid()) continue;
    (void)crew.Start([socket = std::move(socket), pass](const std::stop_token& ended) {
      AnswerTcp(socket.get(), pass, ended);
    });
  }
}

void PrintCommand(const ServerOptions& options, std::uint16_t port) {
  std::array<char, 256> name{};
  std::string host = options.address;
  if (host.empty() && gethostname(name.data(), name.size() - 1) == 0) host = name.data();
  Tell("rdping: listening; measure from another machine with\n\n  rdping client {} {}{}\n\n", host,
       port, options.key.empty() ? "" : " --key-file FILE");
  (void)Told();  // who cannot read it can connect all the same
}

}  // namespace

Status Serve(const ServerOptions& options) {
  // Taken by the thread that waits for them, before any other thread is made.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  RDFS_ASSIGN_OR_RETURN(Memory memory, Memory::Create());
  RDFS_ASSIGN_OR_RETURN(const Fd tcp, transport::tcp::ListenSocket(options.address, 0));
  RDFS_ASSIGN_OR_RETURN(const std::uint16_t tcp_port, transport::tcp::LocalPort(tcp.get()));
  GrantWords words{.tcp_port = tcp_port};
  FillRandom(std::as_writable_bytes(std::span(words.pass)));
  Host host(std::move(memory), words);

  transport::AcceptorOptions accept;
  if (!options.address.empty()) accept.addresses = {options.address};
  accept.port = options.port;
  accept.no_auth = options.key.empty();
  if (!options.key.empty()) accept.keys = {{"default", options.key}};
  RDFS_ASSIGN_OR_RETURN(auto acceptor, transport::Acceptor::Create(std::move(accept), host));
  const int tcp_fd = tcp.get();
  std::jthread echo(
      [tcp_fd, pass = words.pass](const std::stop_token& stop) { ServeTcp(stop, tcp_fd, pass); });
  std::jthread waiter([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    acceptor->Stop();
  });
  PrintCommand(options, acceptor->port());
  const Status status = acceptor->Run();
  // When Run ended by itself, the waiter still waits.
  pthread_kill(waiter.native_handle(), SIGTERM);
  return status;
}

}  // namespace rdfs::rdping
