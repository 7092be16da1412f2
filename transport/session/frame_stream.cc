#include "transport/session/frame_stream.h"

#include <cerrno>

namespace rdfs::transport::session {

void FrameStream::Queue(std::vector<std::byte> frame) {
  output_.insert(output_.end(), frame.begin(), frame.end());
}

Status FrameStream::Flush() {
  while (!output_.empty()) {
    const iovec part{output_.data(), output_.size()};
    RDFS_ASSIGN_OR_RETURN(const std::size_t written, stream_->Write({&part, 1}));
    if (written == 0) break;
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(written));
  }
  return Status::Ok();
}

Result<bool> FrameStream::Receive() {
  for (;;) {
    const MutableByteSpan wanted = reader_.Wanted();
    if (wanted.empty()) return true;
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, stream_->Read(wanted));
    if (count == 0) return false;
    RDFS_ASSIGN_OR_RETURN(const bool whole, reader_.Filled(count));
    if (whole) return true;
  }
}

void FrameStream::AddPollEntries(std::vector<pollfd>& out) const {
  out.push_back({stream_->read_fd(), stream_->read_events(), 0});
  if (has_output()) out.push_back({stream_->write_fd(), stream_->write_events(), 0});
}

bool FrameStream::PeerHasEnded() const {
  pollfd entry{.fd = stream_->read_fd(), .events = POLLRDHUP, .revents = 0};
  return poll(&entry, 1, 0) > 0;
}

Status FrameStream::WaitForStream(Deadline deadline) {
  std::vector<pollfd> entries;
  AddPollEntries(entries);
  const TimePoint now = BootClock::now();
  if (now >= deadline) {
    return {Code::kDeadlineExceeded,
            stream_->peer() + " does not answer: is a server of rdfs running there?"};
  }
  if (poll(entries.data(), entries.size(), PollTimeoutMs(deadline, now)) < 0 && errno != EINTR) {
    return Status::FromErrno(errno, "poll");
  }
  return Status::Ok();
}

Status FrameStream::SendAll(std::vector<std::byte> frame, Deadline deadline) {
  Queue(std::move(frame));
  for (;;) {
    RDFS_RETURN_IF_ERROR(Flush());
    if (!has_output()) return Status::Ok();
    RDFS_RETURN_IF_ERROR(WaitForStream(deadline));
  }
}

Status FrameStream::Await(Deadline deadline) {
  for (;;) {
    RDFS_ASSIGN_OR_RETURN(const bool whole, Receive());
    if (whole) return Status::Ok();
    RDFS_RETURN_IF_ERROR(WaitForStream(deadline));
  }
}

}  // namespace rdfs::transport::session
