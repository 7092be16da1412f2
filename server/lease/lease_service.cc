#include "server/lease/lease_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/loop/lane.h"

namespace rdfs::server {
namespace {

// Behind the moment at which a lease runs out, so that it is out for sure.
constexpr std::chrono::milliseconds kBehind{1};

}  // namespace

bool LeaseChange::Covers(const InodeKey& inode) const {
  return std::find(inodes_.begin(), inodes_.end(), inode) != inodes_.end();
}

void LeaseChange::End() {
  if (service_ == nullptr) return;
  std::exchange(service_, nullptr)->End(numbers_);
  numbers_.clear();
  inodes_.clear();
  anything_ = false;
}

void LeaseService::FollowAnother(std::optional<std::set<std::uint64_t>> sessions) {
  const std::chrono::milliseconds longest =
      std::max(lengths_.lease + kWriteTravel, lengths_.watched_lease);
  const std::lock_guard lock(mutex_);
  table_.BeQuietUntil(clock_.Now() + longest + longest / 50 + kBehind, std::move(sessions));
}

LeaseTable::Stamp LeaseService::stamp() {
  const std::lock_guard lock(mutex_);
  return table_.stamp();
}

std::uint32_t LeaseService::Grant(const InodeKey& inode, std::uint64_t session,
                                  LeaseTable::Stamp since, bool watched) {
  const TimePoint now = clock_.Now();
  const std::lock_guard lock(mutex_);
  const bool longer = watched && table_.HasPlenty(session);
  const std::chrono::milliseconds lease = longer ? lengths_.watched_lease : lengths_.lease;
  const bool granted = table_.Grant(inode, session, since, now, lease);
  return granted ? static_cast<std::uint32_t>(lease.count()) : 0;
}

std::uint32_t LeaseService::GrantWrites(const InodeKey& inode, std::uint64_t session,
                                        LeaseTable::Stamp since) {
  const TimePoint now = clock_.Now();
  const std::lock_guard lock(mutex_);
  const bool granted = table_.GrantWrites(inode, session, since, now, lengths_.lease);
  return granted ? static_cast<std::uint32_t>(lengths_.lease.count()) : 0;
}

void LeaseService::EndWrites(const InodeKey& inode, std::uint64_t session,
                             LeaseTable::Stamp before) {
  const std::lock_guard lock(mutex_);
  table_.EndWrites(inode, session, before);
}

void LeaseService::KeepWrittenByOthers(std::uint64_t session, std::vector<Target>& targets) {
  const TimePoint now = clock_.Now();
  const std::lock_guard lock(mutex_);
  if (table_.WrittenEarlierByAnother(session, now)) return;
  std::erase_if(targets, [&](const Target& target) {
    return !table_.WrittenByAnother(target.inode, session, now);
  });
}

bool LeaseService::WrittenByAnother(const InodeKey& inode, std::uint64_t session) {
  const TimePoint now = clock_.Now();
  const std::lock_guard lock(mutex_);
  return table_.WrittenEarlierByAnother(session, now) ||
         table_.WrittenByAnother(inode, session, now);
}

bool LeaseService::AnyWrittenByAnother(std::uint64_t session) {
  const TimePoint now = clock_.Now();
  const std::lock_guard lock(mutex_);
  return (!IsAloneLocked(session) && table_.AnyWrittenByAnother(session, now)) ||
         table_.WrittenEarlierByAnother(session, now);
}

void LeaseService::ChangedOutside(std::span<const Target> targets) {
  LeaseChange change;  // over at once
  (void)Begin(kNobody, targets, change, [] {});
}

bool LeaseService::IsAlone(std::uint64_t session) {
  const std::lock_guard lock(mutex_);
  return IsAloneLocked(session);
}

bool LeaseService::IsAloneLocked(std::uint64_t session) const {
  return lanes_.size() <= (lanes_.contains(session) ? 1U : 0U);
}

bool LeaseService::Begin(std::uint64_t session, std::span<const Target> targets,
                         LeaseChange& change, std::function<void()> ready,
                         LeaseTable::Purpose purpose) {
  Later later;
  bool at_once = true;
  {
    const std::lock_guard lock(mutex_);
    std::vector<LeaseTable::Target> inodes;
    for (const Target& target : targets) {
      inodes.push_back({.inode = target.inode, .whole = !target.directory});
    }
    const LeaseTable::Begun begun = table_.Begin(session, inodes, clock_.Now(), purpose);
    at_once = begun.ready;
    change.service_ = this;
    change.numbers_.push_back(begun.change);
    change.anything_ |= targets.empty();
    for (const Target& target : targets) change.inodes_.push_back(target.inode);
    for (const LeaseTable::Recall& recall : begun.recalls) {
      recalled_[recall.number] = targets[recall.target];
      SendLocked(recall.number, recall.session, later);
    }
    if (!at_once) {
      waiting_[begun.change] = std::move(ready);
      WatchLocked(later);
    }
  }
  Carry(later);
  return at_once;
}

bool LeaseService::TakeWrites(const FindTarget& find, LeaseChange& change,
                              std::function<void()> ready) {
  constexpr auto kLook = LeaseTable::Purpose::kLook;
  (void)Begin(
      kNobody, {}, change, [] {}, kLook);  // whatever inode is asked about
  std::vector<InodeKey> written;
  {
    const std::lock_guard lock(mutex_);
    written = table_.Written(clock_.Now());
  }
  std::vector<Target> targets;
  for (const InodeKey& inode : written) {
    if (auto target = find(inode)) targets.push_back(*std::move(target));
  }
  return Begin(kNobody, targets, change, std::move(ready), kLook);
}

void LeaseService::End(std::span<const LeaseTable::ChangeNumber> changes) {
  const std::lock_guard lock(mutex_);
  for (const LeaseTable::ChangeNumber change : changes) {
    waiting_.erase(change);
    table_.End(change);
  }
}

void LeaseService::Acknowledge(std::uint64_t session, std::uint64_t recall) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    CollectReadyLocked(table_.Acknowledge(session, recall, clock_.Now()), later);
    if (!table_.IsOutstanding(recall)) recalled_.erase(recall);
  }
  Carry(later);
}

