#include "transport/session/probe.h"

#include <algorithm>

namespace rdfs::transport::session {

Result<Admission> ProbeService::Admit(const SessionRequest& request) {
  if (request.service != kProbeService) return host_.Admit(request);
  Admission admission;
  admission.domain = Domain::Create("probe");
  probes_.push_back(std::make_shared<Lanes>());
  admission.context = probes_.back();
  return admission;
}

ProbeService::Lanes* ProbeService::FindLanes(const std::shared_ptr<void>& context) const {
  const auto found = std::ranges::find_if(
      probes_, [&](const std::shared_ptr<Lanes>& lanes) { return lanes == context; });
  return found == probes_.end() ? nullptr : found->get();
}

void ProbeService::OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
                          std::unique_ptr<Connection> lane) {
  if (Lanes* lanes = FindLanes(context)) {
    lanes->push_back(std::move(lane));
  } else {
    host_.OnLane(session_id, context, std::move(lane));
  }
}

void ProbeService::OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) {
  if (FindLanes(context) == nullptr) return host_.OnSessionEnd(session_id, context);
  std::erase_if(probes_, [&](const std::shared_ptr<Lanes>& lanes) { return lanes == context; });
}

}  // namespace rdfs::transport::session
