#include "server/supervisor/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "server/supervisor/closing_thread.h"
#include "server/supervisor/supervisor_packet.h"
#include "server/supervisor/supervisor_store.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/base/sigpipe.h"

namespace rdfs::server {
namespace {

// Descriptors that the supervisor needs for itself.
constexpr std::size_t kOwnDescriptors = 32;
// Who is told of one lock after the other lets them gather: waking the supervisor for each took its
// worker 20 us, two thirds of what a lock costs. The socket holds what comes in that time, and the
// end of the worker is a signal.
constexpr std::chrono::microseconds kGather{500};

// Raises the soft limit to the hard one: the worker inherits it, for the handles that it holds.
std::size_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options) : options_(options) {
    FillRandom(secret_);
    const std::size_t limit = RaiseDescriptorLimit();
    const std::size_t room = limit > kOwnDescriptors ? limit - kOwnDescriptors : 0;
    max_descriptors_ = std::min(options_.max_descriptors, room);
  }
  ~Supervisor() {
    if (old_mask_) (void)pthread_sigmask(SIG_SETMASK, &*old_mask_, nullptr);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  Result<int> Run() {
    for (Packet& packet : TakeStored()) Keep(std::move(packet));
    RDFS_RETURN_IF_ERROR(TakeSignals());
    RDFS_RETURN_IF_ERROR(StartWorker());
    if (options_.started) options_.started();
    while (!exit_code_) {
      Wait();
      ReadSignals();
      ReadWorker();
      Act(BootClock::now());
    }
    if (stopping_) StoreForTheNext();
    return *exit_code_;
  }

 private:
  Status TakeSignals();
  Status StartWorker();
  [[noreturn]] void BecomeWorker(Fd socket, pid_t parent);
  Status SayHello();
  void Wait();
  void ReadSignals();
  void ReadWorker();
  void ReadPackets();
  void Handle(Packet packet);
  void LetGo(Fd fd);
  void Keep(Packet packet);
  void Answer(const Packet& packet);
  void Reap();
  void Crashed(int signal_number);
  void Act(TimePoint now);
  void Stop(int signal_number);
  void StoreForTheNext();

  const SupervisorOptions options_;
  std::array<std::byte, 32> secret_{};
  std::size_t max_descriptors_ = 0;
  std::optional<sigset_t> old_mask_;
  Fd signals_;
  KeptRecords kept_;
  std::size_t state_bytes_ = 0;
  std::uint64_t epoch_ = 0;
  pid_t worker_ = -1;
  Fd socket_;
  ClosingThread closing_;
  std::optional<TimePoint> read_at_;  // when the worker's last packet came that asked for nothing
  bool gathers_ = false;              // and another one had come just before
  std::deque<TimePoint> crashes_;     // within the window
  std::optional<TimePoint> start_at_;
  std::optional<TimePoint> kill_at_;
  bool stopping_ = false;
  bool hung_up_ = false;  // there was a SIGHUP
  std::optional<int> exit_code_;
};

Status Supervisor::TakeSignals() {
  // Where it is ignored, as who starts rdfsd may have it, the kernel keeps no word of the worker's
  // end for us.
  (void)signal(SIGCHLD, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD}) sigaddset(&mask, number);
  sigset_t before;
  if (const int error = pthread_sigmask(SIG_BLOCK, &mask, &before); error != 0) {
    return Status::FromErrno(error, "pthread_sigmask");
  }
  old_mask_ = before;
  signals_.Reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return Status::FromErrno(errno, "signalfd");
  return Status::Ok();
}

Status Supervisor::StartWorker() {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return Status::FromErrno(errno, "socketpair");
  }
  socket_.Reset(pair[0]);
  Fd theirs(pair[1]);
  const pid_t parent = getpid();
  closing_.Join();  // the worker goes on in the child, where no other thread would be
  const pid_t child = fork();
  if (child < 0) return Status::FromErrno(errno, "cannot start rdfsd's worker");
  if (child == 0) BecomeWorker(std::move(theirs), parent);
  worker_ = child;
  // There was no worker then, or one that died before it had done anything about it.
  if (hung_up_) (void)kill(worker_, SIGHUP);
  return SayHello();
}

void Supervisor::BecomeWorker(Fd socket, pid_t parent) {
  // A worker without its supervisor would keep nothing: it ends with it, in good order.
  (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);
  kept_.clear();
  socket_.Reset();
  signals_.Reset();
  // These would end it before it reads them (SignalThread): they wait for that.
  sigset_t mask = *old_mask_;
  for (const int number : {SIGHUP, SIGUSR1}) sigaddset(&mask, number);
  (void)pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  _exit(options_.worker(socket.Release()));
}

