// The service "probe", which every server has beside its own: whoever is authenticated may open
// lanes, to learn which legs work. Nothing is exposed on them, and nothing answers; they end with
// their session.
//
// Stands between the acceptor and the SessionHost, on the acceptor's thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "transport/session/acceptor.h"

namespace rdfs::transport::session {

class ProbeService final : public SessionHost {
 public:
  explicit ProbeService(SessionHost& host) : host_(host) {}

  Result<Admission> Admit(const SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<Connection> lane) override;
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override;

 private:
  using Lanes = std::vector<std::unique_ptr<Connection>>;
  [[nodiscard]] Lanes* FindLanes(const std::shared_ptr<void>& context) const;

  SessionHost& host_;
  std::vector<std::shared_ptr<Lanes>> probes_;  // the context of each probe's session
};

}  // namespace rdfs::transport::session
