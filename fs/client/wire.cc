#include "fs/client/wire.h"

#include <sys/epoll.h>

#include <cerrno>

namespace rdfs::fs::client {
namespace {

// Batches in one Poll: enough to empty a busy connection, few enough to look at the rest of the
// worker's work in between.
constexpr int kBatches = 4;

}  // namespace

void Wire::Fail(Status why) {
  if (failure_.ok()) failure_ = std::move(why);
}

void Wire::Connect(std::unique_ptr<transport::Connection> connection) {
  connection_ = std::move(connection);
  failure_ = Status();
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connection_->fd(), &event) != 0) {
    Fail(Status::FromErrno(errno, "epoll_ctl"));
  }
}

std::unique_ptr<transport::Connection> Wire::Disconnect() {
  if (connection_ == nullptr) return nullptr;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, connection_->fd(), nullptr);
  in_flight_.ForEach([this](std::uint64_t, const Operation& operation) {
    if (buffers_.Contains(operation.local)) quarantine_.push_back(operation.local);
  });
  in_flight_.Clear();
  // No device has seen these.
  for (const Operation& operation : waiting_) EndUse(operation);
  waiting_.clear();
  failure_ = Status();
  return std::move(connection_);
}

void Wire::EndQuarantine() {
  for (const transport::LocalSlice& slice : quarantine_) buffers_.EndOperation(slice);
  quarantine_.clear();
}

void Wire::Read(Slot slot, const transport::LocalSlice& to, const transport::RemoteSlice& from,
                transport::Order order) {
  Post({.slot = slot, .write = false, .order = order, .local = to, .remote = from});
}

void Wire::Write(Slot slot, const transport::LocalSlice& from, const transport::RemoteSlice& to) {
  Post({.slot = slot, .write = true, .local = from, .remote = to});
}

void Wire::Post(const Operation& operation) {
  if (!connected()) return;
  // In use from here on: one that waits must not find its pages given to somebody else.
  if (buffers_.Contains(operation.local)) buffers_.BeginOperation(operation.local);
  if (!waiting_.empty() || !TryPost(operation)) waiting_.push_back(operation);
}

// False when the transport has no room for it now.
bool Wire::TryPost(const Operation& operation) {
  Result<transport::Ticket> ticket =
      operation.write ? connection_->Write(operation.local, operation.remote)
                      : connection_->Read(operation.local, operation.remote, operation.order);
  if (!ticket.ok()) {
    if (ticket.status().code() == Code::kBusy) return false;
    // Ranges were checked before: what is refused here is a connection that is over, or a bug, and
    // going on without this operation would be worse than connecting anew.
    Fail(ticket.status().WithContext("posting a one-sided operation"));
    EndUse(operation);
    return true;
  }
  in_flight_.Insert(*ticket, operation);
  posted_ = true;
  if (operation.write) events_.OnWritePosted(operation.slot);
  return true;
}

void Wire::EndUse(const Operation& operation) {
  if (buffers_.Contains(operation.local)) buffers_.EndOperation(operation.local);
}

void Wire::PostWaiting() {
  while (connected() && !waiting_.empty() && TryPost(waiting_.front())) waiting_.pop_front();
}

void Wire::Send(std::span<const ByteSpan> parts) {
  if (!connected()) return;
  if (Status sent = connection_->Send(parts); !sent.ok()) Fail(std::move(sent));
}

void Wire::Flush() {
  if (!connected()) return;
  if (Status flushed = connection_->Flush(); !flushed.ok()) Fail(std::move(flushed));
}

void Wire::Poll() {
  for (int batch = 0; batch < kBatches && connected(); ++batch) {
    posted_ = false;
    Result<std::size_t> count = connection_->Poll(completions_);
    if (!count.ok()) {
      Fail(count.status());
      return;
    }
    for (std::size_t i = 0; i < *count && connected(); ++i) {
      const transport::Completion& completion = completions_[i];
      if (completion.kind == transport::Completion::Kind::kMessage) {
        events_.OnMessage(completion.message);
        continue;
      }
      const std::optional<Operation> operation = in_flight_.Take(completion.ticket);
      if (!operation) continue;
      EndUse(*operation);
      events_.OnOperationDone(operation->slot, completion.status);
    }
    PostWaiting();
    // What was posted meanwhile may be done already (shm).
    if (*count < completions_.size() && !posted_) return;
  }
}

bool Wire::Arm() {
  if (!connected()) return failure_.ok();
  Result<bool> armed = connection_->Arm();
  if (!armed.ok()) {
    Fail(armed.status());
    return false;
  }
  return *armed;
}

}  // namespace rdfs::fs::client
