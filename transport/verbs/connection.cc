#include "transport/verbs/connection.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <system_error>
#include <thread>
#include <utility>

#include "transport/base/log.h"
#include "transport/verbs/errors.h"

namespace rdfs::transport::verbs {
namespace {

enum class WakeSource : std::uint32_t { kCompletions, kConnectionManager, kNudgeTimer };

Status AddToEpoll(int epoll, int fd, WakeSource source) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(source);
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return Status::Ok();
  return Status::FromErrno(errno, "epoll_ctl");
}

}  // namespace

VerbsConnection::VerbsConnection(CmChannel channel, CmIdPtr id, std::shared_ptr<Domain> domain)
    : channel_(std::move(channel)), id_(std::move(id)), domain_(std::move(domain)) {}

Result<std::unique_ptr<VerbsConnection>> VerbsConnection::Create(CmChannel& channel, CmIdPtr& id,
                                                                 std::shared_ptr<Domain> domain) {
  std::unique_ptr<VerbsConnection> connection(
      new VerbsConnection(std::move(channel), std::move(id), std::move(domain)));
  if (const Status built = connection->Build(); !built.ok()) {
    connection->outbox_.reset();
    connection->queue_pair_.reset();
    channel = std::move(connection->channel_);
    id = std::move(connection->id_);
    return built;
  }
  return connection;
}

Status VerbsConnection::Build() {
  RDFS_ASSIGN_OR_RETURN(const DeviceInDomain device, AttachDevice(*domain_, id_->verbs));
  device_index_ = device.index;
  RDFS_ASSIGN_OR_RETURN(queue_pair_, QueuePair::Create(id_.get(), device));
  outbox_ = std::make_unique<Outbox>(*queue_pair_, credits_);
  capabilities_ = {.kind = Kind::kVerbs,
                   .passive_progress = false,
                   .encrypted = false,
                   .max_outstanding = limits().max_transfers,
                   .max_transfer_bytes = limits().max_transfer_bytes};
  wake_fd_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!wake_fd_.valid()) return Status::FromErrno(errno, "epoll_create1");
  RDFS_RETURN_IF_ERROR(AddToEpoll(wake_fd_.get(), queue_pair_->fd(), WakeSource::kCompletions));
  return AddToEpoll(wake_fd_.get(), channel_.fd(), WakeSource::kConnectionManager);
}

VerbsConnection::~VerbsConnection() {
  if (outbox_ != nullptr && over_.ok()) {
    // A peer that has ended it already hears no goodbye.
    std::array<Completion, QueuePair::kPollBatch> ignored;
    while (!ending() && HandleCompletions(ignored) > 0) assembled_delivered_ = false;
    if (!ending()) SayBye();
  }
  // ~QueuePair puts the queue pair in error and waits until the device has let go of our buffers.
  AsOwner([this] {
    queue_pair_.reset();
    id_.reset();
  });
}

void VerbsConnection::SayBye() {
  outbox_->SayBye();
  PostSends();
  if (!abandoned_) WaitUntilByeHasGone();
}

// What was sent just before the end should arrive: once the queue pair is in error, the device
// drops what it has not sent.
void VerbsConnection::WaitUntilByeHasGone() {
  const Deadline deadline = DeadlineAfter(kByeLimit);
  while (!ending() && !outbox_->bye_has_gone() && BootClock::now() < deadline) {
    const Result<std::span<const ibv_wc>> some = queue_pair_->PollCompletions();
    if (!some.ok()) return;
    for (const ibv_wc& completion : *some) {
      if (completion.status != IBV_WC_SUCCESS) return;
      const WorkId id = WorkId::FromRaw(completion.wr_id);
      if (id.kind() == WorkKind::kSend) outbox_->OnSent(id.value());
    }
    if ((*some).empty()) std::this_thread::yield();
  }
}

Status VerbsConnection::Open() {
  outbox_->Open();
  if (limits().misses_first_frame) RDFS_RETURN_IF_ERROR(StartNudging());
  return Flush();
}

Status VerbsConnection::StartNudging() {
  nudge_timer_.Reset(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!nudge_timer_.valid()) return Status::FromErrno(errno, "timerfd_create");
  const timespec interval{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kNudgeInterval).count()};
  const itimerspec every{.it_interval = interval, .it_value = interval};
  if (timerfd_settime(nudge_timer_.get(), 0, &every, nullptr) != 0) {
    return Status::FromErrno(errno, "timerfd_settime");
  }
  return AddToEpoll(wake_fd_.get(), nudge_timer_.get(), WakeSource::kNudgeTimer);
}

// Poll posts it. Another frame makes the peer's driver look at the one before it, too.
void VerbsConnection::Nudge() {
  std::uint64_t ticks = 0;
  if (read(nudge_timer_.get(), &ticks, sizeof(ticks)) < 0) return;
  if (nudges_left_-- > 0) {
    outbox_->Nudge();
  } else {
    nudge_timer_.Reset();
  }
}

std::string VerbsConnection::Describe() const {
  return fmt::format("verbs {} {}", ibv_get_device_name(id_->verbs->device),
                     AddressText(rdma_get_peer_addr(id_.get())));
}

