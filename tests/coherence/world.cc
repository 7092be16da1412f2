#include "tests/coherence/world.h"

#include <algorithm>
#include <array>

#include "fs/client/types.h"
#include "fs/protocol.h"

namespace rdfs::coherence {
namespace {

using fs::client::Recalls;
using server::LeaseTable;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Two directories of three names and three files. Facts: attributes of each node, then the names,
// then the contents.
constexpr std::size_t kDirectories = 2, kNames = 3, kFiles = 3;
constexpr std::size_t kNodes = kDirectories + kFiles;
constexpr std::size_t kFirstName = kNodes;
constexpr std::size_t kFirstContent = kFirstName + kDirectories * kNames;
constexpr std::size_t kFacts = kFirstContent + kFiles;

constexpr milliseconds kLease{100};
constexpr milliseconds kTravel{60};  // LeaseTable::Options::write_travel
constexpr std::chrono::nanoseconds kResend = milliseconds(15);
// Longer than any lease as the server counts it.
constexpr std::chrono::nanoseconds kQuiet = milliseconds(170);

std::size_t NodeOf(std::size_t fact) {
  if (fact < kFirstName) return fact;
  if (fact < kFirstContent) return (fact - kFirstName) / kNames;
  return kDirectories + (fact - kFirstContent);
}
bool IsFile(std::size_t node) { return node >= kDirectories; }
bool IsName(std::size_t fact) { return fact >= kFirstName && fact < kFirstContent; }
std::size_t NameFact(std::size_t directory, std::size_t name) {
  return kFirstName + directory * kNames + name;
}
std::uint32_t PartOf(std::size_t fact) {
  if (fact < kFirstName) return fs::kRecallAttributes;
  return IsName(fact) ? fs::kRecallName : fs::kRecallContent;
}
server::InodeKey KeyOf(std::size_t node) { return {.device = 1, .inode = node + 1}; }

}  // namespace

struct World::Op {
  std::uint64_t number = 0;
  unsigned process = 0;
  std::uint64_t begin = 0;
  bool change = false;
  std::vector<Fact> facts;
  bool answered = false;
  // A question's, from before it was first sent.
  Recalls::Stamp asked_stamp = 0;
  TimePoint asked{};
  std::uint64_t own_changes = 0;
  std::size_t client = 0;
  std::uint64_t session = 0;
  // A write whose process was told that it is done, and until when that was allowed.
  std::optional<std::uint64_t> early_end{};
  TimePoint early_until{};
  LeaseTable::Stamp since = 0;  // the server's, when it came
};

struct World::Client {
  std::size_t index = 0;
  std::uint64_t session = 0;
  double rate = 1;  // of its clock
  Time frozen_until{};
  std::unique_ptr<Recalls> recalls;
  struct Cached {
    std::uint64_t value = 0;
    TimePoint until{};
  };
  std::map<Fact, Cached> cache;               // the kernel's
  std::map<Fact, unsigned> own_busy;          // our own changes under way, by what they touch
  std::map<Fact, std::uint64_t> own_changed;  // when the last one began or ended
  std::map<Fact, unsigned> asking;            // questions under way
  std::uint64_t own_changes = 0;
  std::vector<unsigned> left;  // operations of each process
  std::vector<bool> ended;     // processes
  std::set<std::shared_ptr<Op>> open;
  std::map<std::size_t, TimePoint> write_leases;  // by node
  std::optional<std::size_t> written;             // the file, last
  std::map<std::size_t, unsigned> behind;         // writes that ended early, by node
  std::vector<std::shared_ptr<Op>> parked;        // behind those
  std::map<std::uint64_t, std::size_t> recalled;  // the node of each recall
  std::vector<std::uint64_t> held;                // acknowledgements

