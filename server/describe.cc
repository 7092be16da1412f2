// What a Service says of itself: sessions, pool, counters (Service::Describe).
#include <fmt/format.h>

#include <algorithm>

#include "server/service.h"

namespace rdfs::server {
namespace {

std::string DescribeSession(const FsSession& session, TimePoint now) {
  const auto silent =
      std::chrono::duration_cast<std::chrono::seconds>(now - session.last_request());
  const std::string lane = session.lane();
  return fmt::format("{} of {}{}, over {}, {} open files, last heard of {} s ago",
                     session.params().client, session.inodes().exported().name(),
                     session.params().read_only ? ", read-only" : "",
                     lane.empty() ? "no lane yet" : lane, session.open_files(),
                     std::max<std::int64_t>(0, silent.count()));
}

void AddPool(const StoreStats& pool, Snapshot& out) {
  out.Gauge("pool_capacity_bytes", pool.capacity_bytes);
  out.Gauge("pool_cached_bytes", pool.cached_bytes);
  out.Gauge("pool_leased_bytes", pool.leased_bytes);
  out.Count("pool_hits", pool.hits);
  out.Count("pool_misses", pool.misses);
  out.Count("pool_evicted", pool.evicted);
  out.Count("grants", pool.grants);
  out.Count("grants_refused", pool.refused_grants);
  out.Count("fills_at_once", pool.fills_at_once);
  out.Count("fills_waited", pool.fills_waited);
  out.Count("inline_bytes", pool.inline_bytes);
}

}  // namespace

Snapshot Service::Describe() {
  Snapshot out;
  const std::vector<SessionPtr> sessions = sessions_.All();
  const TimePoint now = core_->clock.Now();
  for (const std::string& name : exports_->Names()) out.lines.emplace_back("export", name);
  for (const SessionPtr& session : sessions) {
    out.lines.emplace_back("session", DescribeSession(*session, now));
  }
  out.Gauge("sessions", sessions.size());
  std::size_t lanes = 0;
  for (const auto& loop : loops_) lanes += loop->lanes();
  out.Gauge("lanes", lanes);
  AddPool(exports_->PoolStats(), out);
  out.Gauge("staging_free_bytes", core_->staging->free_bytes());
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
