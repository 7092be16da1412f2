// TcpConnection: ../transport.h's Connection over a byte stream. See frame.h for what travels.
//
//   posting side                      passive side (while it polls)
//   Read:  READ_REQUEST  ───────────►  looks the key up, answers from the memory itself
//          into the slice ◄──────────  READ_REPLY or READ_REFUSED
//   Write: WRITE + bytes ───────────►  from the socket into the memory itself
//          completion    ◄──────────  `acknowledged` in any header, or WRITE_REFUSED
//
// No two ends can wait for each other: Poll writes what the wire takes and then reads what it has,
// whatever waits. What a peer can make us hold is bounded: the input buffer, kMaxOutstanding
// answers, and acknowledgements that are a counter.
//
// Used by one thread at a time; sleeps never, but for a moment in the destructor
// while the peer goes on reading.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/tcp/fixed_queue.h"
#include "transport/tcp/input.h"
#include "transport/tcp/output.h"
#include "transport/tcp/readiness.h"
#include "transport/tcp/shares.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace rdfs::transport::tcp {

class TcpConnection final : public Connection {
 public:
  static Result<std::unique_ptr<Connection>> Create(std::unique_ptr<ByteStream> stream,
                                                    const std::shared_ptr<Domain>& domain,
                                                    std::string description);
  ~TcpConnection() override;

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string Describe() const override { return description_; }
  Status Send(std::span<const ByteSpan> parts) override;
  [[nodiscard]] std::size_t backlog_bytes() const override { return output_.backlog_bytes(); }
  [[nodiscard]] std::size_t kept_bytes() const override { return output_.kept_bytes(); }
  [[nodiscard]] std::uint64_t carried_bytes() const override {
    return output_.sent_bytes() + received_;
  }
  Result<Ticket> Read(const LocalSlice& to, const RemoteSlice& from, Order order) override;
  Result<Ticket> Write(const LocalSlice& from, const RemoteSlice& to) override;
  Status Flush() override;
  Result<std::size_t> Poll(std::span<Completion> out) override;
  Result<std::size_t> Wait(std::span<Completion> out, Deadline deadline) override;
  Result<bool> Arm() override;
  [[nodiscard]] int fd() const override { return readiness_.fd(); }
  Result<RemoteRegion> Share(const MemoryRegion& region) override;
  void Unshare(const MemoryRegion& region) override;
  void Abandon() override { abandoned_ = true; }

 protected:
  [[nodiscard]] bool SpinningPays() const override { return spinning_pays_; }

 private:
  struct PendingRead {
    Ticket ticket = 0;
    MutableByteSpan to;
  };
  struct PendingWrite {
    Ticket ticket = 0;
    std::uint64_t end = 0;  // in output_: nobody can answer before this has been sent
  };
  struct Finished {
    Ticket ticket = 0;
    Completion::Kind kind{};
    Status status;
  };
  // What the bytes of a frame that is larger than its head are for.
  struct Payload {
    enum class For : std::uint8_t { kNothing, kRead, kWrite, kRefusedWrite };
    For purpose = For::kNothing;
    RefusalReason refusal{};
    std::uint32_t missing = 0;
    std::byte* place = nullptr;          // of the next byte; null for kRefusedWrite
    std::shared_ptr<SharedMemory> keep;  // kWrite: mapped until the last byte
  };
  // Where completions go in one Poll.
  struct Sink {
    std::span<Completion> out;
    std::size_t count = 0;
    [[nodiscard]] bool full() const { return count == out.size(); }
  };
  enum class Step : std::uint8_t { kAgain, kNeedsInput };
  // What to do when the stream has nothing: return, or sleep for ByteStream::kNap first.
  enum class WhenIdle : std::uint8_t { kReturn, kNap };

  TcpConnection(std::unique_ptr<ByteStream> stream, std::shared_ptr<Domain> domain,
                std::string description, std::size_t attachment);

  // Posting (connection.cc).
  [[nodiscard]] Status CheckSlice(const LocalSlice& local) const;
  [[nodiscard]] bool SlotsFull() const;
  void QueueFrame(Opcode opcode, std::size_t body_bytes);
  void QueueRefusal(Opcode opcode, RefusalReason reason);
  std::uint16_t TakeOwed();
  void FlushOutput(bool acknowledge);
  void WriteOutput();
  Result<std::size_t> PollOnce(std::span<Completion> out, WhenIdle when_idle);
  void End(Status why);
  void SayBye();

  // Receiving (receive.cc).
  Status Receive(Sink& sink, WhenIdle when_idle);
  [[nodiscard]] bool TooSoon() const;
  Result<bool> ReadMore(bool nap);
  Status Parse(Sink& sink);
  void Deliver(Sink& sink);
  Result<Step> ParseFrame(Sink& sink);
  Result<Step> OnFrame(const DecodedHeader& header, ByteSpan body, Sink& sink);
  Result<Ticket> TakeAnsweredWrite();
  Status OnAcknowledged(std::size_t count);
  Status OnReadRequest(ByteSpan body);
  Status OnReadReply(std::uint32_t length);
  Status OnReadRefused(ByteSpan body);
  Status OnWrite(ByteSpan head, std::uint32_t body_bytes);
  Status OnWriteRefused(ByteSpan body);
  void TakePayload(std::size_t size);
  Status PayloadDone();
  Status CheckUnanswered() const;

  // The order of destruction does not matter: the destructor has ended everything.
  std::unique_ptr<ByteStream> stream_;
  std::shared_ptr<Domain> domain_;
  std::string description_;
  Capabilities capabilities_;
  Readiness readiness_;
  Shares shares_;
  OutputQueue output_;
  InputBuffer input_;

  Ticket next_ticket_ = 1;
  FixedQueue<PendingRead, kMaxOutstanding> reads_;
  FixedQueue<PendingWrite, kMaxOutstanding> writes_;
  FixedQueue<Finished, kMaxOutstanding> finished_;  // completed, not yet polled

  Payload payload_;
  TimePoint rest_from_{};             // of payload_: it cannot be there before
  bool after_large_payload_ = false;  // the next frame probably has one, too
  bool more_buffered_ = false;        // Poll stopped for want of room in `out`
  bool spinning_pays_ = true;         // as of the last look, some Waits ago
  std::uint32_t waits_ = 0;
  std::uint64_t received_ = 0;  // bytes, since the beginning
  bool abandoned_ = false;
  std::size_t owed_ = 0;                  // WRITEs of the peer's to acknowledge
  std::optional<TimePoint> stuck_since_;  // output waits, and the wire took something last then
  std::optional<Status> write_error_;     // output is over; input may still hold something
  std::optional<Status> over_;
};

}  // namespace rdfs::transport::tcp