  [[nodiscard]] TimePoint Local(Time now) const {
    return TimePoint(Time(static_cast<std::int64_t>(static_cast<double>(now.count()) * rate)));
  }
};

struct World::Server {
  explicit Server(const LeaseTable::Options& options) : table(options) {}
  LeaseTable table;
  double rate = 1;
  std::map<std::uint64_t, std::shared_ptr<Op>> waiting;  // by change
  std::set<std::uint64_t> begun;                         // requests
  std::set<std::uint64_t> looking;                       // questions that wait
  std::map<std::uint64_t, fs::client::Recalls::Recall> recalls;
  std::optional<Time> watch;
  [[nodiscard]] TimePoint Local(Time now) const {
    return TimePoint(Time(static_cast<std::int64_t>(static_cast<double>(now.count()) * rate)));
  }
};

World::World(const WorldOptions& options)
    : options_(options),
      random_(options.seed),
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
    if (faults_) client->rate = 1 + (static_cast<double>(Pick(19)) - 9) / 1000;
    unfinished_ += options_.processes;
    clients_.push_back(std::move(client));
  }
  if (faults_) server_->rate = 1 + (static_cast<double>(Pick(19)) - 9) / 1000;
}

World::~World() = default;

LeaseTable::Options World::NewTable() const {
  LeaseTable::Options options;
  if (options_.bug != Bug::kForgottenOnTheWay) options.write_travel = kTravel;
  return options;
}

void World::At(Time when, std::function<void()> what) {
  queue_.push({.when = when, .order = ++events_, .what = std::move(what)});
}

World::Time World::Between(Time low, Time high) {
  return low +
         Time(static_cast<std::int64_t>(Pick(static_cast<std::uint64_t>((high - low).count()))));
}

void World::AfterAt(Client& client, Time delay, std::function<void()> what) {
  After(delay, [this, &client, session = client.session, what = std::move(what)]() mutable {
    if (client.session != session) return;
    if (now_ < client.frozen_until) {
      return AfterAt(client, client.frozen_until - now_ + Time(Pick(1000)), std::move(what));
    }
    what();
  });
}

void World::Send(std::function<void()> deliver) {
  if (faults_ && Chance(options_.lost_one_in)) return;
  const bool slow = faults_ && Chance(options_.slow_one_in);
  After(slow ? Between(milliseconds(1), milliseconds(60))
             : Between(microseconds(5), microseconds(400)),
        std::move(deliver));
}

void World::Run() {
  for (const auto& client : clients_) {
    for (unsigned process = 0; process < options_.processes; ++process) {
      NextOperation(*client, process);
    }
  }
  const Time end_of_faults = now_ + std::chrono::seconds(2);
  const Time end = end_of_faults + std::chrono::seconds(20);
  if (faults_) {
    for (Time at = now_; at < end_of_faults; at += milliseconds(40)) {
      At(at + Time(Pick(40'000'000)), [this] { Freeze(); });
    }
    At(now_ + Between(milliseconds(50), milliseconds(900)), [this] { CrashServer(); });
    At(now_ + Between(milliseconds(50), milliseconds(900)), [this] { KillClient(); });
  }
  At(end_of_faults, [this] { faults_ = false; });
  while (!queue_.empty() && now_ < end && unfinished_ > 0) {
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.when;
    event.what();
  }
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
          Between(microseconds(1), Chance(10) ? Time(milliseconds(30)) : Time(microseconds(500))),
          [this, &client, process] {
            // Who writes to a file often goes on with it.
            const bool goes_on = client.written && Chance(2);
            if (!goes_on && Pick(4) != 0) {
              StartRead(client, process);
            } else {
              StartChange(client, process);
            }
          });
}

