#include "fs/fuse/command/serve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fs/fuse/command/dialer.h"
#include "fs/fuse/command/fuse_mount.h"
#include "fs/fuse/command/mount_point.h"
#include "fs/fuse/command/mount_watch.h"
#include "fs/fuse/command/signals.h"
#include "fs/fuse/describe.h"
#include "fs/fuse/filesystem.h"
#include "fs/fuse/worker/worker.h"
#include "fs/watch/command.h"
#include "transport/base/control_socket.h"
#include "transport/base/log.h"
#include "transport/base/memlock.h"
#include "transport/base/processors.h"
#include "transport/base/rates.h"
#include "transport/base/snapshot.h"
#include "transport/metrics/server.h"

namespace rdfs::fs::fuse {
namespace {

// What is left after the unmount serves nobody: it may take this long.
constexpr std::chrono::seconds kEndingTime{3};

// What was typed, but with the key file as it is called from everywhere.
std::string SessionOptions(const Options& options) {
  std::string out = options.option_lists;
  std::error_code failed;
  const auto key_file = std::filesystem::absolute(options.key_file, failed);
  if (options.key_file.empty() || options.key_file.front() == '/' || failed) return out;
  out += ",key_file=";
  for (const char c : key_file.string()) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// Everything of a mount, in the order in which it is made; it ends in the opposite one.
class Served {
 public:
  Served(const Options& options, StartReport& report) : options_(options), report_(report) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served();

  Status Start();
  // Until the mount is gone. Errors: a worker's.
  Status Wait();
  void EndWithin(std::chrono::milliseconds limit, int exit_code) {
    if (signals_) signals_->EndWithin(limit, exit_code);
  }

 private:
  Status Check();
  Status StartSignals();
  Status Connect();
  bool MayBeRefused() const;
  Status MountAndWork();
  void Work(Worker& worker);
  // The first worker has more to do than it can: the helper takes its share, and is made when it is
  // called for the first time. On that worker's thread.
  bool CallHelper(TimePoint now);
  Status Help();
  // Behind the worker that may have called it.
  void EndHelper();
  Status StartLog();
  // What signals do; see signals.h.
  void Stop();
  void UnmountInBackground();
  void UnmountOrDetach();
  void EndNow();
  void ShowCounters();
  Status StartMetrics();
  Status StartControl();
  Snapshot Describe() const;

  const Options& options_;
  StartReport& report_;
  Rates rates_{BootClock::now()};
  std::string mount_point_;
  std::string session_options_;  // for whoever makes a session like this one
  transport::Key key_;
  Fd log_file_;
  std::unique_ptr<SyslogPipe> syslog_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<Filesystem> filesystem_;
  std::unique_ptr<FuseMount> fuse_mount_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Workers all_workers_;
  std::mutex ending_mutex_;  // of who wakes them to end, against their end
  std::mutex failure_mutex_;
  Status failure_;
  std::unique_ptr<MountWatch> watch_;
  std::atomic<unsigned> working_{0};  // workers that run
  std::vector<std::jthread> threads_;
  std::jthread helper_thread_;              // started by the first of those
  std::atomic<bool> making_helper_{false};  // or made
  TimePoint next_try_to_help_{};            // the first worker's
  std::atomic<Worker*> helper_{nullptr};
  std::jthread unmounter_;
  std::unique_ptr<SignalThread> signals_;
  std::atomic<bool> connected_{false};
  // These ask the rest, and end first.
  std::unique_ptr<metrics::Server> metrics_;
  std::unique_ptr<ControlSocket> control_;
};

Status Served::Start() {
  RDFS_RETURN_IF_ERROR(Check());
  RDFS_RETURN_IF_ERROR(StartSignals());
  RDFS_RETURN_IF_ERROR(StartMetrics());
  RDFS_RETURN_IF_ERROR(Connect());
  connected_.store(true, std::memory_order_release);
  signals_->Enter(Phase::kMounting);
  RDFS_RETURN_IF_ERROR(MountAndWork());
  // Who is told that the mount is there may ask it at once.
  const Status asked = StartControl();
  report_.Ready(fmt::format("{} is {} over {}", mount_point_, options_.source_text,
                            mount_->info().transport));
  RDFS_RETURN_IF_ERROR(StartLog());
  if (!asked.ok()) LogWarn("`rdfs status` cannot ask this mount: {}", asked.message());
  signals_->Enter(Phase::kMounted);
  return {};
}

Status Served::Check() {
  Result<std::string> mount_point = CheckMountPoint(options_.mount_point);
  if (!mount_point.ok() && mount_point.status().errno_value() == ENOTCONN &&
      EndStaleMount(options_.mount_point).ok()) {
    LogInfo("ended a mount on {} that had lost its program", options_.mount_point);
    mount_point = CheckMountPoint(options_.mount_point);
  }
  RDFS_ASSIGN_OR_RETURN(mount_point_, std::move(mount_point));
  RDFS_RETURN_IF_ERROR(CheckFuse());
  if (options_.allow_other) RDFS_RETURN_IF_ERROR(CheckAllowOther());
  if (options_.require == transport::Kind::kVerbs) {
    RDFS_RETURN_IF_ERROR(CheckMemlock(MemlockLimit()));
  }
  RDFS_ASSIGN_OR_RETURN(key_, ReadKey(options_));
  session_options_ = SessionOptions(options_);
  if (!options_.log_file.empty()) {
    RDFS_ASSIGN_OR_RETURN(log_file_, OpenLogFile(options_.log_file));
  }
  return {};
}

Status Served::StartSignals() {
  SignalThread::BlockSignals();
  RDFS_ASSIGN_OR_RETURN(signals_,
                        SignalThread::Start({.stop = [this] { Stop(); },
                                             .unmount = [this] { UnmountInBackground(); },
                                             .end_now = [this] { EndNow(); },
                                             .show_counters = [this] { ShowCounters(); }}));
  return {};
}

Status Served::Connect() {
  // The program may run for months: it must not keep the directory that it was started in busy.
  if (chdir("/") != 0) return Status::FromErrno(errno, "cannot change to /");
  RDFS_ASSIGN_OR_RETURN(client::MountOptions mount,
                        MakeMountOptions(options_, key_, report_.detached()));
  if (KernelHasEpochs()) mount.flags |= kMountDropsNames;
  const Deadline deadline = DeadlineAfter(options_.deadline);
  RDFS_ASSIGN_OR_RETURN(mount_, client::Mount::Create(std::move(mount), deadline));
  filesystem_ = std::make_unique<Filesystem>(
      *mount_, FilesystemOptions{
                   .writeback = options_.writeback,
                   .strict = options_.strict,
                   .direct_writes = !options_.writeback && KernelDropsPagesAfterWrites(),
                   // With its writeback cache the kernel answers writes by itself.
                   .early_writes = !options_.writeback && !options_.sync,
                   // Of several workers each would read ahead of the others' requests.
                   .prefetch_kib = options_.workers.value_or(1) > 1 ? 0 : options_.prefetch_kib,
                   .asks_at_opendir = MayBeRefused(),
                   .deadline = options_.deadline});
  return {};
}

// Whether the server may refuse a directory that this kernel lets somebody open: root here may be
// nobody there, and of other users' groups each host has its own idea.
bool Served::MayBeRefused() const {
  const bool root_is_root = (mount_->info().flags & kGrantRootIsRoot) != 0;
  return options_.allow_other || (geteuid() == 0 && !root_is_root);
}

Status Served::MountAndWork() {
  const Deadline deadline = DeadlineAfter(options_.deadline);
  std::vector<std::unique_ptr<client::Lane>> lanes;
  for (unsigned i = 0; i < options_.workers.value_or(1); ++i) {
    Result<std::unique_ptr<client::Lane>> lane = mount_->OpenLane(deadline);
    if (!lane.ok() && i > 0 && lane.status().code() == Code::kResourceExhausted) {
      LogWarn("{} of {} workers have to do: {}", i, *options_.workers, lane.status().message());
      break;
    }
    RDFS_RETURN_IF_ERROR(lane.status());
    lanes.push_back(*std::move(lane));
  }
  filesystem_->transfer_bytes =
      TransferBytes(mount_->info().max_transfer_bytes, lanes.front()->buffers().free_bytes());
  RDFS_ASSIGN_OR_RETURN(fuse_mount_, FuseMount::Create(options_, mount_point_, *filesystem_));
  for (std::unique_ptr<client::Lane>& lane : lanes) {
    RDFS_ASSIGN_OR_RETURN(
        std::unique_ptr<Worker> worker,
        Worker::Create(fuse_mount_->session(), *filesystem_, std::move(lane), all_workers_));
    workers_.push_back(std::move(worker));
  }
  RDFS_ASSIGN_OR_RETURN(watch_, MountWatch::Create());
  for (const auto& worker : workers_) all_workers_.Add(*worker);
  Worker* const first = workers_.front().get();
  filesystem_->kernel.Start(fuse_mount_->session(), workers_.size() > 1,
                            [first] { first->Wake(); });
  if (!options_.workers && Processors() > 1)
    first->set_call_helper([this](TimePoint now) { return CallHelper(now); });
  working_ = static_cast<unsigned>(workers_.size());
  for (Worker* const worker : all_workers_) {
    threads_.emplace_back([this, worker] {
      Work(*worker);
      if (working_.fetch_sub(1) == 1) watch_->Wake();
    });
  }
  return fuse_mount_->WaitUntilUp(options_.read_ahead_kib);
}

void Served::Work(Worker& worker) {
  Status ended = worker.Run();
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_.ok()) failure_ = std::move(ended);
  }
  EndNow();
}

bool Served::CallHelper(TimePoint now) {
  if (Worker* const helper = helper_.load()) {
    helper->Call(now);
    return true;
  }
  if (now < next_try_to_help_ || making_helper_.exchange(true)) return false;
  next_try_to_help_ = now + std::chrono::seconds(10);
  filesystem_->kernel.ServeSeveralWorkers();
  try {
    helper_thread_ = std::jthread([this] {
      const Status made = Help();
      if (made.ok()) return;
      LogInfo("one worker has to do: {}", made.message());
      making_helper_ = false;
    });
  } catch (const std::system_error& error) {
    LogInfo("one worker has to do: {}", error.what());
    making_helper_ = false;
  }
  return false;
}

Status Served::Help() {
  constexpr std::chrono::seconds kPatience{5};
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<client::Lane> lane,
                        mount_->OpenLaneBeside(DeadlineAfter(kPatience)));
  if (TransferBytes(mount_->info().max_transfer_bytes, lane->buffers().free_bytes()) <
      filesystem_->transfer_bytes) {
    return {Code::kResourceExhausted, "there is not enough memory for the buffers of another"};
  }
  RDFS_ASSIGN_OR_RETURN(
      std::unique_ptr<Worker> worker,
      Worker::Create(fuse_mount_->session(), *filesystem_, std::move(lane), all_workers_));
  worker->set_helps();
  workers_.push_back(std::move(worker));
  Worker& helper = *workers_.back();
  all_workers_.Add(helper);
  helper_ = &helper;
  LogInfo("a second worker helps the first");
  Work(helper);
  return {};
}

