// VerbsListener: waits for peers on an address and a port of the RDMA connection manager.
//
// One thread at a time; owns its event channel, and each peer that asks gets one of its own. The
// port space is the connection manager's, not TCP's (with soft-iWARP the two collide: a TCP socket
// on the port makes Listen fail, and the other way round).
#pragma once

#include <memory>
#include <string>

#include "transport/transport.h"
#include "transport/verbs/cm.h"

namespace rdfs::transport::verbs {

class VerbsListener final : public Listener {
 public:
  static Result<std::unique_ptr<Listener>> Create(const Endpoint& endpoint);

  [[nodiscard]] Endpoint endpoint() const override { return endpoint_; }
  [[nodiscard]] int fd() const override { return channel_.fd(); }
  Result<std::unique_ptr<Incoming>> Accept() override;

 private:
  VerbsListener(CmChannel channel, CmIdPtr id, Endpoint endpoint)
      : channel_(std::move(channel)), id_(std::move(id)), endpoint_(std::move(endpoint)) {}

  // The id's destruction needs the channel: declared in this order.
  CmChannel channel_;
  CmIdPtr id_;
  Endpoint endpoint_;
};

}  // namespace rdfs::transport::verbs
