#include "tools/pipe/library/stream.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include "tools/pipe/send/delivery.h"
#include "transport/base/signals_blocked.h"

using rdfs::Code;
using rdfs::Result;
using rdfs::Status;
using rdfs::pipe::Delivery;
using rdfs::pipe::FailedHop;
using rdfs::pipe::Handover;

namespace {

// So long a sender that does not answer is waited for at the end.
constexpr std::chrono::seconds kToTell{10};

// One sentence for all receivers that have not got it.
Status WhyNotAll(const Delivery& delivery) {
  if (delivery.failed.empty()) return delivery.status;
  std::string text;
  for (const FailedHop& hop : delivery.failed) {
    if (!text.empty()) text += "; ";
    text += hop.name + ": " + hop.why.message();
  }
  const Status& first = delivery.failed.front().why;
  return {first.code(), first.errno_value(), text};
}

}  // namespace

Result<std::unique_ptr<rdfs_pipe>> rdfs_pipe::Make() {
  RDFS_ASSIGN_OR_RETURN(auto bytes, Handover::Create());
  RDFS_ASSIGN_OR_RETURN(rdfs::EventFd interrupt, rdfs::EventFd::Create());
  return std::unique_ptr<rdfs_pipe>(new rdfs_pipe(std::move(bytes), std::move(interrupt)));
}

Result<std::unique_ptr<rdfs_pipe>> rdfs_pipe::Send(rdfs::pipe::SendOptions options) {
  RDFS_ASSIGN_OR_RETURN(auto made, Make());
  {
    const rdfs::SignalsBlocked blocked;
    made->driver_ =
        std::thread([raw = made.get(), options = std::move(options)] { raw->Deliver(options); });
  }
  {
    // The driver waits for the receiver with a deadline.
    std::unique_lock lock(made->mutex_);
    made->changed_.wait(lock, [&] { return !made->how_.empty() || made->status_; });
    if (made->how_.empty()) return *made->status_;
  }
  return made;
}

Result<std::unique_ptr<rdfs_pipe>> rdfs_pipe::Listen(rdfs::pipe::ReceiveOptions options) {
  RDFS_ASSIGN_OR_RETURN(auto made, Make());
  const rdfs::SignalsBlocked blocked;
  RDFS_ASSIGN_OR_RETURN(made->reception_,
                        rdfs::pipe::Reception::Create(std::move(options), made->bytes_));
  made->driver_ = std::thread([raw = made.get()] { raw->Receive(); });
  return made;
}

rdfs_pipe::~rdfs_pipe() {
  {
    std::unique_lock lock(mutex_);
    // What a reader has seen whole, its sender is still to be told of.
    if (whole_) changed_.wait_for(lock, kToTell, [this] { return status_.has_value(); });
    stop_ = true;
    interrupt_.Ring();
  }
  if (driver_.joinable()) driver_.join();
}

void rdfs_pipe::Deliver(const rdfs::pipe::SendOptions& options) {
  rdfs::pipe::Progress unseen(false, "librdfs", rdfs::BootClock::now());
  Ended(WhyNotAll(rdfs::pipe::Deliver(options, rdfs::pipe::Source::OfProgram(bytes_, stop_), stop_,
                                      interrupt_.fd(), unseen,
                                      [this](const std::string& how) { Reached(how); })));
}

void rdfs_pipe::Receive() {
  Ended(reception_->Run(interrupt_.fd(), false, [this](const std::string& how) { Reached(how); })
            .status);
}

void rdfs_pipe::Reached(const std::string& how) {
  const std::lock_guard lock(mutex_);
  how_ = how;
  changed_.notify_all();
}

void rdfs_pipe::Ended(Status status) {
  bytes_->Break(status);
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  changed_.notify_all();
}

int rdfs_pipe::Tell(const Status& status) {
  if (status.ok()) return 0;
  const std::lock_guard lock(mutex_);
  sentence_ = status.message();
  return -status.errno_value();
}

ssize_t rdfs_pipe::Write(rdfs::ByteSpan bytes) {
  if (reception_ != nullptr) {
    return Tell({Code::kInvalidArgument, "this end of the stream is for reading"});
  }
  const Status status = bytes_->Write(bytes);
  return status.ok() ? static_cast<ssize_t>(bytes.size()) : Tell(status);
}

ssize_t rdfs_pipe::Read(rdfs::MutableByteSpan room,
                        std::optional<std::chrono::milliseconds> limit) {
  if (reception_ == nullptr) {
    return Tell({Code::kInvalidArgument, "this end of the stream is for writing"});
  }
  if (room.empty()) return Tell({Code::kInvalidArgument, "there is no room to read into"});
  const auto got = bytes_->Read(room, limit);
  if (!got.ok()) return Tell(got.status());
  if (*got == 0) {
    const std::lock_guard lock(mutex_);
    whole_ = true;
  }
  return static_cast<ssize_t>(*got);
}

Status rdfs_pipe::Join() {
  const std::lock_guard joining(joining_);
  if (driver_.joinable()) driver_.join();
  const std::lock_guard lock(mutex_);
  return *status_;
}

int rdfs_pipe::Finish() {
  if (reception_ == nullptr) {
    bytes_->End();
    return Tell(Join());
  }
  {
    const std::lock_guard lock(mutex_);
    if (!whole_ && !status_) {
      sentence_ = "the stream has not been read to its end";
      return -EINVAL;
    }
  }
  return Tell(Join());
}

std::string rdfs_pipe::transport() const {
  const std::lock_guard lock(mutex_);
  return how_;
}

const char* rdfs_pipe::sentence() const {
  thread_local std::string own;
  const std::lock_guard lock(mutex_);
  own = sentence_;
  return own.c_str();
}
