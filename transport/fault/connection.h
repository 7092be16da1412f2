// FaultyConnection: a Connection that fails as its plan says.
//
// Posts (Send, Read, Write) and completions throw dice of their own, so that how often somebody
// polls changes nothing. Owned and used like the Connection that it wraps.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/fd.h"
#include "transport/fault/dice.h"
#include "transport/fault/transport.h"

namespace rdfs::transport::fault {

class FaultyConnection final : public Connection {
 public:
  FaultyConnection(std::unique_ptr<Connection> inner, const Plan& plan);

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string Describe() const override { return description_; }
  Status Send(std::span<const ByteSpan> parts) override;
  using Connection::Send;
  [[nodiscard]] std::size_t backlog_bytes() const override;
  [[nodiscard]] std::size_t kept_bytes() const override {
    return inner_ == nullptr ? 0 : inner_->kept_bytes();
  }
  [[nodiscard]] std::uint64_t carried_bytes() const override {
    return inner_ == nullptr ? 0 : inner_->carried_bytes();
  }
  Result<Ticket> Read(const LocalSlice& to, const RemoteSlice& from, Order order) override;
  Result<Ticket> Write(const LocalSlice& from, const RemoteSlice& to) override;
  Status Flush() override;
  Result<std::size_t> Poll(std::span<Completion> out) override;
  Result<bool> Arm() override;
  [[nodiscard]] int fd() const override { return fd_; }
  [[nodiscard]] Status MayMove(const MemoryRegion& region) const override {
    return inner_ != nullptr ? inner_->MayMove(region) : over_;
  }
  Result<RemoteRegion> Share(const MemoryRegion& region) override;
  void Unshare(const MemoryRegion& region) override;
  void KeepCredentials() override {
    if (inner_ != nullptr) inner_->KeepCredentials();
  }
  void Abandon() override {
    if (inner_ != nullptr) inner_->Abandon();
  }

 private:
  struct Held {
    Completion completion;
    std::vector<std::byte> bytes;  // of its message
    std::uint64_t due = 0;         // the Poll that may report it
  };

  // Counts one operation; the status with which it fails, if it is to break the connection.
  Status Operation();
  Status Break();
  Status TakeIn();

  const Plan plan_;
  const Capabilities capabilities_;
  const std::string description_;
  std::unique_ptr<Connection> inner_;  // null once broken
  // fd() outlives the inner connection: an epoll set with its descriptor and, once it is broken,
  // one that stays readable. Without faults that break, the inner one's own.
  Fd epoll_;
  Fd broken_;
  int fd_;

  Dice posts_;
  Dice completions_;
  std::uint64_t operations_ = 0;
  std::uint64_t polls_ = 0;
  Status over_;
  std::deque<Held> held_;      // in order; due never falls from one to the next
  std::deque<Held> reported_;  // by the last Poll: their messages are still being looked at
};

}  // namespace rdfs::transport::fault