Status Supervisor::SayHello() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  // From the clock, so that it is another across supervisors too.
  const auto clock = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
                     static_cast<std::uint64_t>(now.tv_nsec) / 1000;
  const bool restarted = epoch_ != 0;
  epoch_ = std::max(epoch_ + 1, clock);
  const HelloWire hello{.epoch = epoch_,
                        .max_descriptors = max_descriptors_,
                        .max_state_bytes = options_.max_state_bytes,
                        .restarted = restarted ? 1U : 0U,
                        .secret = secret_};
  const Status sent =
      SendPacket(socket_.get(), PacketType::kHello, {},
                 std::as_bytes(std::span<const HelloWire, 1>(&hello, 1)), -1, BootClock::now());
  // A worker that is dead already is for Reap to see.
  return sent.code() == Code::kDisconnected ? Status::Ok() : sent;
}

void Supervisor::Wait() {
  if (gathers_) {
    pollfd entry{.fd = signals_.get(), .events = POLLIN, .revents = 0};
    const timespec span{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kGather).count()};
    (void)ppoll(&entry, 1, &span, nullptr);
    return;
  }
  std::array<pollfd, 2> entries{{{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = socket_.get(), .events = POLLIN, .revents = 0}}};
  std::optional<TimePoint> until = start_at_;
  if (kill_at_ && (!until || *kill_at_ < *until)) until = kill_at_;
  const int timeout = until ? PollTimeoutMs(*until, BootClock::now()) : -1;
  (void)poll(entries.data(), entries.size(), timeout);
}

void Supervisor::ReadSignals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    switch (info.ssi_signo) {
      case SIGCHLD:
        break;  // Reap looks anyway
      case SIGHUP:
        hung_up_ = true;
        [[fallthrough]];
      case SIGUSR1:
        if (worker_ > 0) (void)kill(worker_, static_cast<int>(info.ssi_signo));
        break;
      default:
        Stop(static_cast<int>(info.ssi_signo));
    }
  }
  Reap();
}

void Supervisor::Stop(int signal_number) {
  if (worker_ > 0) (void)kill(worker_, signal_number);
  if (!stopping_) kill_at_ = BootClock::now() + options_.stop_patience;
  stopping_ = true;
  start_at_.reset();
  if (worker_ <= 0) exit_code_ = 0;
}

void Supervisor::StoreForTheNext() {
  const Status stored = StoreKept(kept_);
  if (stored.ok()) return;
  LogWarn(
      "systemd did not take all that is kept of open files, and what it lacks is lost if rdfsd "
      "starts again: {}",
      stored.message());
}

void Supervisor::ReadWorker() {
  const std::optional<TimePoint> before = std::exchange(read_at_, std::nullopt);
  ReadPackets();
  gathers_ = before && read_at_ && *read_at_ - *before < 2 * kGather;
}

void Supervisor::ReadPackets() {
  // To its end: what a worker sent before it was killed counts.
  while (socket_.valid()) {
    Result<std::optional<Packet>> packet = ReceivePacket(socket_.get());
    if (!packet.ok()) {
      if (packet.status().code() == Code::kDisconnected) {
        socket_.Reset();
        return;
      }
      LogError("from rdfsd's worker: {}", packet.status().message());
      if (packet.status().code() == Code::kErrno) return;
      continue;
    }
    if (!packet->has_value()) return;
    Handle(std::move(**packet));
  }
}

void Supervisor::Handle(Packet packet) {
  // Who fetches waits for each answer.
  read_at_ = packet.type == PacketType::kFetch ? std::nullopt : std::optional(BootClock::now());
  switch (packet.type) {
    case PacketType::kKeep:
      Keep(std::move(packet));
      break;
    case PacketType::kSetState:
      if (const auto held = kept_.find(packet.key); held != kept_.end()) {
        state_bytes_ += packet.state.size();
        state_bytes_ -= held->second.state.size();
        held->second.state = std::move(packet.state);
      }
      break;
    case PacketType::kDrop:
      if (const auto held = kept_.find(packet.key); held != kept_.end()) {
        state_bytes_ -= held->first.size() + held->second.state.size();
        LetGo(std::move(held->second.fd));
        kept_.erase(held);
      }
      break;
    case PacketType::kFetch:
      Answer(packet);
      break;
    default:
      LogError("rdfsd's worker sent packet {}, which is none", static_cast<int>(packet.type));
  }
}

