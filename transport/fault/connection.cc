#include "transport/fault/connection.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace rdfs::transport::fault {
namespace {

// What may be held back; beyond it the inner connection is left to queue.
constexpr std::size_t kMostHeld = 1024;
// So that the completions' dice differ from the posts'.
constexpr std::uint64_t kCompletionSalt = 0x636f'6d70'6c65'7465;

bool Watch(const Fd& epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

FaultyConnection::FaultyConnection(std::unique_ptr<Connection> inner, const Plan& plan)
    : plan_(plan),
      capabilities_(inner->capabilities()),
      description_(inner->Describe() + " with faults"),
      inner_(std::move(inner)),
      fd_(inner_->fd()),
      posts_(plan.seed),
      completions_(plan.seed ^ kCompletionSalt) {
  if (plan_.drop_connection == 0 && plan_.drop_after_operations == 0) return;
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  broken_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (Watch(epoll_, inner_->fd()) && Watch(epoll_, broken_.get())) {
    fd_ = epoll_.get();
  } else {
    over_ = Status(Code::kResourceExhausted, "no descriptors are left to inject faults with");
  }
}

Status FaultyConnection::Break() {
  over_ = Status(Code::kDisconnected, "the fault plan broke the connection");
  inner_.reset();
  held_.clear();
  eventfd_write(broken_.get(), 1);
  return over_;
}

Status FaultyConnection::Operation() {
  if (!over_.ok()) return over_;
  ++operations_;
  const bool dropped = posts_.Throw(plan_.drop_connection);
  return dropped || operations_ == plan_.drop_after_operations ? Break() : Status();
}

Status FaultyConnection::Send(std::span<const ByteSpan> parts) {
  RDFS_RETURN_IF_ERROR(Operation());
  return inner_->Send(parts);
}

std::size_t FaultyConnection::backlog_bytes() const {
  return inner_ == nullptr ? 0 : inner_->backlog_bytes();
}

Result<Ticket> FaultyConnection::Read(const LocalSlice& to, const RemoteSlice& from, Order order) {
  RDFS_RETURN_IF_ERROR(Operation());
  if (posts_.Throw(plan_.busy)) return Status(Code::kBusy, "the fault plan says busy");
  return inner_->Read(to, from, order);
}

Result<Ticket> FaultyConnection::Write(const LocalSlice& from, const RemoteSlice& to) {
  RDFS_RETURN_IF_ERROR(Operation());
  if (posts_.Throw(plan_.busy)) return Status(Code::kBusy, "the fault plan says busy");
  return inner_->Write(from, to);
}

Status FaultyConnection::Flush() {
  if (!over_.ok()) return over_;
  return inner_->Flush();
}

Status FaultyConnection::TakeIn() {
  std::array<Completion, 16> came;
  while (held_.size() < kMostHeld) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, inner_->Poll(came));
    if (count == 0) break;
    for (Completion& completion : std::span(came).first(count)) {
      Held held{.completion = std::move(completion), .bytes = {}, .due = polls_};
      if (completions_.Throw(plan_.delay_completion)) held.due += plan_.delay_polls;
      if (!held_.empty()) held.due = std::max(held.due, held_.back().due);
      const ByteSpan message = held.completion.message;
      held.bytes.assign(message.begin(), message.end());
      held_.push_back(std::move(held));
    }
  }
  return {};
}

Result<std::size_t> FaultyConnection::Poll(std::span<Completion> out) {
  reported_.clear();
  ++polls_;
  if (inner_ == nullptr) return over_;
  // What the inner connection reported before it ended comes first, with its delays.
  if (over_.ok()) over_ = TakeIn();
  std::size_t count = 0;
  while (count < out.size() && !held_.empty() && held_.front().due <= polls_) {
    reported_.push_back(std::move(held_.front()));
    held_.pop_front();
    out[count] = reported_.back().completion;
    out[count].message = reported_.back().bytes;
    ++count;
  }
  if (count == 0 && held_.empty() && !over_.ok()) return over_;
  return count;
}

Result<bool> FaultyConnection::Arm() {
  if (!held_.empty()) return false;
  if (!over_.ok()) return over_;
  return inner_->Arm();
}

Result<RemoteRegion> FaultyConnection::Share(const MemoryRegion& region) {
  if (!over_.ok()) return over_;
  return inner_->Share(region);
}

void FaultyConnection::Unshare(const MemoryRegion& region) {
  if (inner_ != nullptr) inner_->Unshare(region);
}

}  // namespace rdfs::transport::fault
