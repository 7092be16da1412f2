#include "server/lease/lease_table.h"

#include <algorithm>
#include <limits>

namespace rdfs::server {
namespace {

// How long the memory of a lease lasts here that the client counts as `lease`: 1 % of drift, and a
// millisecond for what the client is told in whole ones.
std::chrono::nanoseconds ServerLength(std::chrono::nanoseconds lease) {
  return lease + lease / 100 + std::chrono::milliseconds(1);
}

// For whom others have waited in vain.
constexpr std::chrono::minutes kSilence{1};
// Acknowledging later than this counts as silence.
constexpr std::chrono::seconds kLate{1};

// Leases that a Grant looks at: of a session that has many, and of all in turn where there are
// more than a few.
constexpr std::size_t kOwnLooks = 32;
constexpr std::size_t kLooksInTurn = 4;
constexpr std::size_t kFew = 1024;
static_assert(kOwnLooks + kLooksInTurn <= LeaseTable::kMaxLooks);

}  // namespace

void LeaseTable::Changed::Note(Session session, Stamp stamp) {
  if (by != session) before = last;
  by = session;
  last = stamp;
}

void LeaseTable::Changed::Merge(const Changed& other) {
  if (other.last == 0) return;
  if (by == other.by) {
    last = std::max(last, other.last);
    before = std::max(before, other.before);
    return;
  }
  const bool newer = other.last > last;
  const Changed& top = newer ? other : *this;
  const Changed& rest = newer ? *this : other;
  const Changed merged{.by = top.by, .last = top.last, .before = std::max(top.before, rest.last)};
  *this = merged;
}

std::vector<LeaseTable::Holder>::iterator LeaseTable::HolderOf(Inode& inode, Session session) {
  return std::find_if(inode.holders.begin(), inode.holders.end(),
                      [session](const Holder& holder) { return holder.session == session; });
}

void LeaseTable::EraseHolder(Inodes::iterator inode, std::vector<Holder>::iterator holder) {
  const auto held = held_.find(holder->session);
  const std::size_t place = holder->place;
  inode->second.holders.erase(holder);
  --leases_;
  if (held == held_.end()) return;  // it ends
  std::deque<Held::Lease>& leases = held->second.leases;
  if (place + 1 < leases.size()) {
    leases[place] = leases.back();
    HolderOf(inodes_.find(leases[place].inode)->second, held->first)->place = place;
  }
  leases.pop_back();
  if (leases.empty()) held_.erase(held);
}

// A new entry starts from `forgotten_`: the inode may have been swept before.
LeaseTable::Inode& LeaseTable::Entry(const InodeKey& key) {
  return inodes_.try_emplace(key, Inode{.holders = {}, .changing = {}, .changed = forgotten_})
      .first->second;
}

bool LeaseTable::MayGrant(const Inode& inode, Session session, Stamp since) {
  if (inode.changed.ByOthers(session) > since) return false;
  return std::all_of(inode.changing.begin(), inode.changing.end(),
                     [session](Session by) { return by == session; });
}

bool LeaseTable::HasRoom(Session session) const {
  const auto held = held_.find(session);
  return held == held_.end() || held->second.leases.size() < options_.session_leases;
}

bool LeaseTable::HasPlenty(Session session) const {
  const auto held = held_.find(session);
  return held == held_.end() || held->second.leases.size() < options_.session_leases / 2;
}

bool LeaseTable::Grant(const InodeKey& key, Session session, Stamp since, TimePoint now,
                       std::chrono::nanoseconds lease) {
  const auto found = inodes_.find(key);
  if (!MayGrant(anything_, session, since)) return false;
  if (found == inodes_.end() ? forgotten_.ByOthers(session) > since
                             : !MayGrant(found->second, session, since)) {
    return false;
  }
  const TimePoint until = now + ServerLength(lease);
  if (found != inodes_.end()) {
    // Who has not asked that one knows an older file.
    if (IsWrittenByOther(found->second, session, now)) return false;
    for (Holder& holder : found->second.holders) {
      if (holder.session != session) continue;
      holder.until = std::max(holder.until, until);
      holder.granted = stamp_;
      return true;
    }
  }
  Sweep(session, now);
  if (!HasRoom(session)) return false;
  std::deque<Held::Lease>& leases = held_[session].leases;
  Entry(key).holders.push_back(
      {.session = session, .until = until, .granted = stamp_, .place = leases.size()});
  leases.push_back({.inode = key, .until = until});
  ++leases_;
  return true;
}

bool LeaseTable::GrantWrites(const InodeKey& key, Session session, Stamp since, TimePoint now,
                             std::chrono::nanoseconds lease) {
  if (IsQuietFor(session, now) || WrittenEarlierByAnother(session, now)) return false;
  if (const auto silent = silent_.find(session); silent != silent_.end()) {
    if (now < silent->second) return false;
    silent_.erase(silent);
  }
  if (const auto found = inodes_.find(key); found != inodes_.end()) {
    const bool alone = std::all_of(
        found->second.holders.begin(), found->second.holders.end(),
        [&](const Holder& holder) { return holder.session == session || holder.until <= now; });
    if (!alone) return false;
  }
  if (!Grant(key, session, since, now, lease)) return false;
  Inode& inode = Entry(key);
  // What others are gathering about it at this moment they may not believe.
  inode.changed.Note(session, ++stamp_);
  const TimePoint until = now + ServerLength(lease) + ServerLength(options_.write_travel);
  for (Holder& holder : inode.holders) {
    if (holder.session != session) continue;
    holder.writes_until = until;
    holder.until = std::max(holder.until, until);
  }
  writers_.Note(session, until);
  return true;
}

void LeaseTable::EndWrites(const InodeKey& key, Session session, Stamp before) {
  const auto found = inodes_.find(key);
  if (found == inodes_.end()) return;
  for (Holder& holder : found->second.holders) {
    if (holder.session == session && holder.granted < before) holder.writes_until = {};
  }
}

bool LeaseTable::WrittenByAnother(const InodeKey& key, Session session, TimePoint now) const {
  const auto found = inodes_.find(key);
  return found != inodes_.end() && IsWrittenByOther(found->second, session, now);
}

bool LeaseTable::IsWrittenByOther(const Inode& inode, Session than, TimePoint now) {
  return std::any_of(inode.holders.begin(), inode.holders.end(), [&](const Holder& holder) {
    return holder.session != than && holder.writes_until > now;
  });
}

std::vector<InodeKey> LeaseTable::Written(TimePoint now) const {
  constexpr Session kNobody = 0;
  std::vector<InodeKey> written;
  for (const auto& [key, inode] : inodes_) {
    if (IsWrittenByOther(inode, kNobody, now)) written.push_back(key);
  }
  return written;
}

void LeaseTable::Writers::Note(Session session, TimePoint until) {
  if (session != last) {
    others_until = std::max(others_until, last_until);
    last = session;
    last_until = {};
  }
  last_until = std::max(last_until, until);
}

TimePoint LeaseTable::Writers::UntilWithout(Session session) const {
  return session == last ? others_until : std::max(others_until, last_until);
}

void LeaseTable::AddRecall(Begun& begun, Change& change, const Outgoing& recall,
                           std::size_t target) {
  const RecallNumber number = next_++;
  recalls_.emplace(number, recall);
  due_.emplace(recall.until, number);
  ++change.waits_for;
  if (recall.session != 0) {
    begun.recalls.push_back({.number = number, .session = recall.session, .target = target});
  }
}

bool LeaseTable::HasOther(const Sessions& sessions, Session than) {
  return !sessions || std::any_of(sessions->begin(), sessions->end(),
                                  [than](Session session) { return session != than; });
}

bool LeaseTable::IsQuietFor(Session by, TimePoint now) const {
  return now < options_.quiet_until && HasOther(options_.earlier, by);
}

bool LeaseTable::WaitsForEarlier(Session by, Purpose purpose, TimePoint now) const {
  if (purpose == Purpose::kLeasedWrite) return false;
  return purpose == Purpose::kLook ? WrittenEarlierByAnother(by, now) : IsQuietFor(by, now);
}

std::vector<LeaseTable::ChangeNumber> LeaseTable::WroteEarlier(Session session, TimePoint now) {
  if (!earlier_writers_ || earlier_writers_->erase(session) == 0) return {};
  return SettleEarlier(now);
}

std::vector<LeaseTable::ChangeNumber> LeaseTable::ForgetsEarlier(Session session, TimePoint now) {
  std::vector<ChangeNumber> ready = WroteEarlier(session, now);
  if (!options_.earlier || options_.earlier->erase(session) == 0) return ready;
  const std::vector<ChangeNumber> more = SettleEarlier(now);
  ready.insert(ready.end(), more.begin(), more.end());
  return ready;
}

std::vector<LeaseTable::ChangeNumber> LeaseTable::SettleEarlier(TimePoint now) {
  std::vector<ChangeNumber> ready;
  for (const RecallNumber number : Outstanding(0)) {
    const auto recall = recalls_.find(number);
    const auto change = changes_.find(recall->second.change);
    if (change != changes_.end() &&
        WaitsForEarlier(change->second.by, change->second.purpose, now)) {
      continue;
    }
    if (const ChangeNumber done = Settle(recall); done != 0) ready.push_back(done);
  }
  return ready;
}

LeaseTable::Begun LeaseTable::Begin(Session by, std::span<const Target> targets, TimePoint now,
                                    Purpose purpose) {
  Begun begun{.change = next_++};
  Change& change = changes_[begun.change];
  change.by = by;
  change.purpose = purpose;
  ++stamp_;
  if (WaitsForEarlier(by, purpose, now)) {
    AddRecall(begun, change,
              {.session = 0,
               .target = {},
               .change = begun.change,
               .begun = stamp_,
               .asked = now,
               .until = options_.quiet_until},
              0);
  }
  if (targets.empty()) {
    anything_.changing.push_back(by);
    anything_.changed.Note(by, stamp_);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Inode& inode = Entry(targets[i].inode);
    inode.changing.push_back(by);
    inode.changed.Note(by, stamp_);
    change.inodes.push_back(targets[i].inode);
    for (const Holder& holder : inode.holders) {
      if (holder.session == by || holder.until <= now) continue;
      AddRecall(begun, change,
                {.session = holder.session,
                 .target = targets[i],
                 .change = begun.change,
                 .begun = stamp_,
                 .asked = now,
                 .until = holder.until},
                i);
    }
  }
  begun.ready = change.waits_for == 0;
  return begun;
}

void LeaseTable::DropHolder(const InodeKey& key, Session session, Stamp before) {
  const auto found = inodes_.find(key);
  if (found == inodes_.end()) return;
  const auto holder = HolderOf(found->second, session);
  if (holder != found->second.holders.end() && holder->granted < before) {
    EraseHolder(found, holder);
  }
  EraseIfIdle(found);
}

LeaseTable::ChangeNumber LeaseTable::Settle(Outstandings::iterator recall) {
  const Outgoing settled = recall->second;
  due_.erase({settled.until, recall->first});
  recalls_.erase(recall);
  // Where nobody waits for the recall, what it asks about afterwards it may believe again before it
  // acknowledges.
  if (settled.target.whole) {
    DropHolder(settled.target.inode, settled.session, settled.begun);
  }
  const auto change = changes_.find(settled.change);
  if (change == changes_.end()) return 0;  // given up
  return --change->second.waits_for == 0 ? settled.change : 0;
}

std::vector<LeaseTable::ChangeNumber> LeaseTable::Acknowledge(Session session, RecallNumber number,
                                                              TimePoint now) {
  const auto found = recalls_.find(number);
  if (found == recalls_.end() || found->second.session != session) return {};
  if (now - found->second.asked > kLate) silent_[session] = now + kSilence;
  const ChangeNumber ready = Settle(found);
  return ready == 0 ? std::vector<ChangeNumber>{} : std::vector{ready};
}

std::vector<LeaseTable::ChangeNumber> LeaseTable::Expire(TimePoint now) {
  std::vector<ChangeNumber> ready;
  while (!due_.empty() && due_.begin()->first <= now) {
    const auto recall = recalls_.find(due_.begin()->second);
    const Outgoing& out = recall->second;
    if (out.session != 0 && out.until - out.asked >= kSoon) {
      ++expired_waits_;
      silent_[out.session] = now + kSilence;
    }
    if (const ChangeNumber change = Settle(recall); change != 0) ready.push_back(change);
  }
  return ready;
}

std::vector<LeaseTable::ChangeNumber> LeaseTable::SessionEnded(Session session) {
  silent_.erase(session);
  std::vector<ChangeNumber> ready;
  for (const RecallNumber number : Outstanding(session)) {
    if (const ChangeNumber change = Settle(recalls_.find(number)); change != 0) {
      ready.push_back(change);
    }
  }
  const auto held = held_.extract(session);
  if (held.empty()) return ready;
  for (const Held::Lease& lease : held.mapped().leases) {
    DropHolder(lease.inode, session, std::numeric_limits<Stamp>::max());
  }
  return ready;
}

std::optional<TimePoint> LeaseTable::NextExpiry() const {
  if (due_.empty()) return std::nullopt;
  return due_.begin()->first;
}

void LeaseTable::EndOf(Inode& inode, Session by) {
  const auto one = std::find(inode.changing.begin(), inode.changing.end(), by);
  if (one != inode.changing.end()) inode.changing.erase(one);
  inode.changed.Note(by, stamp_);
}

void LeaseTable::End(ChangeNumber number) {
  const auto change = changes_.find(number);
  if (change == changes_.end()) return;
  ++stamp_;
  if (change->second.inodes.empty()) EndOf(anything_, change->second.by);
  for (const InodeKey& key : change->second.inodes) {
    const auto found = inodes_.find(key);
    if (found == inodes_.end()) continue;
    EndOf(found->second, change->second.by);
    EraseIfIdle(found);
  }
  changes_.erase(change);
}

void LeaseTable::EraseIfIdle(Inodes::iterator inode) {
  if (!inode->second.holders.empty() || !inode->second.changing.empty()) return;
  forgotten_.Merge(inode->second.changed);
  inodes_.erase(inode);
}

void LeaseTable::Sweep(Session session, TimePoint now) {
  if (!HasPlenty(session)) SweepOwn(session, now);
  if (leases_ >= kFew) SweepAll(now);
}

void LeaseTable::SweepOwn(Session session, TimePoint now) {
  const auto held = held_.find(session);
  if (held == held_.end()) return;
  Held& own = held->second;
  for (std::size_t looks = std::min(kOwnLooks, own.leases.size()); looks > 0; --looks) {
    if (own.next == 0 || own.next > own.leases.size()) own.next = own.leases.size();
    if (!Look(held, --own.next, now)) return;
  }
}

void LeaseTable::SweepAll(TimePoint now) {
  for (std::size_t looks = kLooksInTurn; looks > 0 && !held_.empty(); --looks) {
    auto held = held_.find(sweeps_);
    if (held == held_.end() || sweeps_next_ == 0) {
      held = held_.upper_bound(sweeps_);
      if (held == held_.end()) held = held_.begin();
      sweeps_ = held->first;
      sweeps_next_ = held->second.leases.size();
    }
    sweeps_next_ = std::min(sweeps_next_, held->second.leases.size());
    Look(held, --sweeps_next_, now);
  }
}

bool LeaseTable::Look(HeldOf::iterator held, std::size_t place, TimePoint now) {
  ++looks_;
  Held::Lease& lease = held->second.leases[place];
  if (lease.until > now) return true;
  const auto inode = inodes_.find(lease.inode);
  const auto holder = HolderOf(inode->second, held->first);
  if (holder->until > now) {
    lease.until = holder->until;
    return true;
  }
  const bool last = held->second.leases.size() == 1;
  EraseHolder(inode, holder);
  EraseIfIdle(inode);
  return !last;
}

std::vector<LeaseTable::RecallNumber> LeaseTable::Outstanding(Session session) const {
  std::vector<RecallNumber> numbers;
  for (const auto& [number, recall] : recalls_) {
    if (recall.session == session) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool LeaseTable::IsWaiting(ChangeNumber change) const {
  const auto found = changes_.find(change);
  return found != changes_.end() && found->second.waits_for > 0;
}

}  // namespace rdfs::server
