// The processes of a world of locks: what they ask for, what they have, and what is noted of that.
#include <algorithm>
#include <cerrno>

#include "tests/coherence/lock_world.h"
#include "tests/coherence/lock_world_parts.h"

namespace rdfs::coherence {
namespace {

using fs::LockType;
using fs::WireError;
using fs::client::OpenFile;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Kind = LockMessage::Kind;
using Model = LocksModel;

constexpr std::size_t kFiles = LockServer::kFiles;
constexpr std::uint64_t kBytes = 3;  // of a file that ranges are of

fs::client::Lock ToClient(const server::Lock& lock) {
  return {.owner = lock.owner.owner, .start = lock.start, .end = lock.end, .type = lock.type};
}

}  // namespace

void LockWorld::Start(Client& client, std::size_t number) {
  Process& process = client.processes[number];
  process.owner = next_owner_++;
  process.dying = false;
  process.opens.clear();
  process.lost.assign(kFiles, std::nullopt);
  process.fresh.assign(kFiles, true);
  for (std::size_t file = 0; file < kFiles; ++file) {
    const auto open =
        std::make_shared<OpenFile>(client.inodes[file], fs::kOpenRead | fs::kOpenWrite, false);
    open->set_server_open(next_open_++);
    process.opens.push_back(open);
  }
  Next(client, number);
}

std::vector<LockWorld::Held> LockWorld::HeldOf(const Process& process) const {
  std::vector<Held> held;
  for (const auto& open : process.opens) {
    const auto some = open->inode().locks.Of(open.get());
    held.insert(held.end(), some.begin(), some.end());
  }
  return held;
}

void LockWorld::Next(Client& client, std::size_t number) {
  const Time pause = time_.Chance(10) ? Time(milliseconds(30)) : Time(microseconds(500));
  AfterAt(client, time_.Between(microseconds(1), pause), [this, &client, number] {
    Process& process = client.processes[number];
    if (process.call != nullptr || process.releases > 0) return;  // ended meanwhile
    if (process.dying || process.left == 0 || time_.Chance(25)) return Exit(client, number);
    --process.left;
    const std::vector<Held> held = HeldOf(process);
    if (!held.empty() && time_.Chance(2)) {
      Unlock(client, number, held[time_.Pick(held.size())]);
    } else {
      Lock(client, number);
    }
  });
}

void LockWorld::Lock(Client& client, std::size_t number) {
  Process& process = client.processes[number];
  const std::vector<Held> held = HeldOf(process);
  const bool has_flock = std::ranges::any_of(held, [](const Held& one) { return one.flock; });
  const bool flock = time_.Chance(2);
  LockMessage message{.kind = Kind::kSet, .file = time_.Pick(kFiles)};
  // Nobody looks for circles of those who wait for a flock.
  message.wait = time_.Chance(2) && !has_flock && !(flock && !held.empty());
  message.lock.owner.flock = flock;
  message.lock.type = time_.Chance(2) ? LockType::kWrite : LockType::kRead;
  message.lock.start = flock ? 0 : time_.Pick(kBytes);
  message.lock.end = flock ? server::LockTable::kEnd
                           : message.lock.start + time_.Pick(kBytes - message.lock.start);
  Ask(client, number, message);
  if (message.wait && time_.Chance(6)) {
    AfterAt(client, time_.Between(milliseconds(1), milliseconds(60)),
            [this, &client, call = process.call] { Interrupt(client, call); });
  }
}

void LockWorld::Unlock(Client& client, std::size_t number, const Held& held) {
  const auto& opens = client.processes[number].opens;
  const auto of = [&](const auto& open) { return open.get() == held.open; };
  LockMessage message{.kind = Kind::kSet};
  message.file = static_cast<std::size_t>(std::ranges::find_if(opens, of) - opens.begin());
  message.lock.owner.flock = held.flock;
  message.lock.type = LockType::kUnlock;
  message.lock.start = held.lock.start;
  message.lock.end = held.lock.end;
  if (!held.flock && time_.Chance(2)) message.lock.end = message.lock.start;
  Ask(client, number, message);
}

void LockWorld::Ask(Client& client, std::size_t number, LockMessage message) {
  Process& process = client.processes[number];
  message.lock.owner.session = client.session;
  message.lock.owner.owner = process.owner;
  OpenFile& open = *process.opens[message.file];
  message.lock.open = open.server_open();
  message.fresh = process.fresh[message.file];
  open.inode().locks.GiveUp({&open, message.lock.owner.flock, ToClient(message.lock)});
  process.call = Submit(client, message, number);
  if (message.lock.type == LockType::kUnlock) process.call->begin = GivenUpSince(client);
}

// Since when what is given up now may be somebody else's: before the client has asked for it again
// it may have lost it already.
LockWorld::Time LockWorld::GivenUpSince(const Client& client) const {
  if (client.has_back == client.epoch) return time_.now();
  return std::min(time_.now(), Promise(client, CrashedWithin(client.heard, time_.now())));
}

void LockWorld::Interrupt(Client& client, const CallPtr& call) {
  if (!client.calls.contains(call->message.sequence)) return;
  ++counts_.interrupted;
  Submit(client, {.kind = Kind::kInterrupt, .target = call->message.sequence}, kNobody);
}

// Its kernel closes its files.
void LockWorld::Exit(Client& client, std::size_t number) {
  Process& process = client.processes[number];
  process.exited = GivenUpSince(client);
  for (std::size_t file = 0; file < kFiles; ++file) {
    OpenFile& open = *process.opens[file];
    open.inode().locks.DropOwner(process.owner);
    open.inode().locks.DropOpen(&open);
    LockMessage message{.kind = Kind::kRelease, .file = file};
    message.lock.owner = {.session = client.session, .owner = process.owner};
    message.lock.open = open.server_open();
    ++process.releases;
    Submit(client, message, number);
  }
}

void LockWorld::OnExited(Client& client, std::size_t number, const CallPtr& call) {
  Process& process = client.processes[number];
  const std::size_t file = call->message.file;
  for (const bool flock : {true, false}) {
    const Time since = process.lost[file].value_or(process.exited);
    histories_[HistoryOf(file, flock)].push_back(
        {.call = {.kind = Model::Kind::kLost, .owner = process.owner},
         .begin = Stamp(since),
         .end = Stamp(time_.now())});
  }
  if (--process.releases > 0) return;
  if (process.left == 0) {
    process.ended = true;
    --unfinished_;
  } else {
    Start(client, number);
  }
}

void LockWorld::OnSet(Client& client, const CallPtr& call, WireError error) {
  Process& process = client.processes[call->process];
  const server::Lock& lock = call->message.lock;
  const bool flock = lock.owner.flock;
  process.call = nullptr;
  process.fresh[call->message.file] = false;
  if (error == WireError::kOk) {
    const auto& open = process.opens[call->message.file];
    open->inode().locks.Apply({open.get(), flock, ToClient(lock)});
    const bool unlock = lock.type == LockType::kUnlock;
    Record(*call, unlock ? Model::Kind::kUnlock : Model::Kind::kGranted, Stamp(time_.now()));
    if (!unlock) ++counts_.granted;
    if (call->message.wait) ++counts_.waited;
  } else if (fs::ToErrno(error) == EAGAIN && !call->message.wait) {
    Record(*call, Model::Kind::kRefused, Stamp(time_.now()));
    ++counts_.refused;
  } else if (fs::ToErrno(error) == EDEADLK && call->message.wait && !flock) {
    ++counts_.deadlocks;
  } else if (fs::ToErrno(error) != EINTR || !call->message.wait) {
    wrong_ = "a lock is answered with errno " + std::to_string(fs::ToErrno(error));
  }
  Next(client, call->process);
}

void LockWorld::Record(const Call& call, Model::Kind kind, std::uint64_t end, bool sure) {
  const server::Lock& lock = call.message.lock;
  const bool flock = lock.owner.flock;
  histories_[HistoryOf(call.message.file, flock)].push_back(
      {.call = {.kind = kind,
                .owner = call.owner,
                .exclusive = lock.type == LockType::kWrite,
                .flock = flock,
                .start = lock.start,
                .end = flock ? 0 : lock.end},
       .begin = Stamp(call.begin),
       .end = end,
       .sure = sure});
}

// One that nobody will answer: it may have happened, or still happen.
void LockWorld::RecordUnsure(const Call& call) {
  constexpr std::uint64_t kNever = Timed<Model::Call>::kNever;
  if (call.message.lock.type == LockType::kUnlock) {
    return Record(call, Model::Kind::kUnlock, kNever);
  }
  Record(call, Model::Kind::kGranted, kNever);
  if (call.message.lock.owner.flock) Record(call, Model::Kind::kRefused, kNever);
}

// In another session the client does not ask for what its processes are giving up. They may have
// lost it already, when the session before was over.
void LockWorld::RecordGivenUp(Client& client) {
  const Time lost = Promise(client, CrashedWithin(client.heard, time_.now()));
  for (const auto& [sequence, call] : client.calls) {
    if (call->message.kind != Kind::kSet) continue;
    const server::Lock& lock = call->message.lock;
    if (!lock.owner.flock && lock.type != LockType::kUnlock) continue;
    Call given_up = *call;
    given_up.begin = std::min(call->begin, lost);
    Record(given_up, Model::Kind::kUnlock, Stamp(time_.now()), false);
  }
  for (Process& process : client.processes) {
    if (process.releases > 0) process.exited = std::min(process.exited, lost);
  }
}

// One that is asked again: what was done of it before, and nobody was told, may be gone with a
// server or a session since, and then the owner has what it had before.
void LockWorld::RecordForgotten(const Client& client, const Call& call) {
  const std::uint64_t now = Stamp(time_.now());
  const bool flock = call.message.lock.owner.flock;
  if (call.message.lock.type == LockType::kUnlock) return;
  Call before = call;
  before.begin = call.first_sent;
  Record(before, Model::Kind::kGranted, now, false);
  Record(before, Model::Kind::kUnlock, now);
  for (const Held& held : HeldOf(client.processes[call.process])) {
    if (held.flock != flock ||
        held.open != client.processes[call.process].opens[call.message.file].get())
      continue;
    Call had = before;
    had.message.lock.type = held.lock.type;
    had.message.lock.start = held.lock.start;
    had.message.lock.end = held.lock.end;
    Record(had, Model::Kind::kGranted, now);
  }
}

}  // namespace rdfs::coherence
