#include "tools/pipe/receive/relay.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace rdfs::pipe {
namespace {

constexpr int kPipeBytes = 1 << 20;  // as in io/source.cc
// How often a Finish that waits looks whether it is still wanted.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Result<std::unique_ptr<Relay>> Relay::Create(SendOptions options, bool resumes) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno(errno, "cannot make a pipe");
  Fd from(ends[0]);
  Fd into(ends[1]);
  (void)fcntl(into.get(), F_SETPIPE_SZ, kPipeBytes);
  RDFS_ASSIGN_OR_RETURN(EventFd interrupt, EventFd::Create());
  std::shared_ptr<Head> head;
  if (resumes) {
    RDFS_ASSIGN_OR_RETURN(head, Head::Create());
  }
  options.relayed = true;
  std::unique_ptr<Relay> relay(
      new Relay(std::move(options), std::move(head), std::move(into), std::move(interrupt)));
  relay->thread_ = std::thread([raw = relay.get(), fd = std::make_shared<Fd>(std::move(from))] {
    raw->Run(std::move(*fd));
  });
  return relay;
}

void Relay::Run(Fd from) {
  Progress unseen(false, "rdrecv", BootClock::now());
  // The source goes with Deliver, and the pipe's reading end with it: who writes gets EPIPE.
  Delivery delivery =
      Deliver(options_,
              Source::OfPipe(std::move(from), head_, length_, stop_, [this] { return OpenFile(); }),
              stop_, interrupt_.fd(), unseen);
  const std::lock_guard lock(mutex_);
  delivery_ = std::move(delivery);
  done_ = true;
  changed_.notify_all();
}

Relay::~Relay() { End(); }

void Relay::End() {
  if (!thread_.joinable()) return;
  into_.Reset();
  stop_ = true;
  interrupt_.Ring();
  thread_.join();
}

Status Relay::StartAt(Fd file, std::uint64_t have) {
  {
    const std::lock_guard lock(mutex_);
    file_ = std::move(file);
  }
  if (head_ == nullptr) return {};
  Fd head = OpenFile();
  if (have > 0 && !head.valid()) return Status::FromErrno(errno, "cannot read what there is");
  head_->Set(std::move(head), have);
  return {};
}

void Relay::ForgetFile() {
  const std::lock_guard lock(mutex_);
  file_.Reset();
}

Fd Relay::OpenFile() {
  const std::lock_guard lock(mutex_);
  return Fd(file_.valid() ? fcntl(file_.get(), F_DUPFD_CLOEXEC, 0) : -1);
}

void Relay::BreakOff(bool goes_on) {
  if (goes_on) length_ = Source::kPaused;
  End();
}

void Relay::Write(ByteSpan bytes, const StopFlag& stop) {
  if (bytes.empty()) return;
  const FrameHead head = HeadOfFrame(bytes.size(), false);
  Put(head, bytes, stop);
}

void Relay::WriteHole(std::uint64_t length, const StopFlag& stop) {
  if (length == 0) return;
  const FrameHead head = HeadOfFrame(length, true);
  Put(head, {}, stop);
}

void Relay::Put(ByteSpan head, ByteSpan bytes, const StopFlag& stop) {
  while (!(head.empty() && bytes.empty()) && !over_ && !stop) {
    const std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(head.data()), head.size()},
                                     iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
    const ssize_t put = writev(into_.get(), parts.data(), static_cast<int>(parts.size()));
    if (put > 0) {
      const auto all = static_cast<std::size_t>(put);
      const std::size_t of_head = std::min(all, head.size());
      head = head.subspan(of_head);
      bytes = bytes.subspan(all - of_head);
    } else if (put < 0 && errno != EINTR) {
      over_ = true;
    }
  }
}

std::vector<FailedHop> Relay::Finish(std::uint64_t length, const StopFlag& stop) {
  length_ = length;
  into_.Reset();
  {
    std::unique_lock lock(mutex_);
    while (!done_ && !stop) changed_.wait_for(lock, kLook);
    // How those behind us end is said by BreakOff.
    if (!done_) return {{HopName(options_.hosts.front()), {Code::kErrno, EINTR, "interrupted"}}};
  }
  End();
  if (!delivery_.status.ok() && delivery_.failed.empty()) {
    return {{HopName(options_.hosts.front()), delivery_.status}};
  }
  return delivery_.failed;
}

}  // namespace rdfs::pipe
