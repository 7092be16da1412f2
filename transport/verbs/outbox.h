// Outbox: messages on their way out. Cuts them into frames, pays for these with credits and send
// slots, and keeps what cannot go yet.
//
// Owned by a connection, used by its thread. A message that finds credits, slots and nothing queued
// before it is copied straight into registered send buffers; any other is copied aside (the
// backlog, in order, unbounded: Connection::backlog_bytes tells who sends too much). Frames are
// queued on the queue pair; the connection posts them.
//
// A slot is free when its SEND has completed. Every kSignalInterval-th SEND asks for a completion,
// which stands for the SENDs before it (they complete in order): a full ring always has some under
// way that do.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "transport/verbs/credit.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/queue_pair.h"

namespace rdfs::transport::verbs {

class Outbox {
 public:
  // On iWARP the side that accepted must not send before a frame of the other side's has arrived
  // (RFC 5044, 7.1.2: its first frame tells that the connection has gone to full operation). Until
  // Open, everything waits here.
  Outbox(QueuePair& queue_pair, CreditLedger& credits)
      : queue_pair_(queue_pair), credits_(credits) {}

  // Sends the opening and lets everything else follow.
  void Open();
  [[nodiscard]] bool open() const { return open_; }
  // `size` is the sum of the parts, at most kMaxMessageBytes.
  void Send(std::span<const ByteSpan> parts, std::size_t size);
  // A frame of credits although none is due, if there is room for one: see VerbsConnection::Nudge.
  void Nudge();
  // Moves what credits and slots allow from the backlog to the queue pair, then a frame of credits
  // if one is due.
  void Pump();
  // The last frame; signalled, so that its completion tells that all of it has gone.
  void SayBye();

  // The SEND `sequence`, and all before it, have completed.
  void OnSent(std::uint64_t sequence);
  [[nodiscard]] std::size_t backlog_bytes() const { return backlog_bytes_; }
  // True when everything has left, the kBye last (or when none could be sent).
  [[nodiscard]] bool bye_has_gone() const { return !bye_ || completed_ == next_; }

 private:
  static constexpr std::uint64_t kSignalInterval = kSendSlots / 4;

  struct Backlogged {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    bool begun = false;
  };

  [[nodiscard]] std::uint64_t free_slots() const { return kSendSlots - (next_ - completed_); }
  [[nodiscard]] bool CanSendMessageFrames(std::size_t count) const;
  // The payload of the next frame, to be filled before Commit.
  MutableByteSpan Begin();
  void Commit(FrameType type, std::size_t message_bytes, std::size_t payload_bytes,
              bool signalled = false);
  void SendDirectly(std::span<const ByteSpan> parts, std::size_t size);
  void SendFrameOf(Backlogged& message);

  QueuePair& queue_pair_;
  CreditLedger& credits_;
  std::uint64_t next_ = 0;       // the sequence number of the next frame
  std::uint64_t completed_ = 0;  // frames below it have left their slots
  std::deque<Backlogged> backlog_;
  std::size_t backlog_bytes_ = 0;
  bool open_ = false;
  bool bye_ = false;
};

}  // namespace rdfs::transport::verbs