Status VerbsConnection::Send(std::span<const ByteSpan> parts) {
  std::size_t size = 0;
  for (const ByteSpan part : parts) {
    if (part.size() > kMaxMessageBytes - size) {
      return {Code::kInvalidArgument, "a message above kMaxMessageBytes"};
    }
    size += part.size();
  }
  if (!over_.ok()) return over_;
  if (!ending()) outbox_->Send(parts, size);
  return Status::Ok();
}

Status VerbsConnection::Flush() {
  if (!over_.ok()) return over_;
  PostSends();
  return Status::Ok();
}

// A post fails when the queue pair has ended already: why is told by completions and events that
// Poll is still to see, and so is what had arrived before.
void VerbsConnection::PostSends() {
  outbox_->Pump();
  if (!queue_pair_->has_queued_sends()) return;
  Status posted;
  const auto post = [&] { posted = queue_pair_->PostSends(); };
  if (queue_pair_->posts_by_system_call()) {
    AsOwner(post);
  } else {
    post();
  }
  if (!posted.ok()) {
    BeginEnding({Code::kDisconnected, "the RDMA connection has ended: " + posted.message()});
  }
}

void VerbsConnection::BeginEnding(Status why) {
  if (ending_.ok()) ending_ = std::move(why);
}

Result<bool> VerbsConnection::Arm() {
  if (!over_.ok()) return over_;
  PostSends();
  if (ending() || used_slot_count_ > 0 || !batch_.empty() || !empty_transfers_.empty()) {
    return false;
  }
  // Else the sleep would end at once. An event that is still on its way does that.
  if (armed_ && std::exchange(came_since_armed_, false)) (void)ConsumeEvents();
  if (ending()) return false;
  if (!armed_) {
    if (const Status armed = queue_pair_->Arm(); !armed.ok()) {
      BeginEnding({Code::kDisconnected, armed.message()});
      return false;
    }
    armed_ = true;
    came_since_armed_ = false;
  }
  // What came between the last look and the arming raises no event.
  RDFS_ASSIGN_OR_RETURN(batch_, queue_pair_->PollCompletions());
  if (!batch_.empty()) return false;
  polls_until_look_ = 1;  // a wake-up may be the connection manager's
  return true;
}

void VerbsConnection::LookAtEvents() {
  polls_until_look_ = kPollsBetweenLooks;
  // Most often it is completions, and the rest keeps wake_fd_ readable.
  if (armed_ && ConsumeEvents()) return;
  std::array<epoll_event, 3> ready{};
  const int count = epoll_wait(wake_fd_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const WakeSource source{ready[static_cast<std::size_t>(i)].data.u32};
    if (source == WakeSource::kCompletions) {
      ConsumeEvents();
      continue;
    }
    if (source == WakeSource::kNudgeTimer) {
      Nudge();
      continue;
    }
    Result<std::optional<CmEvent>> event = std::optional<CmEvent>();
    AsOwner([&] { event = channel_.Next(); });
    if (!event.ok()) return BeginEnding({Code::kDisconnected, event.status().message()});
    if (*event) HandleCmEvent(**event);
  }
}

bool VerbsConnection::ConsumeEvents() {
  const Result<bool> consumed = queue_pair_->ConsumeEvents();
  if (!consumed.ok()) {
    BeginEnding({Code::kDisconnected, consumed.status().message()});
    return true;
  }
  if (*consumed) armed_ = false;
  return *consumed;
}

void VerbsConnection::HandleCmEvent(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ESTABLISHED:    // the passive side; the first frame tells the same
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:  // the queue pair's number may be used again
      return;
    case RDMA_CM_EVENT_ADDR_CHANGE:  // the queue pair stays with the port that it was made on
      return BeginEnding(
          {Code::kDisconnected,
           "the network interface changed its address (a bond's other link took over)"});
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return BeginEnding({Code::kDisconnected, "the RDMA device was removed"});
    case RDMA_CM_EVENT_DISCONNECTED:
      return BeginEnding({Code::kDisconnected, "the peer closed the connection"});
    default:
      return BeginEnding(
          {Code::kDisconnected, fmt::format("the RDMA connection failed ({}, {})",
                                            rdma_event_str(event.type), event.status)});
  }
}

Result<RemoteRegion> VerbsConnection::Share(const MemoryRegion& region) {
  if (!over_.ok()) return over_;
  if (region.domain() != domain_.get()) {
    return Status(Code::kInvalidArgument, "the region is of another domain than the connection");
  }
  if (region.access() == Access::kLocal) {
    return Status(Code::kInvalidArgument, "a local region cannot be shared");
  }
  RDFS_ASSIGN_OR_RETURN(const DeviceRegistration* registration,
                        RegistrationOf(region, device_index_));
  return RemoteRegion{.address = reinterpret_cast<std::uintptr_t>(region.bytes().data()),
                      .length = region.size(),
                      .key = registration->remote_key()};
}

Status VerbsConnection::MayMove(const MemoryRegion& region) const {
  return RegistrationOf(region, device_index_).status();
}

void VerbsConnection::KeepCredentials() {
  try {
    clerk_ = std::make_unique<Clerk>();
  } catch (const std::system_error& error) {
    BeginEnding({Code::kResourceExhausted, error.code().value(), "cannot start another thread"});
  }
}

// The key belongs to the registration, which other connections of the domain use too.
void VerbsConnection::Unshare(const MemoryRegion& /*region*/) {}

}  // namespace rdfs::transport::verbs