void World::StartRead(Client& client, unsigned process) {
  const Fact fact = Pick(kFacts);
  const auto cached = client.cache.find(fact);
  if (cached != client.cache.end() && client.Local(now_) < cached->second.until) {
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
  op->asked = client.Local(now_);
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
  return lease != client.write_leases.end() && client.Local(now_) < lease->second;
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
  const std::size_t directory = Pick(kDirectories), picked = kDirectories + Pick(kFiles);
  const std::size_t file = client.written && Chance(2) ? *client.written : picked;
  client.written.reset();
  const std::uint64_t what = Pick(4);
  if (what < 2 && Chance(2)) client.written = file;
  switch (what) {
    case 0:
      op->facts = {file};
      break;
    case 1:
      op->facts = {file, kFirstContent + file - kDirectories};
      break;
    case 2:
      op->facts = {directory, NameFact(directory, Pick(kNames))};
      break;
    default: {
      op->facts = {directory, NameFact(directory, Pick(kNames))};
      const std::size_t other = 1 - directory;
      op->facts.insert(op->facts.end(), {other, NameFact(other, Pick(kNames))});
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
  op->asked = client.Local(now_);
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
  const TimePoint from = options_.bug == Bug::kLeaseFromTheAnswer ? client.Local(now_) : op->asked;
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
    const bool in_time = client.Local(now_) < op->early_until + kTravel - kTravel / 50;
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
        AfterAt(client, Between(microseconds(5), microseconds(200)),
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
  if (!faults_ || !Chance(3)) return;
  Client& client = *clients_[Pick(clients_.size())];
  client.frozen_until = now_ + Between(milliseconds(1), milliseconds(250));
}

// Its host has gone, and comes back as another client. The server does not know.
void World::KillClient() {
  Client& client = *clients_[Pick(clients_.size())];
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

// ---- The server

void World::OnAsk(Client& client, const std::shared_ptr<Op>& op) {
  if (op->session != client.session) return;
  if (!MustAskFirst(*op)) return Look(client, op, 0);
  if (!server_->looking.insert(op->number).second) return;
  const LeaseTable::Target target{.inode = KeyOf(NodeOf(op->facts[0])), .whole = true};
  const LeaseTable::Begun begun = server_->table.Begin(
      op->session, {&target, 1}, server_->Local(now_), LeaseTable::Purpose::kLook);
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
  const TimePoint now = server_->Local(now_);
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
  After(Between(microseconds(1), microseconds(300)),
        [this, &client, op, fact, since, value, change, life = life_] {
          if (life_ != life) return;
          if (change != 0) {
            server_->table.End(change);
            server_->looking.erase(op->number);
          }
          if (op->session != client.session) return;
          bool granted = server_->table.Grant(KeyOf(NodeOf(fact)), op->session, since,
                                              server_->Local(now_), kLease);
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
  const bool whole = Chance(4);
  for (LeaseTable::Target& target : targets) target.whole = whole;
  LeaseTable::Begun begun = server_->table.Begin(
      op->session, targets, server_->Local(now_),
      op->early_end ? LeaseTable::Purpose::kLeasedWrite : LeaseTable::Purpose::kChange);
  if (options_.bug == Bug::kRecallSkipped && Chance(8))
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
      if (to->session != session || (now_ < to->frozen_until && Chance(2))) return;
      AfterAt(*to, Time(1), [this, to, what] { OnRecall(*to, what); });
    });
  }
  After(kResend, [this, recall, op, life = life_] {
    if (life_ == life) SendRecall(recall, op);
  });
}

void World::OnAcknowledge(std::uint64_t session, std::uint64_t number) {
  if (server_) Ready(server_->table.Acknowledge(session, number, server_->Local(now_)));
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
  After(Between(microseconds(1), microseconds(200)), [this, op, change, life = life_] {
    if (life_ != life) return;
    for (const Fact fact : op->facts) values_[fact] = op->number;
    applied_.insert(op->number);
    After(Between(microseconds(1), microseconds(100)), [this, op, change, life] {
      if (life_ != life) return;
      const std::size_t node = NodeOf(op->facts[0]);
      const bool leased =
          IsFile(node) && server_->table.GrantWrites(KeyOf(node), op->session, op->since,
                                                     server_->Local(now_), options_.write_lease);
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
  const auto behind = *next - server_->Local(now_);
  server_->watch = now_ + std::max<Time>(behind, Time(0)) + Time(behind / 50) + Time(1000);
  At(*server_->watch, [this, life = life_] {
    if (life_ != life) return;
    server_->watch.reset();
    Ready(server_->table.Expire(server_->Local(now_)));
    WatchExpiry();
  });
}

void World::CrashServer() {
  if (!server_) return;
  expired_waits_ += server_->table.expired_waits();
  const double rate = server_->rate;
  server_.reset();
  ++life_;
  After(Between(milliseconds(1), milliseconds(30)), [this, rate] {
    LeaseTable::Options options = NewTable();
    options.first_number = std::uint64_t{1} << 40U;
    server_ = std::make_unique<Server>(options);
    server_->rate = rate;
    if (options_.bug == Bug::kForgottenLeases) return;
    options.quiet_until = server_->Local(now_) + kQuiet;
    server_ = std::make_unique<Server>(options);
    server_->rate = rate;
  });
}

}  // namespace rdfs::coherence
