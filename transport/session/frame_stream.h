// FrameStream: frames over a byte stream, for a vestibule at either end.
//
// Owned by a vestibule or a session, one thread. Nothing here blocks except Await and SendAll,
// which the client uses. Reads exactly one frame and not a byte more, so that the stream can be
// given away behind any frame (TakeStream).
#pragma once

#include <poll.h>

#include <memory>
#include <vector>

#include "transport/base/clock.h"
#include "transport/session/frame.h"
#include "transport/tcp/stream.h"

namespace rdfs::transport::session {

class FrameStream {
 public:
  FrameStream(std::unique_ptr<tcp::ByteStream> stream, std::size_t max_body)
      : stream_(std::move(stream)), reader_(max_body) {}

  // Queues a whole frame (EncodeFrame) behind what is queued.
  void Queue(std::vector<std::byte> frame);
  // Writes what the wire takes now. Errors: kDisconnected.
  Status Flush();
  [[nodiscard]] bool has_output() const { return !output_.empty(); }
  // Reads what is there; true when frame() and raw() are a whole one. Errors: kDisconnected,
  // kProtocolError.
  Result<bool> Receive();
  [[nodiscard]] Frame frame() const { return reader_.frame(); }
  [[nodiscard]] ByteSpan raw() const { return reader_.raw(); }
  // Done with the frame: the next one may be received.
  void Next() { reader_.Next(); }
  void set_max_body(std::size_t max_body) { reader_.set_max_body(max_body); }

  // Appends what to poll for: input, and room for output when there is some.
  void AddPollEntries(std::vector<pollfd>& out) const;
  // Whether Receive may find something though no descriptor says so.
  [[nodiscard]] bool HasBufferedInput() const { return stream_->HasBufferedInput(); }

  // Whether the peer has closed its end, whatever it sent before. No wait.
  [[nodiscard]] bool PeerHasEnded() const;

  // Blocks until everything is written, or the deadline.
  Status SendAll(std::vector<std::byte> frame, Deadline deadline);
  // Blocks until a whole frame is there, or the deadline.
  Status Await(Deadline deadline);

  [[nodiscard]] tcp::ByteStream& stream() { return *stream_; }
  // Only between frames.
  [[nodiscard]] std::unique_ptr<tcp::ByteStream> TakeStream() { return std::move(stream_); }
  void GiveStream(std::unique_ptr<tcp::ByteStream> stream) { stream_ = std::move(stream); }

 private:
  Status WaitForStream(Deadline deadline);

  std::unique_ptr<tcp::ByteStream> stream_;
  FrameReader reader_;
  std::vector<std::byte> output_;
};

}  // namespace rdfs::transport::session
