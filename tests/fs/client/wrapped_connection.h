// WrappedConnection: passes everything on to another connection. Tests override what is to be
// different.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/transport.h"

namespace rdfs::fs::client {

class WrappedConnection : public transport::Connection {
 public:
  explicit WrappedConnection(std::unique_ptr<transport::Connection> inner)
      : inner_(std::move(inner)) {}

  [[nodiscard]] const transport::Capabilities& capabilities() const override {
    return inner_->capabilities();
  }
  [[nodiscard]] std::string Describe() const override { return inner_->Describe(); }
  Status Send(std::span<const ByteSpan> parts) override { return inner_->Send(parts); }
  [[nodiscard]] std::size_t backlog_bytes() const override { return inner_->backlog_bytes(); }
  [[nodiscard]] std::size_t kept_bytes() const override { return inner_->kept_bytes(); }
  [[nodiscard]] std::uint64_t carried_bytes() const override { return inner_->carried_bytes(); }
  Result<transport::Ticket> Read(const transport::LocalSlice& to,
                                 const transport::RemoteSlice& from,
                                 transport::Order order) override {
    return inner_->Read(to, from, order);
  }
  Result<transport::Ticket> Write(const transport::LocalSlice& from,
                                  const transport::RemoteSlice& to) override {
    return inner_->Write(from, to);
  }
  Status Flush() override { return inner_->Flush(); }
  Result<std::size_t> Poll(std::span<transport::Completion> out) override {
    return inner_->Poll(out);
  }
  Result<bool> Arm() override { return inner_->Arm(); }
  [[nodiscard]] int fd() const override { return inner_->fd(); }
  [[nodiscard]] Status MayMove(const transport::MemoryRegion& region) const override {
    return inner_->MayMove(region);
  }
  Result<transport::RemoteRegion> Share(const transport::MemoryRegion& region) override {
    return inner_->Share(region);
  }
  void Unshare(const transport::MemoryRegion& region) override { inner_->Unshare(region); }
  void KeepCredentials() override { inner_->KeepCredentials(); }
  void Abandon() override { inner_->Abandon(); }

 private:
  const std::unique_ptr<transport::Connection> inner_;
};

}  // namespace rdfs::fs::client
