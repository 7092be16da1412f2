#include "transport/session/probe.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "transport/base/log.h"

namespace rdfs::transport::session {
namespace {

using std::chrono_literals::operator""ms;

Status OfferMemory(Connection& lane, const MemoryRegion& zeros) {
  ProbeAnswer answer{};
  // Memory that cannot be pinned is not offered: the client says so and goes on.
  if (auto region = lane.Share(zeros); region.ok()) {
    answer.readable = RemoteRegionWire::From(*region);
  }
  return lane.Send(std::as_bytes(std::span<const ProbeAnswer, 1>(&answer, 1)));
}

// Until the peer leaves, `stop`, or the time is over.
void Answer(Connection& lane, const MemoryRegion& zeros, const std::stop_token& stop) {
  // One at a time: a message is valid only until the next Send.
  std::array<Completion, 1> completion;
  std::vector<std::byte> scratch;
  const Deadline end = DeadlineAfter(kProbeTime);
  bool offered = false;
  while (!stop.stop_requested()) {
    const TimePoint now = BootClock::now();
    if (now >= end || lane.backlog_bytes() > Connection::kBacklogLimit) return;
    const auto count = lane.Wait(completion, now + 100ms);
    if (!count.ok()) return;
    if (*count == 0 || completion[0].kind != Completion::Kind::kMessage) continue;
    scratch.assign(completion[0].message.begin(), completion[0].message.end());
    const Status sent = offered ? lane.Send(ByteSpan(scratch)) : OfferMemory(lane, zeros);
    offered = true;
    if (!sent.ok() || !lane.Flush().ok()) return;
  }
}

std::vector<std::byte> TellClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const ProbeGrant grant{static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())};
  const auto bytes = std::as_bytes(std::span<const ProbeGrant, 1>(&grant, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Result<std::shared_ptr<ProbeService::Probe>> ProbeService::NewProbe() {
  auto memory = std::make_shared<Memory>();
  memory->domain = Domain::Create("probe");
  RDFS_ASSIGN_OR_RETURN(
      auto zeros, SharedMemory::Create("rdfs-probe", kProbeBytes, SharedMemory::Peers::kReadOnly));
  RDFS_ASSIGN_OR_RETURN(memory->zeros,
                        memory->domain->Register(std::move(zeros), Access::kRemoteRead));
  auto probe = std::make_shared<Probe>();
  probe->memory = std::move(memory);
  return probe;
}

Result<Admission> ProbeService::Admit(const SessionRequest& request) {
  if (request.service != kProbeService) return host_.Admit(request);
  Reap();
  if (probes_.size() >= kMaxSessions) {
    return Status(Code::kResourceExhausted,
                  "the server is being probed by others already; try again in a minute");
  }
  RDFS_ASSIGN_OR_RETURN(auto probe, NewProbe());
  probe->session_id = request.session_id;
  probe->since = BootClock::now();
  Admission admission;
  admission.domain = probe->memory->domain;
  admission.grant = TellClock();
  admission.context = probe;
  probes_.push_back(std::move(probe));
  return admission;
}

std::optional<std::uint64_t> ProbeService::Overdue(TimePoint now) const {
  if (probes_.size() < kMaxSessions || now - probes_.front()->since <= kProbeTime) {
    return std::nullopt;
  }
  return probes_.front()->session_id;
}

ProbeService::Probes::iterator ProbeService::Find(const std::shared_ptr<void>& context) {
  return std::ranges::find_if(
      probes_, [&](const std::shared_ptr<Probe>& probe) { return probe == context; });
}

void ProbeService::OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
                          std::unique_ptr<Connection> lane) {
  const auto found = Find(context);
  if (found == probes_.end()) return host_.OnLane(session_id, context, std::move(lane));
  if ((*found)->workers.size() >= kMaxLanes) return;
  Worker& worker = (*found)->workers.emplace_back();
  try {
    worker.thread = std::jthread([&done = worker.done, memory = (*found)->memory,
                                  lane = std::move(lane)](const std::stop_token& stop) mutable {
      Answer(*lane, *memory->zeros, stop);
      lane.reset();  // before the memory
      done = true;
    });
  } catch (const std::system_error& error) {
    LogWarn("no lane to a probe: {}",
            Status::FromErrno(error.code().value(), "cannot start a thread").message());
    (*found)->workers.pop_back();
  }
}

void ProbeService::OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) {
  const auto found = Find(context);
  if (found == probes_.end()) return host_.OnSessionEnd(session_id, context);
  for (Worker& worker : (*found)->workers) worker.thread.request_stop();
  ending_.splice(ending_.end(), (*found)->workers);
  probes_.erase(found);
  Reap();
}

void ProbeService::Reap() {
  ending_.remove_if([](const Worker& worker) { return worker.done.load(); });
}

}  // namespace rdfs::transport::session