void Supervisor::LetGo(Fd fd) {
  struct stat stat {};
  const bool last = fstat(fd.get(), &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_nlink == 0;
  // The worker's next packets do not wait until all of its space is free.
  if (last && static_cast<std::uint64_t>(stat.st_blocks) * 512 >= kLongToFree) {
    closing_.LetGo(std::make_shared<const Fd>(std::move(fd)));
  }
}

void Supervisor::Keep(Packet packet) {
  const auto held = kept_.find(packet.key);
  const std::size_t bytes = packet.key.size() + packet.state.size();
  const bool full = held == kept_.end() && (kept_.size() >= max_descriptors_ ||
                                            state_bytes_ + bytes > options_.max_state_bytes);
  if (full || !packet.fd.valid()) {
    LogError("rdfsd's supervisor cannot keep one more open file: a crash would lose it");
    return;
  }
  if (held != kept_.end()) {
    state_bytes_ -= held->first.size() + held->second.state.size();
  }
  state_bytes_ += bytes;
  KeptRecord& record = kept_[packet.key];
  record.state = std::move(packet.state);
  record.fd = std::move(packet.fd);
}

void Supervisor::Answer(const Packet& packet) {
  const auto next = kept_.upper_bound(packet.key);
  // One answer to each question, so there is room; a worker that has died does not read it.
  const Status sent =
      next == kept_.end()
          ? SendPacket(socket_.get(), PacketType::kEnd, {}, {}, -1, BootClock::now())
          : SendPacket(socket_.get(), PacketType::kRecord, AsBytes(next->first), next->second.state,
                       next->second.fd.get(), DeadlineAfter(std::chrono::milliseconds(100)));
  if (!sent.ok() && sent.code() != Code::kDisconnected) {
    LogError("to rdfsd's worker: {}", sent.message());
  }
}

void Supervisor::Reap() {
  if (worker_ <= 0) return;
  int status = 0;
  if (waitpid(worker_, &status, WNOHANG) != worker_) return;
  worker_ = -1;
  ReadWorker();
  socket_.Reset();
  if (WIFEXITED(status)) {
    exit_code_ = WEXITSTATUS(status);
    return;
  }
  const int number = WTERMSIG(status);
  if (stopping_) {
    // Ended by the signal that was meant to end it, unless it had to be killed.
    exit_code_ = number == SIGKILL ? 128 + SIGKILL : 0;
    return;
  }
  Crashed(number);
}

void Supervisor::Crashed(int signal_number) {
  const TimePoint now = BootClock::now();
  crashes_.push_back(now);
  while (!crashes_.empty() && crashes_.front() + options_.crash_window < now) {
    crashes_.pop_front();
  }
  const auto count = static_cast<int>(crashes_.size());
  if (count > options_.max_crashes) {
    LogError(
        "rdfsd's worker died {} times within {} s, last of signal {} ({}): giving up. The lines "
        "above and coredumpctl say why; start rdfsd again when that is mended",
        count, std::chrono::duration_cast<std::chrono::seconds>(options_.crash_window).count(),
        signal_number, strsignal(signal_number));
    exit_code_ = 1;
    return;
  }
  std::chrono::nanoseconds delay = options_.first_back_off;
  for (int i = 1; i < count && delay < options_.longest_back_off; ++i) delay *= 2;
  delay = std::min(delay, options_.longest_back_off);
  LogError("rdfsd's worker died of signal {} ({}); starting it again, with {} open files kept",
           signal_number, strsignal(signal_number), kept_.size());
  start_at_ = now + delay;
}

void Supervisor::Act(TimePoint now) {
  if (kill_at_ && now >= *kill_at_ && worker_ > 0) {
    LogWarn("rdfsd's worker does not stop: killed");
    (void)kill(worker_, SIGKILL);
    kill_at_.reset();
  }
  if (!start_at_ || now < *start_at_ || exit_code_) return;
  start_at_.reset();
  if (const Status started = StartWorker(); !started.ok()) {
    LogError("cannot start rdfsd's worker again: {}", started.message());
    exit_code_ = 1;
  }
}

}  // namespace

Result<int> RunSupervisor(const SupervisorOptions& options) {
  if (!options.worker) return Status(Code::kInvalidArgument, "a supervisor of nothing");
  IgnoreSigpipe();  // it logs that the worker has died, and who reads that may have died with it
  return Supervisor(options).Run();
}

}  // namespace rdfs::server