void LeaseService::WroteEarlier(std::uint64_t session) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    CollectReadyLocked(table_.WroteEarlier(session, clock_.Now()), later);
  }
  Carry(later);
}

void LeaseService::ForgetsEarlier(std::uint64_t session) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    CollectReadyLocked(table_.ForgetsEarlier(session, clock_.Now()), later);
  }
  Carry(later);
}

void LeaseService::LaneOpened(const std::shared_ptr<Lane>& lane) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t session = lane->session()->id();
    auto& lanes = lanes_[session];
    std::erase_if(lanes, [](const std::weak_ptr<Lane>& known) { return known.expired(); });
    lanes.push_back(lane);
    for (const LeaseTable::RecallNumber number : table_.Outstanding(session)) {
      SendLocked(number, session, later);
    }
  }
  Carry(later);
}

void LeaseService::LaneClosed(const std::shared_ptr<Lane>& lane) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t session = lane->session()->id();
    const auto lanes = lanes_.find(session);
    if (lanes == lanes_.end()) return;
    std::erase_if(lanes->second, [&](const std::weak_ptr<Lane>& known) {
      return known.expired() || known.lock() == lane;
    });
    // It was attached just as its session ended: nobody else forgets that one.
    if (lanes->second.empty() && lane->session()->ended()) lanes_.erase(lanes);
    for (const LeaseTable::RecallNumber number : table_.Outstanding(session)) {
      SendLocked(number, session, later);
    }
  }
  Carry(later);
}

void LeaseService::SessionEnded(std::uint64_t session) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    for (const LeaseTable::RecallNumber number : table_.Outstanding(session)) {
      recalled_.erase(number);
    }
    lanes_.erase(session);
    CollectReadyLocked(table_.SessionEnded(session), later);
    CollectReadyLocked(table_.ForgetsEarlier(session, clock_.Now()), later);
  }
  Carry(later);
}

