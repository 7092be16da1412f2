// What a Service says of itself: sessions, pool, counters (Service::Describe).
#include <fmt/format.h>

#include <algorithm>

#include "server/service.h"

namespace rdfs::server {
namespace {

std::uint64_t SecondsSilent(const FsSession& session, TimePoint now) {
  const auto silent =
      std::chrono::duration_cast<std::chrono::seconds>(now - session.last_request());
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, silent.count()));
}

std::string DescribeSession(const FsSession& session, TimePoint now) {
  const std::string lane = session.lane();
  const std::string choice = session.choice();
  // The client's words come last: whatever they are, they cannot pass for ours.
  return fmt::format(
      "{} of {}{}, over {}, {} open files, last heard of {} s ago{}{}", session.params().client,
      session.inodes().exported().name(), session.params().read_only ? ", read-only" : "",
      lane.empty() ? "no lane yet" : lane, session.open_files(), SecondsSilent(session, now),
      choice.empty() ? "" : "; its client says: ", choice);
}

// The same for programs.
Snapshot::Fields FieldsOf(const FsSession& session, TimePoint now) {
  const auto transport = session.transport();
  return {{"client", session.params().client},
          {"export", session.inodes().exported().name()},
          {"read_only", session.params().read_only},
          {"transport", transport ? std::string(transport::Name(*transport)) : std::string()},
          {"connection", session.lane()},
          {"why", session.choice()},
          {"open_files", std::uint64_t{session.open_files()}},
          {"last_heard_of_seconds", SecondsSilent(session, now)}};
}

void AddSessions(const std::vector<SessionPtr>& sessions, TimePoint now, Snapshot& out) {
  std::size_t open_files = 0;
  out.sessions.emplace();
  for (const SessionPtr& session : sessions) {
    out.lines.emplace_back("session", DescribeSession(*session, now));
    out.sessions->push_back(FieldsOf(*session, now));
    open_files += session->open_files();
  }
  out.Gauge("sessions", "Mounts.", sessions.size());
  out.Gauge("open_files", "Files that are open; at the server also directories.", open_files);
}

void AddPool(const StoreStats& pool, Snapshot& out) {
  out.Gauge("pool_capacity_bytes", "Memory that may hold content of files for clients to read.",
            pool.capacity_bytes);
  out.Gauge("pool_cached_bytes", "Content of files in that memory.", pool.cached_bytes);
  out.Gauge("pool_leased_bytes", "Content that clients may be reading right now.",
            pool.leased_bytes);
  out.Count("pool_hits", "Extents asked for that were in memory.", pool.hits);
  out.Count("pool_misses", "Extents asked for that had to be read from their file.", pool.misses);
  out.Count("pool_evicted", "Extents that made room for others.", pool.evicted);
  out.Count("grants", "Rights to read an extent given to clients.", pool.grants);
  out.Count("grants_refused", "Rights not given because all memory was being read.",
            pool.refused_grants);
  out.Count("fills_at_once", "Extents filled from the page cache without waiting.",
            pool.fills_at_once);
  out.Count("fills_waited", "Extents filled by a thread that waited for the disk.",
            pool.fills_waited);
  out.Count("inline_bytes", "Bytes that were read into answers instead of extents.",
            pool.inline_bytes);
}

void AddLeases(const LeaseService::Stats& leases, Snapshot& out) {
  out.Gauge("leases", "Files and directories that clients believe something about.", leases.leases);
  out.Count("recalls", "Times that a client was told to believe something no more.",
            leases.recalls);
  out.Count("recalls_expired", "Changes that waited for a lease to run out: a client was silent.",
            leases.expired_waits);
}

}  // namespace

Snapshot Service::Describe() {
  Snapshot out;
  const std::vector<SessionPtr> sessions = sessions_.All();
  const TimePoint now = core_->clock.Now();
  for (const std::string& name : exports_->Names()) out.lines.emplace_back("export", name);
  AddSessions(sessions, now, out);
  out.Gauge("locks", "Locks that mounts hold.", core_->locks.held());
  out.Gauge("locks_waiting", "Requests for a lock that somebody else holds.",
            core_->locks.waiting());
  std::size_t lanes = 0;
  for (const auto& loop : loops_) lanes += loop->lanes();
  out.Gauge("lanes", "Connections for data.", lanes);
  AddPool(exports_->PoolStats(), out);
  out.Gauge("staging_free_bytes", "Memory that is left for what clients write.",
            core_->staging->free_bytes());
  AddLeases(core_->leases.stats(), out);
  core_->counters.AddTo(out);
  core_->refusals.AddTo(out);
  AnswerTimes::Sums took;
  for (const auto& loop : loops_) loop->times().AddTo(took);
  for (std::size_t i = 0; i < took.size(); ++i) {
    out.Latency(std::string(fs::OpcodeName(static_cast<fs::Opcode>(i))), took[i]);
  }
  return out;
}

}  // namespace rdfs::server
