// The service "probe", which every server has beside its own: whoever is authenticated may open
// lanes, to learn which legs work and how fast they are (rdinfo). A lane's first message is
// answered with memory to READ, which holds nothing but zeros; every later one is sent back. The
// grant tells the server's clock.
//
// Stands between the acceptor and the SessionHost, on the acceptor's thread; each lane has a thread
// of its own, which ends with the session and after kProbeTime at the latest.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "transport/session/acceptor.h"

namespace rdfs::transport::session {

// Admission::grant of the service.
struct ProbeGrant {
  Le64 wall_clock_ns;  // CLOCK_REALTIME
};
// The answer to a lane's first message.
struct ProbeAnswer {
  RemoteRegionWire readable;  // kProbeBytes; length 0: it cannot be shared over this transport
};
inline constexpr std::size_t kProbeBytes = 256 << 10;
inline constexpr std::chrono::seconds kProbeTime{30};

class ProbeService final : public SessionHost {
 public:
  explicit ProbeService(SessionHost& host) : host_(host) {}

  Result<Admission> Admit(const SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<Connection> lane) override;
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override;
  void OnWrongKey() override { host_.OnWrongKey(); }

  // The session of a probe that is in the way of a next one: there are kMaxSessions, and this one
  // was admitted longer than kProbeTime ago (lanes that it opened late end with it). None where
  // nobody waits.
  [[nodiscard]] std::optional<std::uint64_t> Overdue(TimePoint now) const;

  // Each may pin memory and keep a thread busy.
  static constexpr std::size_t kMaxSessions = 8;
  static constexpr std::size_t kMaxLanes = 4;  // of a session

 private:
  struct Memory {
    std::shared_ptr<Domain> domain;
    std::unique_ptr<MemoryRegion> zeros;
  };
  struct Worker {
    std::atomic<bool> done{false};
    std::jthread thread;
  };
  struct Probe {
    std::uint64_t session_id = 0;
    TimePoint since{};
    std::shared_ptr<Memory> memory;
    std::list<Worker> workers;
  };
  using Probes = std::vector<std::shared_ptr<Probe>>;

  static Result<std::shared_ptr<Probe>> NewProbe();
  [[nodiscard]] Probes::iterator Find(const std::shared_ptr<void>& context);
  // Lets go of the threads that have ended; waits for none.
  void Reap();

  SessionHost& host_;
  Probes probes_;             // the context of each probe's session, oldest first
  std::list<Worker> ending_;  // of sessions that are over
};

}  // namespace rdfs::transport::session
