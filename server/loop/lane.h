// Lane: what a request's handler knows of the connection that it came on.
//
// Owned by its loop; requests in progress hold weak references, so that a lane can go at any time.
// All but Post on the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "server/pool/grant_lane.h"
#include "server/session/fs_session.h"
#include "server/write/staging.h"
#include "transport/base/bytes.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  explicit Lane(SessionPtr session) : session_(std::move(session)) {}
  virtual ~Lane() { session_->RequestsAnswered(in_flight_); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // One message to the client. A lane that has failed swallows it.
  virtual void Send(std::span<const ByteSpan> parts) = 0;
  // A request that was taken then has been answered: what was just sent.
  virtual void Answered(fs::Opcode, TimePoint /*taken*/) {}
  // Memory for the client's writes, at most once a lane; null when it cannot be had.
  virtual std::shared_ptr<Staging> MakeStaging(std::size_t wished_bytes) = 0;
  // Runs `task` on the lane's loop; any thread.
  virtual void Post(std::function<void()> task) = 0;

  // Once; false: it is attached.
  [[nodiscard]] bool Attach() { return !std::exchange(attached_, true); }

  [[nodiscard]] const SessionPtr& session() const { return session_; }
  [[nodiscard]] const std::shared_ptr<GrantLane>& grants() const { return grants_; }
  [[nodiscard]] const std::shared_ptr<Staging>& staging() const { return staging_; }
  void SetStaging(std::shared_ptr<Staging> staging) { staging_ = std::move(staging); }

  // Requests that are not answered yet; bounded by fs::kMaxRequestsInFlight.
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
  void RequestTaken() {
    ++in_flight_;
    session_->RequestTaken();
  }
  void RequestAnswered() {
    --in_flight_;
    session_->RequestsAnswered(1);
  }

 protected:
  void SetGrants(std::shared_ptr<GrantLane> grants) { grants_ = std::move(grants); }

 private:
  const SessionPtr session_;
  std::shared_ptr<GrantLane> grants_;
  std::shared_ptr<Staging> staging_;
  std::size_t in_flight_ = 0;
  bool attached_ = false;
};
using LanePtr = std::shared_ptr<Lane>;

}  // namespace rdfs::server