LeaseService::Stats LeaseService::stats() {
  const std::lock_guard lock(mutex_);
  return {.recalls = recalls_, .expired_waits = table_.expired_waits(), .leases = table_.leases()};
}

std::string LeaseService::Describe() {
  const Stats now = stats();
  return fmt::format("\n  leases {}, recalls {}, expired waits {}", now.leases, now.recalls,
                     now.expired_waits);
}

void LeaseService::CollectReadyLocked(const std::vector<LeaseTable::ChangeNumber>& changes,
                                      Later& later) {
  for (const LeaseTable::ChangeNumber change : changes) {
    const auto found = waiting_.find(change);
    if (found == waiting_.end()) continue;
    later.ready.push_back(std::move(found->second));
    waiting_.erase(found);
  }
}

// On the lane that came last: the others may be lost without anybody knowing yet.
void LeaseService::SendLocked(LeaseTable::RecallNumber number, std::uint64_t session,
                              Later& later) {
  const auto lanes = lanes_.find(session);
  const auto target = recalled_.find(number);
  if (lanes == lanes_.end() || target == recalled_.end()) return;
  for (auto lane = lanes->second.rbegin(); lane != lanes->second.rend(); ++lane) {
    if (const std::shared_ptr<Lane> live = lane->lock()) {
      ++recalls_;
      later.messages.emplace_back(live, Encode(number, target->second, live->session()->inodes()));
      return;
    }
  }
}

void LeaseService::WatchLocked(Later& later) {
  const auto next = table_.NextExpiry();
  if (!next || *next >= watched_) return;
  watched_ = *next;
  later.timer = ++timer_;
  later.look_after =
      std::max<std::chrono::nanoseconds>(*next - clock_.Now(), std::chrono::nanoseconds(0)) +
      kBehind;
}

void LeaseService::Expire(std::uint64_t timer) {
  Later later;
  {
    const std::lock_guard lock(mutex_);
    // A nearer one has come since, and looked for what is behind it: each of the others would do so
    // again, and a client could make them as many as it likes.
    if (timer != timer_) return;
    watched_ = TimePoint::max();
    CollectReadyLocked(table_.Expire(clock_.Now()), later);
    std::erase_if(recalled_, [&](const auto& entry) { return !table_.IsOutstanding(entry.first); });
    WatchLocked(later);
  }
  Carry(later);
}

void LeaseService::Carry(Later& later) {
  for (auto& [lane, message] : later.messages) {
    lane->Post([to = lane, sent = std::move(message)] {
      const ByteSpan bytes(sent);
      to->Send(std::span<const ByteSpan>(&bytes, 1));
    });
  }
  for (const std::function<void()>& ready : later.ready) ready();
  if (later.look_after >= std::chrono::nanoseconds(0)) {
    scheduler_.After(later.look_after, [this, timer = later.timer] { Expire(timer); });
  }
}

LeaseService::Message LeaseService::Encode(LeaseTable::RecallNumber number, const Target& target,
                                           const InodeTable& known_by) const {
  std::array<std::byte, sizeof(fs::ReplyHeader) + sizeof(fs::RecallMessage) + fs::kMaxHandleBytes +
                            fs::kMaxNameBytes + 4>
      room;
  ByteWriter body(MutableByteSpan(room).subspan(sizeof(fs::ReplyHeader)));
  fs::RecallMessage recall{};
  recall.number = number;
  recall.parts = target.parts;
  body.Write(recall);
  fs::WriteHandle(body, known_by.Own(target.inode, target.handle));
  body.WriteSized16(AsBytes(target.name));
  fs::ReplyHeader header{};
  header.opcode = static_cast<std::uint16_t>(fs::Opcode::kRecall);
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.epoch = epoch_;
  ByteWriter start{MutableByteSpan(room)};
  start.Write(header);
  return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(sizeof(header) + body.size())};
}

}  // namespace rdfs::server
