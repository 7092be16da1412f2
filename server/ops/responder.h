// Responder: the duty to answer one request, exactly once.
//
// Moves from the dispatcher to whoever finishes the request. Writes the answer of a mutating
// request into the session's record before it goes out, and gives it also to lanes that have asked
// again meanwhile. One that is destroyed unused answers EIO, so that no client waits for ever;
// where its session has ended, the end of the lane is the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fs/protocol.h"
#include "server/lease/lease_change.h"
#include "server/loop/lane.h"
#include "server/process/counters.h"
#include "transport/base/bytes.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class Responder {
 public:
  Responder() = default;
  Responder(const LanePtr& lane, fs::Opcode opcode, std::uint64_t sequence, std::uint64_t epoch,
            Counters& counters);
  Responder(Responder&& other) noexcept;
  Responder& operator=(Responder&& other) noexcept;
  ~Responder();

  // When its message came; a later call changes nothing.
  void SetTaken(TimePoint now) {
    if (taken_ == TimePoint{}) taken_ = now;
  }
  // From here on the answer is recorded.
  void SetRecorded() { recorded_ = true; }
  // Its client has sent it before.
  void SetSentBefore() { sent_before_ = true; }
  [[nodiscard]] bool recorded() const { return recorded_; }
  // What this request changes, until it is answered.
  [[nodiscard]] LeaseChange& change() { return change_; }
  // It may take for ever: it does not count among the lane's requests in flight any more. On the
  // lane's thread.
  void LeaveQueue();
  // So many bytes of its message are kept until it is answered; false: its session keeps too many.
  // A later call changes nothing.
  [[nodiscard]] bool KeepBytes(std::size_t count);
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] bool pending() const { return counters_ != nullptr; }
  [[nodiscard]] const std::weak_ptr<Lane>& lane() const { return lane_; }

  // On the lane's thread. `body` and `extensions` are left alone unless `error` is kOk; what is
  // answered again from a record has no extensions.
  void Send(fs::WireError error, std::span<const ByteSpan> body = {}, ByteSpan extensions = {});
  void Ok(ByteSpan body, ByteSpan extensions = {}) {
    Send(fs::WireError::kOk, std::span<const ByteSpan>(&body, 1), extensions);
  }
  void Errno(int error) { Send(fs::ToWire(error)); }
  // The same from any thread; the body must be small and is copied.
  static void SendFromAnywhere(Responder responder, fs::WireError error, ByteSpan body = {});

 private:
  void Record(fs::WireError error, std::span<const ByteSpan> body);
  void Repeat(fs::WireError error, std::span<const ByteSpan> body);

  std::weak_ptr<Lane> lane_;
  SessionPtr session_;
  Counters* counters_ = nullptr;  // null: answered, or moved from
  fs::Opcode opcode_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t epoch_ = 0;
  TimePoint taken_{};  // none: it was refused before it was looked at
  bool recorded_ = false;
  bool sent_before_ = false;
  bool counted_ = true;  // in Lane::in_flight
  std::size_t kept_bytes_ = 0;
  LeaseChange change_;
};

}  // namespace rdfs::server
