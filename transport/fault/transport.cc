#include "transport/fault/transport.h"

#include <mutex>
#include <utility>

#include "transport/fault/connection.h"
#include "transport/fault/dice.h"

namespace rdfs::transport::fault {
namespace {

// A plan, and a seed of its own for each connection made under it. Any thread.
class Plans {
 public:
  explicit Plans(const Plan& plan) : plan_(plan), dice_(plan.seed) {}

  Plan ForNextConnection() {
    const std::lock_guard lock(mutex_);
    Plan plan = plan_;
    plan.seed = dice_.Next();
    return plan;
  }
  bool FailsConnect() {
    const std::lock_guard lock(mutex_);
    return dice_.Throw(plan_.fail_connect);
  }

 private:
  const Plan plan_;
  std::mutex mutex_;
  Dice dice_;
};

class FaultyIncoming final : public Incoming {
 public:
  FaultyIncoming(std::unique_ptr<Incoming> inner, std::shared_ptr<Plans> plans)
      : inner_(std::move(inner)), plans_(std::move(plans)) {}

  [[nodiscard]] ByteSpan token() const override { return inner_->token(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  Result<std::unique_ptr<Connection>> Accept(const std::shared_ptr<Domain>& domain) override {
    RDFS_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, inner_->Accept(domain));
    return Wrap(std::move(connection), plans_->ForNextConnection());
  }
  void Reject(const Status& why) override { inner_->Reject(why); }

 private:
  std::unique_ptr<Incoming> inner_;
  std::shared_ptr<Plans> plans_;
};

class FaultyListener final : public Listener {
 public:
  FaultyListener(std::unique_ptr<Listener> inner, std::shared_ptr<Plans> plans)
      : inner_(std::move(inner)), plans_(std::move(plans)) {}

  [[nodiscard]] Endpoint endpoint() const override { return inner_->endpoint(); }
  [[nodiscard]] int fd() const override { return inner_->fd(); }
  Result<std::unique_ptr<Incoming>> Accept() override {
    RDFS_ASSIGN_OR_RETURN(std::unique_ptr<Incoming> incoming, inner_->Accept());
    if (incoming == nullptr) return incoming;
    return std::unique_ptr<Incoming>(std::make_unique<FaultyIncoming>(std::move(incoming), plans_));
  }

 private:
  std::unique_ptr<Listener> inner_;
  std::shared_ptr<Plans> plans_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const Plan& plan)
      : inner_(std::move(inner)), plans_(std::make_shared<Plans>(plan)) {}

  [[nodiscard]] Kind kind() const override { return inner_->kind(); }
  [[nodiscard]] Viability Probe() const override { return inner_->Probe(); }
  Result<std::unique_ptr<Listener>> Listen(const Endpoint& endpoint) override {
    RDFS_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, inner_->Listen(endpoint));
    return std::unique_ptr<Listener>(std::make_unique<FaultyListener>(std::move(listener), plans_));
  }
  Result<std::unique_ptr<Connection>> Connect(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline) override {
    if (plans_->FailsConnect()) {
      return Status(Code::kUnavailable, "the fault plan refuses this connect");
    }
    RDFS_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection,
                          inner_->Connect(endpoint, domain, token, deadline));
    return Wrap(std::move(connection), plans_->ForNextConnection());
  }

 private:
  std::unique_ptr<Transport> inner_;
  std::shared_ptr<Plans> plans_;
};

}  // namespace

std::unique_ptr<Connection> Wrap(std::unique_ptr<Connection> inner, const Plan& plan) {
  return std::make_unique<FaultyConnection>(std::move(inner), plan);
}

std::unique_ptr<Transport> Wrap(std::unique_ptr<Transport> inner, const Plan& plan) {
  return std::make_unique<FaultyTransport>(std::move(inner), plan);
}

}  // namespace rdfs::transport::fault
