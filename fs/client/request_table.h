// RequestTable: which calls a lane has, which request of each is where, and what a lost connection
// or a deadline means for it. Decides only: no I/O, no clock, no callbacks.
//
// One call has at most one request at a time (a read of many pieces sends several in turn). It
// takes a sequence number when it is first sent and keeps it until its answer has arrived, so that
// it is recognised when it has to be sent again.
//
//                  +--------- sent again after a loss, same sequence ---------+
//                  v                                                          |
//   Open --> idle --Queue--> queued --MarkSent--> sent --ConnectionLost-------+
//             ^  \--QueueAt--> delayed --its time--> queued      |
//             +------------------------ OnReply: deliver --------+
//
// Finish ends a call from any state. What the wire or a device still holds of it (an answer to
// come, one-sided operations) keeps its slot until that is over too: answers that come then are
// late, not hostile. An answer that belongs to no request sent on this connection is.
//
// One thread: the lane's.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "fs/client/id_map.h"
#include "fs/client/session_state.h"
#include "fs/protocol.h"

namespace rdfs::fs::client {

using Slot = std::uint32_t;
inline constexpr Slot kNoSlot = std::numeric_limits<Slot>::max();

class RequestTable {
 public:
  // `cell` of `sequences` belongs to this table. `max_on_wire` and kUrgentOnWire more stay within
  // kMaxRequestsInFlight.
  RequestTable(SequenceCounter& sequences, std::size_t cell, std::size_t max_on_wire);

  static constexpr std::size_t kMaxCalls = 1 << 14;
  static constexpr std::size_t kUrgentOnWire = 16;
  // A new, idle call; none above kMaxCalls. `deadline` max(): never.
  std::optional<Slot> Open(TimePoint deadline);
  [[nodiscard]] std::uint64_t TicketOf(Slot slot) const { return entries_[slot].ticket; }
  // The call that a ticket names, unless it has finished.
  [[nodiscard]] std::optional<Slot> Find(std::uint64_t ticket) const;
  [[nodiscard]] TimePoint DeadlineOf(Slot slot) const { return entries_[slot].deadline; }
  // Whether the call at `slot` is unfinished.
  [[nodiscard]] bool IsOpen(Slot slot) const { return entries_[slot].open; }
  [[nodiscard]] std::size_t open_calls() const { return open_calls_; }
  // Whether Open has no room.
  [[nodiscard]] bool full() const { return free_.empty() && entries_.size() == kMaxCalls; }
  void NeverExpire(Slot slot);
  void ExpireAt(Slot slot, TimePoint deadline);  // idle, or sent

  // ---- Sending ----------------------------------------------------------------------------------
  void Queue(Slot slot, Opcode opcode);  // idle -> queued
  // As Queue, ahead of everything and also when the wire is full for others: what keeps the lane
  // itself going (a heartbeat, an interrupt). Not sent again after a loss: Lost names it.
  void QueueUrgent(Slot slot, Opcode opcode);
  void QueueAt(Slot slot, Opcode opcode, TimePoint time);  // idle -> delayed
  // Its answer may take for ever (kLockWait) and the server keeps no record of it: it takes no room
  // on the wire and holds no acknowledgement back. Before it is first sent.
  void MayWait(Slot slot) { entries_[slot].waits = true; }
  [[nodiscard]] bool Waits(Slot slot) const { return entries_[slot].waits; }
  // The first queued call, if the wire has room for one more.
  [[nodiscard]] std::optional<Slot> Next() const;
  // queued or delayed -> idle, so that the caller can do something else first; the sequence stays.
  void Withdraw(Slot slot);
  struct Sent {
    std::uint64_t sequence;
    bool sent_before;
  };
  Sent MarkSent(Slot slot);  // queued -> sent
  [[nodiscard]] bool IsIdle(Slot slot) const { return entries_[slot].phase == Phase::kIdle; }
  [[nodiscard]] bool IsSent(Slot slot) const { return entries_[slot].phase == Phase::kSent; }
  // Whether its request may have reached the server already, on this connection or an earlier one.
  [[nodiscard]] bool MayHaveArrived(Slot slot) const { return entries_[slot].sequence != 0; }
  [[nodiscard]] std::uint64_t SequenceOf(Slot slot) const { return entries_[slot].sequence; }
  // Requests that have been sent so far.
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  // Requests without an answer, those that may wait among them.
  [[nodiscard]] std::size_t on_wire() const { return on_wire_ + waiting_; }