// It may have begun when the others were told to end.
void Served::EndHelper() {
  if (!helper_thread_.joinable()) return;
  EndNow();
  helper_thread_.join();
}

Status Served::StartLog() {
  if (log_file_.valid()) return RedirectStandardError(log_file_);
  if (!report_.detached()) return {};
  RDFS_ASSIGN_OR_RETURN(syslog_, SyslogPipe::Create("rdfs"));
  return {};
}

Status Served::Wait() {
  if (watch_->Wait(
          fuse_mount_->device(), [this] { return mount_->health().ok(); },
          [this] { filesystem_->kernel.MachineSlept(); })) {
    LogWarn("{} was detached, and its server is not there: what still uses it gets an error",
            mount_point_);
    EndNow();
  }
  for (std::jthread& thread : threads_) thread.join();
  threads_.clear();
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Served::Stop() {
  report_.Failed("stopped by a signal before it had mounted");
  _exit(kExitFailure);
}

void Served::UnmountInBackground() {
  unmounter_ = std::jthread([this] { UnmountOrDetach(); });
}

void Served::UnmountOrDetach() {
  const Status unmounted = fuse_mount_->Unmount();
  if (fuse_session_exited(fuse_mount_->session()) != 0) return;
  if (!unmounted.ok()) {
    if (unmounted.code() != Code::kNotFound) {
      const Status detached = fuse_mount_->Detach();
      if (!detached.ok()) LogWarn("{}", detached.message());
    }
    LogWarn(
        "{} is in use: it is detached, and ends when the programs that use it let go of it, in {} "
        "s at the latest, or at another signal",
        mount_point_, options_.deadline.count());
  }
  // Unmounted it is over at once, unless a bind mount or another mount namespace has it as well.
  const Deadline deadline = DeadlineAfter(options_.deadline);
  while (fuse_session_exited(fuse_mount_->session()) == 0 && BootClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EndNow();
}

void Served::EndNow() {
  const std::lock_guard lock(ending_mutex_);
  fuse_session_exit(fuse_mount_->session());
  for (const Worker* worker : all_workers_) worker->Wake();
}

void Served::ShowCounters() { LogLine(LogLevel::kInfo, DescribeCounters(Describe())); }

// Before anything is asked of the server: a place that is taken is told to whoever mounts. Until
// the mount is there, there is nothing to tell of it.
Status Served::StartMetrics() {
  if (!options_.metrics) return {};
  RDFS_ASSIGN_OR_RETURN(metrics_, metrics::Server::Listen(*options_.metrics, [this] {
                          const bool known = connected_.load(std::memory_order_acquire);
                          return known ? ToPrometheus(Describe()) : std::string();
                        }));
  return {};
}

// Without it a mount is as good: only nobody can ask.
Status Served::StartControl() {
  auto control = ControlSocket::Listen("rdfs", [this](std::string_view request) {
    if (request == "session") {
      return watch::SessionAnswer(options_.source_text, session_options_);
    }
    Snapshot snapshot = Describe();
    if (metrics_) snapshot.words.emplace_back("metrics", ToString(metrics_->address()));
    if (TellsRates(request)) {
      snapshot.rates = rates_.Look(BootClock::now(), TotalsOf(mount_->counters()));
    }
    return AnswerRequest(request, snapshot);
  });
  RDFS_RETURN_IF_ERROR(control.status());
  control_ = *std::move(control);
  return {};
}

Snapshot Served::Describe() const {
  return DescribeMount(mount_point_, options_.source_text, *filesystem_, all_workers_);
}

Served::~Served() {
  control_.reset();
  metrics_.reset();
  if (fuse_mount_) EndNow();
  threads_.clear();
  EndHelper();
  if (filesystem_) filesystem_->kernel.Silence();
  {
    const std::lock_guard lock(ending_mutex_);
    all_workers_.Clear();
  }
  // Answers what is still asked for, while the kernel listens. The first one's lane says goodbye to
  // the server, so it goes last.
  while (!workers_.empty()) workers_.pop_back();
  // Nothing that the kernel asked for is unanswered: these wait for nothing any more.
  if (filesystem_) filesystem_->kernel.Stop();
  // Closing the descriptor also frees an unmount that waits in the kernel.
  if (unmounter_.joinable() && fuse_mount_) {
    fuse_mount_->End();
    unmounter_.join();
  }
  fuse_mount_.reset();
  filesystem_.reset();
  mount_.reset();
  signals_.reset();
}

}  // namespace

int Serve(const Options& options, StartReport& report) {
  auto served = std::make_unique<Served>(options, report);
  Status outcome = served->Start();
  const bool started = outcome.ok();
  if (started) {
    outcome = served->Wait();
    if (!outcome.ok()) LogError("the mount ended: {}", outcome.message());
  }
  const int exit_code = outcome.ok() ? 0 : kExitFailure;
  served->EndWithin(kEndingTime, exit_code);
  // Behind it, so that no signal tells of the start at the same time.
  if (!started) report.Failed(outcome.message());
  served.reset();
  return exit_code;
}

}  // namespace rdfs::fs::fuse
