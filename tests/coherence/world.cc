#include "tests/coherence/world.h"

#include <algorithm>
#include <utility>

#include "fs/client/types.h"
#include "tests/coherence/world_parts.h"

namespace rdfs::coherence {

using fs::client::Recalls;
using server::LeaseTable;
using std::chrono::microseconds;
using std::chrono::milliseconds;

World::World(const WorldOptions& options)
    : options_(options),
      time_(options.seed),
      faults_(options.faults),
      values_(kFacts),
      histories_(kFacts) {
  server_ = std::make_unique<Server>(NewTable());
  for (unsigned i = 0; i < options_.clients; ++i) {
    auto client = std::make_unique<Client>();
    client->index = i;
    client->session = next_session_++;
    client->recalls = std::make_unique<Recalls>(options_.epochs);
    client->left.assign(options_.processes, options_.operations);
    client->ended.assign(options_.processes, false);
    if (faults_) client->rate = time_.ClockRate();
    unfinished_ += options_.processes;
    clients_.push_back(std::move(client));
  }
  if (faults_) server_->rate = time_.ClockRate();
}

World::~World() = default;

LeaseTable::Options World::NewTable() const {
  LeaseTable::Options options;
  if (options_.bug != Bug::kForgottenOnTheWay) options.write_travel = kTravel;
  return options;
}

void World::AfterAt(Client& client, Time delay, std::function<void()> what) {
  time_.After(delay, [this, &client, session = client.session, what = std::move(what)]() mutable {
    if (client.session != session) return;
    if (time_.now() < client.frozen_until) {
      return AfterAt(client, client.frozen_until - time_.now() + Time(time_.Pick(1000)),
                     std::move(what));
    }
    what();
  });
}

void World::Send(std::function<void()> deliver) {
  if (faults_ && time_.Chance(options_.lost_one_in)) return;
  const bool slow = faults_ && time_.Chance(options_.slow_one_in);
  time_.After(slow ? time_.Between(milliseconds(1), milliseconds(60))
                   : time_.Between(microseconds(5), microseconds(400)),
              std::move(deliver));
}

void World::Run() {
  for (const auto& client : clients_) {
    for (unsigned process = 0; process < options_.processes; ++process) {
      NextOperation(*client, process);
    }
  }
  const Time end_of_faults = time_.now() + std::chrono::seconds(2);
  const Time end = end_of_faults + std::chrono::seconds(20);
  if (faults_) {
    for (Time at = time_.now(); at < end_of_faults; at += milliseconds(40)) {
      time_.At(at + Time(time_.Pick(40'000'000)), [this] { Freeze(); });
    }
    time_.At(time_.now() + time_.Between(milliseconds(50), milliseconds(900)),
             [this] { CrashServer(); });
    time_.At(time_.now() + time_.Between(milliseconds(50), milliseconds(900)),
             [this] { KillClient(); });
  }
  time_.At(end_of_faults, [this] { faults_ = false; });
  while (unfinished_ > 0 && time_.Step(end)) continue;
  if (server_) expired_waits_ += server_->table.expired_waits();
}

std::string World::Verdict() const {
  for (Fact fact = 0; fact < kFacts; ++fact) {
    // What had not ended when its client died may have happened.
    const std::string why = WhyNotLinearizable(histories_[fact]);
    if (!why.empty()) return "fact " + std::to_string(fact) + ": " + why;
  }
  return {};
}

std::string World::Stuck() const {
  return unfinished_ == 0
             ? ""
             : std::to_string(unfinished_) + " processes or early writes have not ended";
}

// ---- The processes and their kernel

void World::NextOperation(Client& client, unsigned process) {
  if (client.left[process] == 0) {
    client.ended[process] = true;
    --unfinished_;
    return;
  }
  --client.left[process];
  AfterAt(client,
          time_.Between(microseconds(1),
                        time_.Chance(10) ? Time(milliseconds(30)) : Time(microseconds(500))),
          [this, &client, process] {
            // Who writes to a file often goes on with it.
            const bool goes_on = client.written && time_.Chance(2);
            if (!goes_on && time_.Pick(4) != 0) {
              StartRead(client, process);
            } else {
              StartChange(client, process);
            }
          });
}

void World::StartRead(Client& client, unsigned process) {
  const Fact fact = time_.Pick(kFacts);
  const auto cached = client.cache.find(fact);
  if (cached != client.cache.end() && client.Local(time_.now()) < cached->second.until) {
    ++cache_hits_;
    const std::uint64_t begin = Tick();
    histories_[fact].push_back(
        {.write = false, .value = cached->second.value, .begin = begin, .end = Tick()});
    return NextOperation(client, process);
  }
  auto op = std::make_shared<Op>();
  op->number = next_op_++;
  op->process = process;
  op->begin = Tick();
  op->facts = {fact};
  if (!WaitsBehind(client, op)) Ask(client, op);
}

void World::Ask(Client& client, const std::shared_ptr<Op>& op) {
  op->asked_stamp = client.recalls->stamp();
  op->asked = client.Local(time_.now());
  op->own_changes = client.own_changes;
  ++client.asking[op->facts[0]];
  SendUntilAnswered(client, op);
}

// What follows an early write to a file is taken up when that has arrived.
bool World::WaitsBehind(Client& client, const std::shared_ptr<Op>& op) {
  if (options_.bug == Bug::kOvertaken && !op->change) return false;
  for (const Fact fact : op->facts) {
    const auto behind = client.behind.find(NodeOf(fact));
    if (behind == client.behind.end() || behind->second == 0) continue;
    client.parked.push_back(op);
    return true;
  }
  return false;
}

bool World::MayEndEarly(Client& client, const Op& op) {
  const std::size_t node = NodeOf(op.facts[0]);
  if (!IsFile(node)) return false;
  const auto lease = client.write_leases.find(node);
  return lease != client.write_leases.end() && client.Local(time_.now()) < lease->second;
}

void World::Arrived(Client& client, const std::shared_ptr<Op>& op) {
  --client.behind[NodeOf(op->facts[0])];
  for (const std::uint64_t number : std::exchange(client.held, {})) Acknowledge(client, number);
  for (const std::shared_ptr<Op>& next : std::exchange(client.parked, {})) {
    if (WaitsBehind(client, next)) continue;
    next->change ? Change(client, next) : Ask(client, next);
  }
}

void World::StartChange(Client& client, unsigned process) {
  auto op = std::make_shared<Op>();
  op->number = next_op_++;
  op->process = process;
  op->begin = Tick();
  op->change = true;
  const std::size_t directory = time_.Pick(kDirectories),
                    picked = kDirectories + time_.Pick(kFiles);
  const std::size_t file = client.written && time_.Chance(2) ? *client.written : picked;
  client.written.reset();
  const std::uint64_t what = time_.Pick(4);
  if (what < 2 && time_.Chance(2)) client.written = file;
  switch (what) {
    case 0:
      op->facts = {file};
      break;
    case 1:
      op->facts = {file, kFirstContent + file - kDirectories};
      break;
    case 2:
      op->facts = {directory, NameFact(directory, time_.Pick(kNames))};
      break;
    default: {
      op->facts = {directory, NameFact(directory, time_.Pick(kNames))};
      const std::size_t other = 1 - directory;
      op->facts.insert(op->facts.end(), {other, NameFact(other, time_.Pick(kNames))});
    }
  }
  if (!WaitsBehind(client, op)) Change(client, op);
}

void World::Change(Client& client, const std::shared_ptr<Op>& op) {
  for (const Fact fact : op->facts) {
    client.cache.erase(fact);  // the sender's own lease
    ++client.own_busy[fact];
    client.own_changed[fact] = ++client.own_changes;
    if (IsName(fact)) Do(client, client.recalls->ChangeBegins(NodeOf(fact)));
  }
  op->asked = client.Local(time_.now());
  op->asked_stamp = client.recalls->stamp();
  if (MayEndEarly(client, *op)) {
    ++early_writes_;
    ++unfinished_;
    op->early_end = Tick();
    op->early_until = client.write_leases.at(NodeOf(op->facts[0]));
    ++client.behind[NodeOf(op->facts[0])];
    NextOperation(client, op->process);
  }
  SendUntilAnswered(client, op);
}

void World::SendUntilAnswered(Client& client, const std::shared_ptr<Op>& op) {
  if (op->answered) return;
  op->client = client.index;
  op->session = client.session;
  client.open.insert(op);
  Send([this, &client, op] {
    if (!server_) return;
    if (op->change) {
      OnChange(client, op);
    } else {
      OnAsk(client, op);
    }
  });
  AfterAt(client, kResend, [this, &client, op] { SendUntilAnswered(client, op); });
}

void World::EndOperation(Client& client, const std::shared_ptr<Op>& op) {
  op->answered = true;
  client.open.erase(op);
  NextOperation(client, op->process);
}

void World::OnReply(Client& client, const std::shared_ptr<Op>& op, std::uint64_t value,
                    std::uint32_t lease_ms) {
  if (op->answered) return;
  const Fact fact = op->facts[0];
  --client.asking[fact];
  const bool current =
      client.recalls->MayBelieve(op->asked_stamp) || options_.bug == Bug::kBelievedAfterRecall;
  const TimePoint from =
      options_.bug == Bug::kLeaseFromTheAnswer ? client.Local(time_.now()) : op->asked;
  if (lease_ms > 0 && current && client.own_busy[fact] == 0 &&
      client.own_changed[fact] <= op->own_changes) {
    client.cache[fact] = {.value = value, .until = fs::client::LeaseEnd(from, lease_ms)};
  }
  histories_[fact].push_back({.write = false, .value = value, .begin = op->begin, .end = Tick()});
  EndOperation(client, op);
}

void World::OnDone(Client& client, const std::shared_ptr<Op>& op, std::uint32_t write_lease_ms) {
  if (op->answered) return;
  std::uint64_t end = Tick();
  const std::size_t node = NodeOf(op->facts[0]);
  if (op->early_end) {
    // One that was on its way for longer than is waited for may have been overtaken by others.
    const bool in_time = client.Local(time_.now()) < op->early_until + kTravel - kTravel / 50;
    end = in_time ? *op->early_end : Operation::kNever;
  }
  if (client.recalls->MayBelieve(op->asked_stamp)) {
    client.write_leases[node] = fs::client::LeaseEnd(op->asked, write_lease_ms);
  }
  for (const Fact fact : op->facts) {
    --client.own_busy[fact];
    client.own_changed[fact] = ++client.own_changes;
    if (IsName(fact)) client.recalls->ChangeEnds(NodeOf(fact));
    histories_[fact].push_back(
        {.write = true, .value = op->number, .begin = op->begin, .end = end});
  }
  if (!op->early_end) return EndOperation(client, op);
  op->answered = true;
  client.open.erase(op);
  --unfinished_;
  Arrived(client, op);
}

void World::OnRecall(Client& client, const Recalls::Recall& recall) {
  client.write_leases.erase(recall.node);
  client.recalled[recall.number] = recall.node;
  if (options_.bug == Bug::kAcknowledgedTooSoon) Acknowledge(client, recall.number);
  Do(client, client.recalls->Arrived(recall));
}

void World::Do(Client& client, const Recalls::Actions& actions) {
  for (const Recalls::Action& action : actions) {
    switch (action.act) {
      case Recalls::Act::kInvalidate:
        AfterAt(client, time_.Between(microseconds(5), microseconds(200)),
                [this, &client, number = action.number] { Invalidate(client, number); });
        break;
      case Recalls::Act::kNewEpoch:
        if (const Recalls::Recall* recall = client.recalls->Find(action.number)) {
          client.cache.erase(recall->node);
        }
        for (Fact fact = kFirstName; fact < kFirstContent; ++fact) client.cache.erase(fact);
        break;
      case Recalls::Act::kAcknowledge:
        Acknowledge(client, action.number);
        break;
    }
  }
}

// Attributes never wait; the rest may.
void World::Invalidate(Client& client, std::uint64_t number) {
  const Recalls::Recall* recall = client.recalls->Find(number);
  if (recall == nullptr) return;
  if ((recall->parts & fs::kRecallAttributes) != 0) client.cache.erase(recall->node);
  TryInvalidate(client, number);
}

void World::TryInvalidate(Client& client, std::uint64_t number) {
  const Recalls::Recall* recall = client.recalls->Find(number);
  if (recall == nullptr) return;
  // As the kernel: a name waits for look-ups and changes in its directory, pages for their reads.
  bool waits = false;
  for (Fact fact = kFirstName; fact < kFacts; ++fact) {
    if (NodeOf(fact) != recall->node || (PartOf(fact) & recall->parts) == 0) continue;
    waits |= client.asking[fact] > 0;
    if (IsName(fact)) waits |= client.own_busy[fact] > 0;
  }
  if (waits) {
    return AfterAt(client, microseconds(50),
                   [this, &client, number] { TryInvalidate(client, number); });
  }
  Drop(client, *recall);
  Do(client, client.recalls->Invalidated(number));
}

void World::Drop(Client& client, const Recalls::Recall& recall) {
  for (Fact fact = 0; fact < kFacts; ++fact) {
    if (NodeOf(fact) != recall.node || (PartOf(fact) & recall.parts) == 0) continue;
    if (IsName(fact) && !recall.name.empty() && std::to_string(fact) != recall.name) continue;
    client.cache.erase(fact);
  }
}

void World::Acknowledge(Client& client, std::uint64_t number) {
  const std::size_t node = client.recalled[number];
  if (client.behind[node] > 0 && options_.bug != Bug::kHeldBackNothing) {
    return client.held.push_back(number);
  }
  Send([this, session = client.session, number] { OnAcknowledge(session, number); });
}

void World::Freeze() {
  if (!faults_ || !time_.Chance(3)) return;
  Client& client = *clients_[time_.Pick(clients_.size())];
  client.frozen_until = time_.now() + time_.Between(milliseconds(1), milliseconds(250));
}

// Its host has gone, and comes back as another client. The server does not know.
void World::KillClient() {
  Client& client = *clients_[time_.Pick(clients_.size())];
  for (const auto& op : client.open) {
    if (!op->change) continue;
    if (op->early_end) --unfinished_;
    for (const Fact fact : op->facts) {
      histories_[fact].push_back({.write = true, .value = op->number, .begin = op->begin});
    }
  }
  for (const auto& op : client.open) op->answered = true;
  client.open.clear();
  client.session = next_session_++;
  client.recalls = std::make_unique<Recalls>(options_.epochs);
  client.cache.clear();
  client.own_busy.clear();
  client.own_changed.clear();
  client.asking.clear();
  client.write_leases.clear();
  client.behind.clear();
  client.parked.clear();
  client.recalled.clear();
  client.held.clear();
  // Every process of it that had not ended begins again.
  for (unsigned process = 0; process < options_.processes; ++process) {
    if (!client.ended[process]) NextOperation(client, process);
  }
}

}  // namespace rdfs::coherence
