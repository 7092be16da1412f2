#include "fs/client/recalls.h"

#include "fs/protocol.h"

namespace rdfs::fs::client {

// The kernel may wait for us there: another way.
void Recalls::GiveWay(Pending& pending, Actions& actions, bool nobody_free) const {
  const bool anew = (pending.recall.parts & (kRecallName | kRecallAttributes)) != 0;
  const bool waits = (pending.recall.parts & (kRecallName | kRecallContent)) != 0 || nobody_free;
  if (pending.acknowledged || !waits || (anew && !epochs_)) return;
  pending.acknowledged = true;
  if (anew) actions.push_back({Act::kNewEpoch, pending.recall.number});
  actions.push_back({Act::kAcknowledge, pending.recall.number});
}

Recalls::Actions Recalls::Arrived(const Recall& recall) {
  ++stamp_;
  const auto [at, fresh] = pending_.try_emplace(recall.number, Pending{.recall = recall});
  // Acknowledged already, it is sent again where that was lost.
  if (!fresh && at->second.acknowledged) return {{Act::kAcknowledge, recall.number}};
  if (!fresh) return {};
  Actions actions{{Act::kInvalidate, recall.number}};
  if (changing_.contains(recall.node)) GiveWay(at->second, actions);
  return actions;
}

Recalls::Actions Recalls::GiveWay(std::uint64_t number) {
  Actions actions;
  const auto found = pending_.find(number);
  if (found != pending_.end()) GiveWay(found->second, actions, true);
  return actions;
}

Recalls::Actions Recalls::Invalidated(std::uint64_t number) {
  const auto found = pending_.find(number);
  if (found == pending_.end()) return {};
  const bool acknowledged = found->second.acknowledged;
  pending_.erase(found);
  return acknowledged ? Actions{} : Actions{{Act::kAcknowledge, number}};
}

Recalls::Actions Recalls::ChangeBegins(Node node) {
  ++changing_[node];
  Actions actions;
  for (auto& [number, pending] : pending_) {
    if (pending.recall.node == node) GiveWay(pending, actions);
  }
  return actions;
}

void Recalls::ChangeEnds(Node node) {
  const auto found = changing_.find(node);
  if (found != changing_.end() && --found->second == 0) changing_.erase(found);
}

const Recalls::Recall* Recalls::Find(std::uint64_t number) const {
  const auto found = pending_.find(number);
  return found == pending_.end() ? nullptr : &found->second.recall;
}

}  // namespace rdfs::fs::client
