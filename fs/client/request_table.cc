#include "fs/client/request_table.h"

#include <algorithm>

namespace rdfs::fs::client {
namespace {

// A ticket is a count and the slot below it, so that finding its call is one comparison.
constexpr std::uint64_t kSlotBits = 14;
static_assert(RequestTable::kMaxCalls == 1ULL << kSlotBits);

}  // namespace

RequestTable::RequestTable(SequenceCounter& sequences, std::size_t cell, std::size_t max_on_wire)
    : sequences_(sequences), cell_(cell), max_on_wire_(max_on_wire), by_sequence_(1024) {}

std::optional<Slot> RequestTable::Open(TimePoint deadline) {
  if (free_.empty()) {
    if (entries_.size() == kMaxCalls) return std::nullopt;
    free_.push_back(static_cast<Slot>(entries_.size()));
    entries_.emplace_back();
  }
  const Slot slot = free_.back();
  free_.pop_back();
  entries_[slot] = {.phase = Phase::kIdle,
                    .open = true,
                    .ticket = (next_ticket_++ << kSlotBits) | slot,
                    .deadline = deadline};
  next_timer_ = std::min(next_timer_, deadline);
  ++open_calls_;
  return slot;
}

std::optional<Slot> RequestTable::Find(std::uint64_t ticket) const {
  const auto slot = static_cast<Slot>(ticket & (kMaxCalls - 1));
  if (slot >= entries_.size() || !entries_[slot].open || entries_[slot].ticket != ticket) {
    return std::nullopt;
  }
  return slot;
}

void RequestTable::Queue(Slot slot, Opcode opcode) {
  Entry& entry = entries_[slot];
  entry.phase = Phase::kQueued;
  entry.opcode = opcode;
  Append(QueueOf(entry), &Entry::queue, slot);
}

void RequestTable::QueueUrgent(Slot slot, Opcode opcode) {
  Entry& entry = entries_[slot];
  entry.phase = Phase::kQueued;
  entry.opcode = opcode;
  entry.urgent = true;
  Append(urgent_, &Entry::queue, slot);
}

void RequestTable::QueueAt(Slot slot, Opcode opcode, TimePoint time) {
  Entry& entry = entries_[slot];
  entry.phase = Phase::kDelayed;
  entry.opcode = opcode;
  entry.not_before = time;
  next_timer_ = std::min(next_timer_, time);
}

std::optional<Slot> RequestTable::Next() const {
  if (urgent_.first != kNoSlot && on_wire_ < max_on_wire_ + kUrgentOnWire) return urgent_.first;
  if (queue_.first == kNoSlot || on_wire_ >= max_on_wire_) return std::nullopt;
  return queue_.first;
}

void RequestTable::Withdraw(Slot slot) {
  Entry& entry = entries_[slot];
  if (entry.phase == Phase::kQueued) Remove(QueueOf(entry), &Entry::queue, slot);
  if (entry.phase == Phase::kQueued || entry.phase == Phase::kDelayed) entry.phase = Phase::kIdle;
}

RequestTable::Sent RequestTable::MarkSent(Slot slot) {
  Entry& entry = entries_[slot];
  Remove(QueueOf(entry), &Entry::queue, slot);
  entry.phase = Phase::kSent;
  if (entry.sequence == 0) {
    entry.sequence = sequences_.Take(cell_);
    if (!entry.waits) Append(sequenced_, &Entry::sequence_order, slot);
    TellOldest();
  }
  by_sequence_.Insert(entry.sequence, slot);
  ++(entry.waits ? waiting_ : on_wire_);
  ++sent_;
  const Sent sent{entry.sequence, entry.sent_before};
  entry.sent_before = true;
  return sent;
}

RequestTable::Arrival RequestTable::OnReply(std::uint64_t sequence, Opcode opcode) {
  const Slot* found = by_sequence_.Find(sequence);
  if (found == nullptr || entries_[*found].opcode != opcode) return {Verdict::kUnknown};
  const Slot slot = *found;
  by_sequence_.Take(sequence);
  --(entries_[slot].waits ? waiting_ : on_wire_);
  entries_[slot].phase = Phase::kIdle;
  if (IsMutating(opcode) && !entries_[slot].waits) answered_.push_back(sequence);
  EndSequence(slot);
  if (entries_[slot].open) return {Verdict::kDeliver, slot};
  FreeIfOver(slot);
  return {Verdict::kLate, slot};
}

std::optional<RequestTable::Answered> RequestTable::TakeAnswered(std::uint64_t acknowledged) {
  // Nearly in order; what is told twice does no harm.
  while (!answered_.empty() && answered_.front() <= acknowledged) answered_.pop_front();
  if (answered_.size() < kMostAnswered) return std::nullopt;
  Answered taken;
  std::copy_n(answered_.begin(), taken.size(), taken.begin());
  answered_.erase(answered_.begin(), answered_.begin() + taken.size());
  return taken;
}

bool RequestTable::EndLocal(Slot slot) {
  const bool last = --entries_[slot].local == 0;
  if (!entries_[slot].open) FreeIfOver(slot);
  return last;
}

void RequestTable::Finish(Slot slot) {
  Entry& entry = entries_[slot];
  entry.open = false;
  --open_calls_;
  Withdraw(slot);
  // Not on the wire: no answer will come, whatever an earlier connection did with it.
  if (entry.phase == Phase::kIdle && entry.sequence != 0) EndSequence(slot);
  FreeIfOver(slot);
}

RequestTable::Lost RequestTable::ConnectionLost() {
  by_sequence_.Clear();
  on_wire_ = 0;
  waiting_ = 0;
  Lost lost;
  std::vector<std::pair<std::uint64_t, Slot>> sent;
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    if (entry.phase == Phase::kFree) continue;
    if (entry.urgent) Withdraw(slot);
    if (entry.phase == Phase::kSent && entry.open && !entry.urgent) {
      sent.emplace_back(entry.sequence, slot);
    } else if (entry.phase == Phase::kSent) {
      entry.phase = Phase::kIdle;
      EndSequence(slot);
      FreeIfOver(slot);
    }
    if (entry.phase == Phase::kIdle && entry.open) {
      (entry.urgent ? lost.urgent : lost.idle).push_back(slot);
    }
  }
  std::sort(sent.begin(), sent.end());
  for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
    entries_[it->second].phase = Phase::kQueued;
    Prepend(queue_, &Entry::queue, it->second);
  }
  lost.again = sent.size();
  return lost;
}