  // ---- Answers ----------------------------------------------------------------------------------
  enum class Verdict {
    kDeliver,  // to the call at `slot`, which is idle now
    kLate,     // its call has finished: nothing to do (a staging slot may be free now)
    kUnknown,  // no such request, or another opcode: no correct server sends it
  };
  struct Arrival {
    Verdict verdict;
    Slot slot = kNoSlot;
  };
  Arrival OnReply(std::uint64_t sequence, Opcode opcode);

  // Of the requests that the server may keep a record of: those that were answered and lie above
  // `acknowledged`, which it has to be told of one by one. None, or as many as go into a request;
  // each once.
  using Answered = std::array<std::uint64_t, kMostAnswered>;
  std::optional<Answered> TakeAnswered(std::uint64_t acknowledged);

  // ---- One-sided operations ---------------------------------------------------------------------
  void BeginLocal(Slot slot) { ++entries_[slot].local; }
  // Whether that was the last one.
  bool EndLocal(Slot slot);
  [[nodiscard]] bool HasLocal(Slot slot) const { return entries_[slot].local > 0; }

  // ---- Ends -------------------------------------------------------------------------------------
  // The call's callback is about to run, or will never. Its ticket names nothing any more.
  void Finish(Slot slot);
  // Whether the slot has been given back entirely (its payload may be wiped).
  [[nodiscard]] bool IsFree(Slot slot) const { return entries_[slot].phase == Phase::kFree; }

  // The connection is gone: what was sent is queued again, in the order of sequences, ahead of what
  // was not; nobody waits for late answers any more. The lane decides about those it returns.
  struct Lost {
    std::vector<Slot> idle;    // open calls that were between requests
    std::vector<Slot> urgent;  // those of QueueUrgent, idle now
    std::size_t again = 0;     // requests that will be sent again
  };
  Lost ConnectionLost();
  // The lost connection's device has let go of all memory: one-sided operations are over.
  void LocalOperationsOver();

  // ---- Time -------------------------------------------------------------------------------------
  // Open calls whose deadline has passed; they stay as they are. Delayed ones whose time has come
  // are queued.
  std::vector<Slot> Expire(TimePoint now);
  // Expire has nothing to do before (it may be earlier than needed).
  [[nodiscard]] TimePoint NextTimer() const { return next_timer_; }

 private:
  enum class Phase : std::uint8_t { kFree, kIdle, kQueued, kDelayed, kSent };
  struct Link {
    Slot previous = kNoSlot, next = kNoSlot;
  };
  struct List {
    Slot first = kNoSlot, last = kNoSlot;
  };
  struct Entry {
    Phase phase = Phase::kFree;
    bool open = false;
    bool sent_before = false;
    bool urgent = false;
    bool waits = false;
    Opcode opcode{};
    std::uint32_t local = 0;
    std::uint64_t ticket = 0;
    std::uint64_t sequence = 0;  // 0: none yet
    TimePoint deadline{};
    TimePoint not_before{};
    Link queue{};           // in queue_
    Link sequence_order{};  // in sequenced_
  };
  using Member = Link Entry::*;
  void Append(List& list, Member link, Slot slot);
  void Prepend(List& list, Member link, Slot slot);
  void Remove(List& list, Member link, Slot slot);

  List& QueueOf(const Entry& entry) { return entry.urgent ? urgent_ : queue_; }

  void EndSequence(Slot slot);
  void TellOldest();
  void FreeIfOver(Slot slot);

  SequenceCounter& sequences_;
  const std::size_t cell_;
  const std::size_t max_on_wire_;
  std::vector<Entry> entries_;
  std::vector<Slot> free_;
  IdMap<Slot> by_sequence_;  // those sent on this connection
  List queue_;
  List urgent_;  // by the same link as queue_
  List
      sequenced_;  // every entry with a sequence that the server may have a record of, oldest first
  std::deque<std::uint64_t> answered_;  // not told of yet
  std::size_t on_wire_ = 0;             // sent on this connection,
  std::size_t waiting_ = 0;  // and those of them that may wait, which are not in on_wire_
  std::size_t open_calls_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t next_ticket_ = 1;
  TimePoint next_timer_ = TimePoint::max();
};

}  // namespace rdfs::fs::client
