#include "tests/coherence/lock_world.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fs/client/types.h"
#include "tests/coherence/lock_world_parts.h"

namespace rdfs::coherence {
namespace {

using fs::WireError;
using fs::client::OpenFile;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Kind = LockMessage::Kind;
using Model = LocksModel;

constexpr std::size_t kFiles = LockServer::kFiles;
constexpr milliseconds kLease = LockServer::kLease;
constexpr milliseconds kGrace = kLease / 2;

}  // namespace

LockWorld::LockWorld(const LockWorldOptions& options)
    : options_(options), time_(options.seed), faults_(options.faults), histories_(2 * kFiles) {
  server_ = std::make_unique<LockServer>(time_, disk_, options_.bug);
  for (unsigned i = 0; i < options_.clients; ++i) {
    auto client = std::make_unique<Client>();
    client->session = next_session_++;
    client->rate = time_.ClockRate();
    for (std::size_t file = 0; file < kFiles; ++file) {
      client->inodes.push_back(std::make_shared<fs::client::InodeState>(fs::Handle()));
    }
    client->processes.resize(options_.processes);
    for (Process& process : client->processes) process.left = options_.operations;
    unfinished_ += options_.processes;
    clients_.push_back(std::move(client));
  }
}

LockWorld::~LockWorld() {
  for (const auto& client : clients_) client->connection.reset();
}

void LockWorld::Run() {
  for (const auto& client : clients_) {
    client->heard = time_.now();
    Dial(*client);
    Renew(*client);
    for (std::size_t process = 0; process < client->processes.size(); ++process) {
      Start(*client, process);
    }
  }
  const Time end_of_faults = time_.now() + std::chrono::seconds(2);
  const Time end = end_of_faults + std::chrono::seconds(20);
  if (faults_) {
    for (Time at = time_.now(); at < end_of_faults; at += milliseconds(60)) {
      time_.At(at + time_.Between(Time(0), milliseconds(40)), [this] { Freeze(); });
      time_.At(at + time_.Between(Time(0), milliseconds(40)),
               [this] { Break(*clients_[time_.Pick(clients_.size())]); });
    }
    time_.After(time_.Between(milliseconds(20), milliseconds(1500)), [this] { CrashServer(); });
    time_.After(time_.Between(milliseconds(50), milliseconds(900)), [this] { KillClient(); });
  }
  time_.At(end_of_faults, [this] { faults_ = false; });
  while (unfinished_ > 0 && wrong_.empty() && time_.Step(end)) continue;
  RecordDeaths();
}

std::string LockWorld::Verdict() {
  if (!wrong_.empty()) return wrong_;
  for (std::size_t i = 0; i < histories_.size(); ++i) {
    Search<Model> search(histories_[i], {});
    const std::string why = search.WhyNot();
    if (search.undecided()) ++undecided_;
    const std::string kind = i % 2 == 0 ? ", flock: " : ", fcntl: ";
    if (!why.empty()) return "file " + std::to_string(i / 2) + kind + why;
  }
  return {};
}

std::string LockWorld::Stuck() const {
  return unfinished_ == 0 ? "" : std::to_string(unfinished_) + " processes have not ended";
}

void LockWorld::AfterAt(Client& client, Time delay, std::function<void()> what) {
  time_.After(delay, [this, &client, session = client.session, what = std::move(what)]() mutable {
    if (client.session != session) return;
    if (time_.now() < client.frozen_until) {
      const Time left = client.frozen_until - time_.now();
      return AfterAt(client, left + Time(time_.Pick(1000)), std::move(what));
    }
    what();
  });
}

LockWorld::Time LockWorld::Latency() {
  const bool slow = faults_ && time_.Chance(12);
  return slow ? time_.Between(milliseconds(1), milliseconds(40))
              : time_.Between(microseconds(5), microseconds(400));
}

// ---- Clients

LockWorld::CallPtr LockWorld::Submit(Client& client, LockMessage message, std::size_t process) {
  auto call = std::make_shared<Call>();
  call->message = message;
  call->message.sequence = client.next_sequence++;
  call->process = process;
  if (process != kNobody) call->owner = client.processes[process].owner;
  call->begin = time_.now();
  client.calls[call->message.sequence] = call;
  const bool reclaim = message.kind == Kind::kReclaim || message.kind == Kind::kReopen;
  if (client.connection != nullptr && (client.connection->ready || reclaim)) {
    Transmit(client, call);
  }
  return call;
}

// In order, as a connection does.
void LockWorld::Transmit(Client& client, const CallPtr& call) {
  const std::shared_ptr<Connection> connection = client.connection;
  call->sent = time_.now();
  if (std::exchange(call->sent_to, connection->session) != connection->session) {
    call->first_sent = time_.now();
  }
  call->message.acknowledged = call->message.sequence - 1;
  for (const auto& [sequence, other] : client.calls) {
    if (other->message.wait) continue;
    call->message.acknowledged = std::min(call->message.acknowledged, sequence - 1);
    break;
  }
  connection->up_free = std::max(time_.now() + Latency(), connection->up_free + Time(1));
  time_.At(connection->up_free, [this, connection, message = call->message] {
    if (connection->lane != nullptr) server_->Handle(connection->lane, message);
  });
}

void LockWorld::OnAnswer(Client& client, std::uint64_t sequence, WireError error) {
  const auto found = client.calls.find(sequence);
  if (found == client.calls.end()) return;
  const CallPtr call = found->second;
  const std::shared_ptr<Connection> connection = client.connection;
  if (connection->ready) client.heard = std::max(client.heard, call->sent);
  if (error == WireError::kGrace) {
    return AfterAt(client, milliseconds(5), [this, &client, call, connection] {
      const bool waits = client.calls.contains(call->message.sequence);
      if (waits && client.connection == connection) Transmit(client, call);
    });
  }
  if (error == WireError::kWrongEpoch) {
    AskForLocks(client, call->process, call->message.file, false);
    return Transmit(client, call);
  }
  client.calls.erase(found);
  switch (call->message.kind) {
    case Kind::kSet:
      return OnSet(client, call, error);
    case Kind::kRelease:
      return OnExited(client, call->process, call);
    case Kind::kReclaim:
      ++counts_.reclaimed;
      if (error != WireError::kOk) LoseFile(client, call->process, call->message.file);
      [[fallthrough]];
    case Kind::kReopen:
      if (call->on_the_way && --client.reclaims == 0) GoOn(client);
      return;
    case Kind::kGraceEnd:
    case Kind::kInterrupt:
    case Kind::kRenew:
      return;
  }
}

void LockWorld::Dial(Client& client) {
  AfterAt(client, time_.Between(milliseconds(1), milliseconds(8)), [this, &client] {
    if (client.connection != nullptr) return;
    if (server_ == nullptr) return Dial(client);
    auto connection = std::make_shared<Connection>();
    client.connection = connection;
    ++counts_.lanes;
    const auto answer = [this, &client, weak = std::weak_ptr(connection)](std::uint64_t sequence,
                                                                          WireError error) {
      const auto to = weak.lock();
      if (to == nullptr) return;
      to->down_free = std::max(time_.now() + Latency(), to->down_free + Time(1));
      time_.At(to->down_free, [this, &client, to, sequence, error] {
        to->inbox.emplace_back(sequence, error);
        Read(client, to);
      });
    };
    LockServer::Welcome welcome = server_->Admit(client.session, answer);
    connection->session = welcome.lane->session();
    connection->lane = std::exchange(welcome.lane, nullptr);
    connections_.push_back(connection);
    AfterAt(client, Latency(), [this, &client, connection, welcome] {
      if (client.connection == connection) OnWelcome(client, welcome);
    });
  });
}

// In order, and not while it is frozen.
void LockWorld::Read(Client& client, const std::shared_ptr<Connection>& connection) {
  if (time_.now() < client.frozen_until) {
    return time_.At(client.frozen_until, [this, &client, connection] { Read(client, connection); });
  }
  while (!connection->inbox.empty() && client.connection == connection) {
    const auto [sequence, error] = connection->inbox.front();
    connection->inbox.pop_front();
    sequence == 0 ? Break(client) : OnAnswer(client, sequence, error);
  }
}

void LockWorld::OnWelcome(Client& client, const LockServer::Welcome& welcome) {
  client.epoch = welcome.epoch;
  std::erase_if(client.calls, [](const auto& entry) {
    const Kind kind = entry.second->message.kind;
    return kind == Kind::kReopen || kind == Kind::kReclaim || kind == Kind::kGraceEnd ||
           kind == Kind::kRenew;
  });
  client.reclaims = 0;
  for (std::size_t number = 0; welcome.given_up && number < client.processes.size(); ++number) {
    const Process& process = client.processes[number];
    for (std::size_t file = 0; file < kFiles; ++file) {
      const auto& open = process.opens[file];
      if (!open->inode().locks.Of(open.get()).empty()) LoseFile(client, number, file);
    }
  }
  const bool asks = client.has_back != client.epoch;
  if (std::exchange(client.known, client.connection->session) != client.connection->session) {
    RecordGivenUp(client);
  }
  for (std::size_t number = 0; asks && number < client.processes.size(); ++number) {
    for (std::size_t file = 0; file < kFiles; ++file) AskForLocks(client, number, file, true);
  }
  if (client.reclaims == 0) GoOn(client);
}

// The file first, as every file that was open.
void LockWorld::AskForLocks(Client& client, std::size_t number, std::size_t file, bool on_the_way) {
  const Process& process = client.processes[number];
  if (process.fresh[file] || process.lost[file] || process.releases > 0) return;
  const auto& open = process.opens[file];
  LockMessage message{.kind = Kind::kReopen, .file = file};
  message.lock.open = open->server_open();
  std::vector<LockMessage> messages{message};
  message.kind = Kind::kReclaim;
  const bool forgets = options_.bug == LockBug::kNotReclaimed;
  for (const Held& held : open->inode().locks.Of(open.get())) {
    if (forgets) break;
    message.lock = {
        .owner = {.session = client.session, .owner = held.lock.owner, .flock = held.flock},
        .type = held.lock.type,
        .start = held.lock.start,
        .end = held.lock.end,
        .open = open->server_open()};
    messages.push_back(message);
  }
  for (const LockMessage& one : messages) {
    Submit(client, one, number)->on_the_way = on_the_way;
    if (on_the_way) ++client.reclaims;
  }
}

// The client has back what it had.
void LockWorld::GoOn(Client& client) {
  client.has_back = client.epoch;
  client.connection->ready = true;
  Submit(client, {.kind = Kind::kGraceEnd}, kNobody);
  const std::map<std::uint64_t, CallPtr> calls = client.calls;
  for (const auto& [sequence, call] : calls) {
    if (call->message.wait && options_.bug == LockBug::kNotAskedAgain) continue;
    if (call->message.kind == Kind::kGraceEnd) continue;
    const bool elsewhere = call->sent_to != nullptr && call->sent_to != client.connection->session;
    if (call->message.kind == Kind::kSet && elsewhere) RecordForgotten(client, *call);
    Transmit(client, call);
  }
}

// Read for write, asked when the server went: whether one of these or of others' readers comes back
// last, it is refused (ARCHITECTURE.md, "Known defects").
bool LockWorld::SomebodyDowngrades(std::size_t file) const {
  const auto downgrades = [file](const Process& process) {
    if (process.call == nullptr || process.call->message.kind != Kind::kSet) return false;
    const LockMessage& message = process.call->message;
    if (message.file != file || message.lock.owner.flock) return false;
    if (message.lock.type != fs::LockType::kRead) return false;
    const OpenFile& open = *process.opens[file];
    return std::ranges::any_of(open.inode().locks.Of(&open), [&](const auto& held) {
      return !held.flock && held.lock.type == fs::LockType::kWrite &&
             held.lock.start <= message.lock.end && held.lock.end >= message.lock.start;
    });
  };
  return std::ranges::any_of(clients_, [&](const auto& client) {
    return std::ranges::any_of(client->processes, downgrades);
  });
}

// Its process is told EIO at whatever it does with the file, and gives up.
void LockWorld::LoseFile(Client& client, std::size_t number, std::size_t file) {
  Process& process = client.processes[number];
  OpenFile& open = *process.opens[file];
  if (process.lost[file]) return;
  ++counts_.lost;
  const bool downgraded = SomebodyDowngrades(file);
  open.inode().locks.DropOpen(&open);
  const Time promise = Promise(client, CrashedWithin(client.heard, time_.now()));
  if (promise > time_.now() && !downgraded) wrong_ = "a lock was lost within its lease";
  process.lost[file] = std::min(promise, time_.now());
  process.dying = true;
  if (process.releases > 0) return;
  if (process.call == nullptr) return;  // at its next step
  if (process.call->message.file != file) return Interrupt(client, process.call);
  RecordUnsure(*process.call);
  client.calls.erase(process.call->message.sequence);
  process.call = nullptr;
  Next(client, number);
}

void LockWorld::Renew(Client& client) {
  AfterAt(client, kLease / 5, [this, &client] {
    if (client.connection != nullptr && client.connection->ready) {
      Submit(client, {.kind = Kind::kRenew}, kNobody);
    }
    Renew(client);
  });
}

bool LockWorld::CrashedWithin(Time from, Time to) const {
  return std::ranges::any_of(crashes_, [&](Time at) { return at >= from && at <= to; });
}

// A server that was started anew waits for a grace period only.
LockWorld::Time LockWorld::Promise(const Client& client, bool crashed) const {
  const auto length = fs::client::LeaseLength(
      static_cast<std::uint32_t>(crashed ? kGrace.count() : kLease.count()));
  // The server allows its own clock nothing where it counts the lease of a session.
  const auto real = static_cast<double>(length.count()) * 0.99 / client.rate;
  return client.heard + Time(static_cast<std::int64_t>(real));
}

// ---- What goes wrong

void LockWorld::Break(Client& client) {
  const std::shared_ptr<Connection> connection = std::exchange(client.connection, nullptr);
  if (connection == nullptr) return;
  if (connection->lane != nullptr) {
    connection->lane = nullptr;
    server_->LaneGone(client.session);
  }
  Dial(client);
}

void LockWorld::Freeze() {
  if (!faults_ || !time_.Chance(3)) return;
  Client& client = *clients_[time_.Pick(clients_.size())];
  client.frozen_until = time_.now() + time_.Between(milliseconds(1), milliseconds(400));
}

// Its host has gone, and comes back as another client. The server does not know.
void LockWorld::KillClient() {
  Client& client = *clients_[time_.Pick(clients_.size())];
  for (const auto& [sequence, call] : client.calls) {
    if (call->message.kind == Kind::kSet) RecordUnsure(*call);
  }
  for (const Process& process : client.processes) {
    if (process.ended) continue;
    for (std::size_t history = 0; history < histories_.size(); ++history) {
      // What it was giving back already may be somebody else's.
      std::optional<Time> free = process.lost[history / 2];
      if (process.releases > 0 && !free) free = process.exited;
      deaths_.push_back({.heard = client.heard,
                         .full = free.value_or(Promise(client, false)),
                         .half = free.value_or(Promise(client, true)),
                         .history = history,
                         .owner = process.owner});
    }
  }
  Break(client);
  client.session = next_session_++;
  client.calls.clear();
  client.reclaims = 0;
  client.epoch = client.has_back = 0;
  client.next_sequence = 1;
  client.frozen_until = {};
  client.heard = time_.now();
  for (auto& inode : client.inodes) {
    inode = std::make_shared<fs::client::InodeState>(fs::Handle());
  }
  Dial(client);
  Renew(client);
  for (std::size_t number = 0; number < client.processes.size(); ++number) {
    Process& process = client.processes[number];
    process.releases = 0;
    process.call = nullptr;
    if (!process.ended) Start(client, number);
  }
}

void LockWorld::RecordDeaths() {
  for (const Death& death : deaths_) {
    const bool crashed = CrashedWithin(death.heard, death.full);
    histories_[death.history].push_back({.call = {.kind = Model::Kind::kLost, .owner = death.owner},
                                         .begin = Stamp(crashed ? death.half : death.full)});
  }
}

void LockWorld::CrashServer() {
  if (server_ == nullptr || !faults_) return;
  ++counts_.restarts;
  crashes_.push_back(time_.now());
  for (const auto& weak : std::exchange(connections_, {})) {
    if (const auto connection = weak.lock()) connection->lane = nullptr;
  }
  for (const auto& client : clients_) {
    const std::shared_ptr<Connection> connection = client->connection;
    if (connection == nullptr) continue;
    AfterAt(*client, Latency(), [this, client = client.get(), connection] {
      if (client->connection == connection) Break(*client);
    });
  }
  server_.reset();
  time_.After(time_.Between(milliseconds(1), milliseconds(30)),
              [this] { server_ = std::make_unique<LockServer>(time_, disk_, options_.bug); });
}

}  // namespace rdfs::coherence
