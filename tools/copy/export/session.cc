#include "tools/copy/export/session.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "tools/copy/export/file.h"
#include "tools/copy/file/entry.h"
#include "transport/base/host_name.h"
#include "transport/base/signals_blocked.h"
#include "transport/session/session.h"

namespace rdfs::copy {
namespace {

using fs::client::Mount;

// What is read or written at once has to fit, twice.
constexpr std::size_t kLaneBytes = 1 << 20;
constexpr std::size_t kBufferBytes = kLaneBytes / 2;
// A recall that nobody hears of keeps another client waiting.
constexpr std::chrono::milliseconds kRound{20};
constexpr std::chrono::milliseconds kNap{2};

fs::client::DialFunction Dialer(const Operand& operand, const ExportOptions& options,
                                const transport::Key& key) {
  return [operand, options, key](std::vector<std::byte> request,
                                 std::shared_ptr<transport::Domain> domain, Deadline deadline) {
    transport::DialOptions dial;
    dial.host = operand.host;
    if (operand.port != 0) dial.port = operand.port;
    dial.key = key;
    dial.require = options.require;
    dial.plaintext = options.plaintext;
    dial.require_encryption = options.require_encryption;
    dial.service = fs::kServiceName;
    dial.request = std::move(request);
    dial.deadline = deadline;
    return transport::Session::Dial(std::move(dial), std::move(domain));
  };
}

Result<transport::Key> ReadKey(const std::string& file) {
  if (file.empty()) return transport::Key();
  auto key = transport::Key::FromFile(file);
  if (key.ok()) return key;
  return Status(key.status().code(), key.status().errno_value(),
                key.status().message() + "; --key-file names a copy of the server's key");
}

}  // namespace

Result<std::unique_ptr<ExportSession>> ExportSession::Connect(const Operand& operand,
                                                              const ExportOptions& options,
                                                              std::uint16_t number,
                                                              std::atomic<bool>& stop) {
  RDFS_ASSIGN_OR_RETURN(const transport::Key key, ReadKey(options.key_file));
  fs::client::MountOptions mount;
  mount.dial = Dialer(operand, options, key);
  mount.export_name = operand.export_name;
  mount.host_name = HostName();
  mount.uid = geteuid();
  mount.gid = getegid();
  mount.flags = fs::kMountDropsNames;  // nothing is kept by name
  mount.timeout = kPatience;
  mount.lane_buffer_bytes = kLaneBytes;
  const SignalsBlocked blocked;
  auto made = Mount::Create(std::move(mount), DeadlineAfter(kPatience));
  if (!made.ok()) return made.status().WithContext(operand.base());
  std::unique_ptr<ExportSession> out(new ExportSession(*std::move(made), number, stop));
  // The first lane decides the transport, and says what is wrong with it.
  auto seat = out->Take();
  if (!seat.ok()) return seat.status().WithContext(operand.base());
  out->GiveBack(*std::move(seat));
  return out;
}

ExportSession::ExportSession(std::unique_ptr<Mount> mount, std::uint16_t number,
                             std::atomic<bool>& stop)
    : mount_(std::move(mount)),
      device_(ExportDevice(mount_->info().epoch, number)),
      stop_(stop),
      keeper_([this] { Keep(); }) {}

ExportSession::~ExportSession() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  keeper_.join();
}

FilePtr ExportSession::root() { return ExportFile::Root(*this, mount_->info().root); }

Result<ExportSession::SeatPtr> ExportSession::Take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (lost_) return Status(Code::kErrno, ENOTCONN, "the server did not answer before");
    if (!idle_.empty()) {
      // In turn, so that what has come for each of them is taken soon: see ComesAgain.
      SeatPtr seat = std::move(idle_.front());
      idle_.pop_front();
      return seat;
    }
    if (made_ < most_) {
      ++made_;
      lock.unlock();
      auto seat = Make();
      if (seat.ok()) return seat;
      lock.lock();
      // Where memory or the server allows no more, those that there are will do.
      if (--made_ == 0) return seat.status();
      most_ = made_;
    }
    given_back_.wait(lock, [this] { return lost_ || !idle_.empty() || made_ < most_; });
  }
}

Result<ExportSession::SeatPtr> ExportSession::Make() {
  RDFS_ASSIGN_OR_RETURN(auto lane, mount_->OpenLane(DeadlineAfter(kPatience)));
  const fs::client::CallContext caller{
      .uid = geteuid(), .gid = getegid(), .pid = static_cast<std::uint32_t>(getpid())};
  auto seat = std::make_unique<Seat>(std::move(lane), caller);
  auto buffer = seat->client.lane().buffers().Allocate(kBufferBytes);
  if (!buffer) return Status(Code::kBusy, "no buffer of the lane is free");
  seat->buffer = *std::move(buffer);
  return seat;
}

void ExportSession::GiveBack(SeatPtr seat) {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(seat));
  }
  given_back_.notify_one();
}

void ExportSession::Judge(const Status& status) {
  if (status.ok() || status.errno_value() != ETIMEDOUT) return;
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
  }
  stop_ = true;
  given_back_.notify_all();
}

// The server remembers what it has answered until it knows that the answer came, on whichever lane:
// a thread that does not get to run holds all the others up, and they are told EAGAIN.
bool ExportSession::ComesAgain(const Status& status, Deadline deadline) {
  const bool had_no_room = !status.ok() && status.errno_value() == EAGAIN;
  if (!had_no_room || BootClock::now() > deadline) return false;
  std::this_thread::sleep_for(kNap);
  return true;
}

void ExportSession::Release(fs::client::OpenPtr open) {
  auto seat = Take();
  if (!seat.ok()) return;
  fs::client::SyncClient& client = (*seat)->client;
  client.lane().Release(client.context(), std::move(open), [](Status&&) {});
  client.lane().Flush();
  GiveBack(*std::move(seat));
}

void ExportSession::Keep() {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, kRound, [this] { return ended_; })) {
    // Those in front have been idle for longest.
    for (std::size_t rest = idle_.size(); rest > 0 && !idle_.empty(); --rest) {
      SeatPtr seat = std::move(idle_.front());
      idle_.pop_front();
      lock.unlock();
      while (seat->client.lane().Poll() > 0) {
      }
      seat->client.lane().Flush();
      lock.lock();
      idle_.push_back(std::move(seat));
      given_back_.notify_one();
    }
  }
}

}  // namespace rdfs::copy
