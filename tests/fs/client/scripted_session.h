// ScriptedSession: a session without a network, whose lanes come from whoever makes it.
//
// Threads: those of what opens the lanes. Every leg leads to the same lanes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/session/session.h"

namespace rdfs::fs::client {

class ScriptedSession final : public transport::Session {
 public:
  using Lane = Result<std::unique_ptr<transport::Connection>>;

  // `stream_only`: as ssh's own stream, it has one lane.
  ScriptedSession(std::function<Lane()> open_lane, std::vector<std::byte> grant,
                  std::shared_ptr<transport::Domain> domain, bool stream_only = false)
      : open_lane_(std::move(open_lane)),
        grant_(std::move(grant)),
        domain_(std::move(domain)),
        legs_{{.kind = transport::Kind::kTcp, .stdio = stream_only, .status = {}}} {}
  [[nodiscard]] std::uint64_t id() const override { return 1; }
  [[nodiscard]] ByteSpan grant() const override { return grant_; }
  [[nodiscard]] const std::shared_ptr<transport::Domain>& domain() const override {
    return domain_;
  }
  [[nodiscard]] transport::session::Secret32 exporter() const override { return {}; }
  Lane OpenLane(Deadline) override {
    if (legs_.front().stdio && std::exchange(taken_, true)) {
      return Status(Code::kBusy, "the stream carries a lane");
    }
    return open_lane_();
  }
  Lane OpenStreamLane(Deadline) override { return open_lane_(); }
  Lane OpenDirectLane(Deadline) override { return open_lane_(); }
  Lane OpenLaneOver(transport::Kind, Deadline) override { return open_lane_(); }
  void RuleOut(transport::Kind, Status) override {}
  [[nodiscard]] const std::vector<transport::LegReport>& legs() const override { return legs_; }
  [[nodiscard]] std::string ExplainChoice() const override { return "scripted"; }

 private:
  const std::function<Lane()> open_lane_;
  const std::vector<std::byte> grant_;
  const std::shared_ptr<transport::Domain> domain_;
  const std::vector<transport::LegReport> legs_;
  bool taken_ = false;
};

}  // namespace rdfs::fs::client
