// TcpListener: the standalone acceptor of the tcp transport. Reads each peer's preface as it comes.
//
// Used by one thread at a time. A peer that sends nothing costs a descriptor for kPrefacePatience
// at most, and of those there are never more than kMaxHalfOpen: the oldest goes first.
#pragma once

#include <array>
#include <chrono>
#include <list>
#include <memory>
#include <string>

#include "transport/tcp/preface.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace rdfs::transport::tcp {

class TcpListener final : public Listener {
 public:
  static constexpr std::chrono::seconds kPrefacePatience{5};
  static constexpr std::size_t kMaxHalfOpen = 128;

  static Result<std::unique_ptr<Listener>> Create(const Endpoint& endpoint);

  [[nodiscard]] Endpoint endpoint() const override { return endpoint_; }
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  Result<std::unique_ptr<Incoming>> Accept() override;

 private:
  // A peer whose preface has not arrived whole.
  struct HalfOpen {
    Fd socket;
    std::string peer;
    Deadline deadline;
    std::array<std::byte, sizeof(Preface) + kMaxTokenBytes> bytes{};
    std::size_t received = 0;
  };

  TcpListener(Endpoint endpoint, Fd socket, Fd epoll, Fd timer)
      : endpoint_(std::move(endpoint)),
        socket_(std::move(socket)),
        epoll_(std::move(epoll)),
        timer_(std::move(timer)) {}

  Status Watch(int fd) const;
  Status TakeNew();
  void DropExpired();
  void SetTimer();
  // Null while the preface is not whole; an error for a peer that is to be dropped.
  Result<std::unique_ptr<Incoming>> Advance(HalfOpen& peer) const;

  Endpoint endpoint_;
  Fd socket_;
  Fd epoll_;
  Fd timer_;                       // wakes the owner when the oldest of half_open_ has had its time
  std::list<HalfOpen> half_open_;  // oldest first
};

}  // namespace rdfs::transport::tcp