void RequestTable::LocalOperationsOver() {
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    if (entry.phase == Phase::kFree) continue;
    entry.local = 0;
    if (!entry.open) FreeIfOver(slot);
  }
}

std::vector<Slot> RequestTable::Expire(TimePoint now) {
  std::vector<Slot> expired;
  if (now < next_timer_) return expired;
  next_timer_ = TimePoint::max();
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    if (!entry.open) continue;
    if (entry.deadline <= now) {
      expired.push_back(slot);
      continue;
    }
    next_timer_ = std::min(next_timer_, entry.deadline);
    if (entry.phase != Phase::kDelayed) continue;
    if (entry.not_before <= now) {
      Queue(slot, entry.opcode);
    } else {
      next_timer_ = std::min(next_timer_, entry.not_before);
    }
  }
  return expired;
}

void RequestTable::NeverExpire(Slot slot) {
  Entry& entry = entries_[slot];
  entry.deadline = TimePoint::max();
  // Expire leaves this time out of what has expired.
  if (entry.phase == Phase::kDelayed) next_timer_ = std::min(next_timer_, entry.not_before);
}

void RequestTable::ExpireAt(Slot slot, TimePoint deadline) {
  entries_[slot].deadline = deadline;
  next_timer_ = std::min(next_timer_, deadline);
}

void RequestTable::EndSequence(Slot slot) {
  entries_[slot].sequence = 0;
  entries_[slot].sent_before = false;
  if (entries_[slot].waits) return;
  const bool oldest = sequenced_.first == slot;
  Remove(sequenced_, &Entry::sequence_order, slot);
  if (oldest) TellOldest();
}

void RequestTable::TellOldest() {
  sequences_.SetOldest(cell_, sequenced_.first == kNoSlot ? SequenceCounter::kIdle
                                                          : entries_[sequenced_.first].sequence);
}

void RequestTable::FreeIfOver(Slot slot) {
  Entry& entry = entries_[slot];
  if (entry.open || entry.phase != Phase::kIdle || entry.local > 0) return;
  entry.phase = Phase::kFree;
  free_.push_back(slot);
}

void RequestTable::Append(List& list, Member link, Slot slot) {
  entries_[slot].*link = {.previous = list.last, .next = kNoSlot};
  (list.last == kNoSlot ? list.first : (entries_[list.last].*link).next) = slot;
  list.last = slot;
}

void RequestTable::Prepend(List& list, Member link, Slot slot) {
  entries_[slot].*link = {.previous = kNoSlot, .next = list.first};
  (list.first == kNoSlot ? list.last : (entries_[list.first].*link).previous) = slot;
  list.first = slot;
}

void RequestTable::Remove(List& list, Member link, Slot slot) {
  const Link at = entries_[slot].*link;
  (at.previous == kNoSlot ? list.first : (entries_[at.previous].*link).next) = at.next;
  (at.next == kNoSlot ? list.last : (entries_[at.next].*link).previous) = at.previous;
}

}  // namespace rdfs::fs::client
