#include <algorithm>

#include "tests/coherence/world.h"
#include "tests/coherence/world_parts.h"

// The server of a world: leases, recalls, and what is on its disk.
namespace rdfs::coherence {

using server::LeaseTable;
using std::chrono::microseconds;
using std::chrono::milliseconds;

void World::OnAsk(Client& client, const std::shared_ptr<Op>& op) {
  if (op->session != client.session) return;
  if (!MustAskFirst(*op)) return Look(client, op, 0);
  if (!server_->looking.insert(op->number).second) return;
  const LeaseTable::Target target{.inode = KeyOf(NodeOf(op->facts[0])), .whole = true};
  const LeaseTable::Begun begun = server_->table.Begin(
      op->session, {&target, 1}, server_->Local(time_.now()), LeaseTable::Purpose::kLook);
  SendRecalls(begun, op, true);
  if (begun.ready) {
    Look(client, op, begun.change);
  } else {
    server_->waiting[begun.change] = op;
  }
  WatchExpiry();
}

bool World::MustAskFirst(const Op& op) {
  const std::size_t node = NodeOf(op.facts[0]);
  const TimePoint now = server_->Local(time_.now());
  if (!IsFile(node) || options_.bug == Bug::kLookedWithoutAsking) return false;
  return server_->table.WrittenEarlierByAnother(op.session, now) ||
         server_->table.WrittenByAnother(KeyOf(node), op.session, now);
}

// `change`: what has been begun for it, or 0.
void World::Look(Client& client, const std::shared_ptr<Op>& op, std::uint64_t change) {
  const Fact fact = op->facts[0];
  const LeaseTable::Stamp since = server_->table.stamp();
  const std::uint64_t value = values_[fact];
  // The answer takes a moment behind the look at the disk.
  time_.After(time_.Between(microseconds(1), microseconds(300)), [this, &client, op, fact, since,
                                                                  value, change, life = life_] {
    if (life_ != life) return;
    if (change != 0) {
      server_->table.End(change);
      server_->looking.erase(op->number);
    }
    if (op->session != client.session) return;
    bool granted = server_->table.Grant(KeyOf(NodeOf(fact)), op->session, since,
                                        server_->Local(time_.now()), kLease);
    if (options_.bug == Bug::kGrantedDuringChange) granted = true;
    const std::uint32_t lease = granted ? static_cast<std::uint32_t>(kLease.count()) : 0;
    Send([this, &client, op, value, lease] {
      AfterAt(client, Time(1),
              [this, &client, op, value, lease] { OnReply(client, op, value, lease); });
    });
  });
}

void World::OnChange(Client& client, const std::shared_ptr<Op>& op) {
  if (op->session != client.session) return;
  if (applied_.contains(op->number)) {
    return Send([this, &client, op] {
      AfterAt(client, Time(1), [this, &client, op] { OnDone(client, op, 0); });
    });
  }
  op->since = server_->table.stamp();
  if (server_->begun.insert(op->number).second) BeginChange(op);
}

void World::BeginChange(const std::shared_ptr<Op>& op) {
  std::vector<LeaseTable::Target> targets;
  for (const Fact fact : op->facts) targets.push_back({.inode = KeyOf(NodeOf(fact))});
  const bool whole = time_.Chance(4);
  for (LeaseTable::Target& target : targets) target.whole = whole;
  LeaseTable::Begun begun = server_->table.Begin(
      op->session, targets, server_->Local(time_.now()),
      op->early_end ? LeaseTable::Purpose::kLeasedWrite : LeaseTable::Purpose::kChange);
  if (options_.bug == Bug::kRecallSkipped && time_.Chance(8))
    begun = {.change = begun.change, .ready = true};
  SendRecalls(begun, op, whole);
  if (begun.ready || options_.bug == Bug::kAppliedBeforeAnswer) {
    Apply(op, begun.change);
  } else {
    server_->waiting[begun.change] = op;
  }
  WatchExpiry();
}

void World::SendRecalls(const LeaseTable::Begun& begun, const std::shared_ptr<Op>& op, bool whole) {
  for (const LeaseTable::Recall& recall : begun.recalls) {
    const Fact fact = op->facts[recall.target];
    const std::uint32_t all = fs::kRecallAttributes | fs::kRecallName | fs::kRecallContent;
    server_->recalls[recall.number] = {.number = recall.number,
                                       .node = NodeOf(fact),
                                       .parts = whole ? all : PartOf(fact),
                                       .name = whole ? "" : std::to_string(fact)};
    SendRecall(recall, op);
  }
}

void World::SendRecall(const LeaseTable::Recall& recall, const std::shared_ptr<Op>& op) {
  const std::vector<LeaseTable::RecallNumber> left = server_->table.Outstanding(recall.session);
  if (std::find(left.begin(), left.end(), recall.number) == left.end()) return;
  ++recalls_sent_;
  for (const auto& client : clients_) {
    if (client->session != recall.session) continue;
    Send([this, to = client.get(), session = recall.session,
          what = server_->recalls[recall.number]] {
      // What reaches a frozen client's host may find no room.
      if (to->session != session || (time_.now() < to->frozen_until && time_.Chance(2))) return;
      AfterAt(*to, Time(1), [this, to, what] { OnRecall(*to, what); });
    });
  }
  time_.After(kResend, [this, recall, op, life = life_] {
    if (life_ == life) SendRecall(recall, op);
  });
}

void World::OnAcknowledge(std::uint64_t session, std::uint64_t number) {
  if (server_) Ready(server_->table.Acknowledge(session, number, server_->Local(time_.now())));
}

void World::Ready(const std::vector<LeaseTable::ChangeNumber>& changes) {
  for (const LeaseTable::ChangeNumber change : changes) {
    const auto found = server_->waiting.find(change);
    if (found == server_->waiting.end()) continue;
    const std::shared_ptr<Op> op = found->second;
    server_->waiting.erase(found);
    op->change ? Apply(op, change) : Look(*clients_[op->client], op, change);
  }
}

// It happens at some moment, and the answer goes out at a later one.
void World::Apply(const std::shared_ptr<Op>& op, std::uint64_t change) {
  time_.After(time_.Between(microseconds(1), microseconds(200)), [this, op, change, life = life_] {
    if (life_ != life) return;
    for (const Fact fact : op->facts) values_[fact] = op->number;
    applied_.insert(op->number);
    time_.After(time_.Between(microseconds(1), microseconds(100)), [this, op, change, life] {
      if (life_ != life) return;
      const std::size_t node = NodeOf(op->facts[0]);
      const bool leased = IsFile(node) && server_->table.GrantWrites(
                                              KeyOf(node), op->session, op->since,
                                              server_->Local(time_.now()), options_.write_lease);
      const auto lease = static_cast<std::uint32_t>(leased ? options_.write_lease.count() : 0);
      server_->table.End(change);
      Client& client = *clients_[op->client];
      if (op->session != client.session) return;
      Send([this, &client, op, lease] {
        if (op->session != client.session) return;
        AfterAt(client, Time(1), [this, &client, op, lease] { OnDone(client, op, lease); });
      });
    });
  });
}

void World::WatchExpiry() {
  const auto next = server_->table.NextExpiry();
  if (!next || server_->watch) return;
  const auto behind = *next - server_->Local(time_.now());
  server_->watch = time_.now() + std::max<Time>(behind, Time(0)) + Time(behind / 50) + Time(1000);
  time_.At(*server_->watch, [this, life = life_] {
    if (life_ != life) return;
    server_->watch.reset();
    Ready(server_->table.Expire(server_->Local(time_.now())));
    WatchExpiry();
  });
}

void World::CrashServer() {
  if (!server_) return;
  expired_waits_ += server_->table.expired_waits();
  const double rate = server_->rate;
  server_.reset();
  ++life_;
  time_.After(time_.Between(milliseconds(1), milliseconds(30)), [this, rate] {
    LeaseTable::Options options = NewTable();
    options.first_number = std::uint64_t{1} << 40U;
    server_ = std::make_unique<Server>(options);
    server_->rate = rate;
    if (options_.bug == Bug::kForgottenLeases) return;
    options.quiet_until = server_->Local(time_.now()) + kQuiet;
    server_ = std::make_unique<Server>(options);
    server_->rate = rate;
  });
}

}  // namespace rdfs::coherence
