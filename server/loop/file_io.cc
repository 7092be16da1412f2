#include "server/loop/file_io.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <iterator>
#include <thread>
#include <utility>

#include "transport/base/clock.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// As whom a thread touches files: setfsuid(2), setfsgid(2). A file system's reserve for root, and
// the clearing of setuid bits, go by these.
struct FsIds {
  long uid = -1, gid = -1;
  friend bool operator==(const FsIds&, const FsIds&) = default;

  // -1 changes nothing.
  static FsIds Own() { return {::syscall(SYS_setfsuid, -1), ::syscall(SYS_setfsgid, -1)}; }
  // Whether the thread has these now.
  [[nodiscard]] bool Take() const {
    (void)::syscall(SYS_setfsgid, gid);
    (void)::syscall(SYS_setfsuid, uid);
    return Own() == *this;
  }
};

}  // namespace

struct FileIo::Operation {
  enum class Kind : std::uint8_t { kRead, kWrite, kFsync, kWork };
  Kind kind = Kind::kWork;
  SharedFd fd;
  iovec buffer{};
  std::uint64_t offset = 0;
  int flags = 0;
  std::function<std::int64_t()> work;
  Done done;
  FsIds caller;  // of what a thread of ours does
  std::int64_t result = 0;

  // The same operation as a system call, on a thread of ours.
  std::int64_t Run() const {
    std::int64_t result_now = 0;
    const auto at = static_cast<off_t>(offset);
    switch (kind) {
      case Kind::kRead:
        result_now = preadv2(fd->get(), &buffer, 1, at, 0);
        break;
      case Kind::kWrite:
        result_now = pwritev2(fd->get(), &buffer, 1, at, flags);
        break;
      case Kind::kFsync:
        result_now = flags != 0 ? fdatasync(fd->get()) : fsync(fd->get());
        break;
      case Kind::kWork:
        return work();
    }
    return result_now < 0 ? -errno : result_now;
  }
};

struct FileIo::Ring {
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (started) io_uring_queue_exit(&ring);
  }
  io_uring ring{};
  bool started = false;
  std::size_t in_flight = 0;
  bool unsubmitted = false;
};

// A few threads that run operations one after another, started when there is more than they can do.
class FileIo::Threads {
 public:
  Threads(unsigned max, std::function<void()> wake) : max_(max), wake_(std::move(wake)) {}
  ~Threads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void Add(std::unique_ptr<Operation> operation) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
    if (idle_ < queue_.size() && threads_.size() < max_) {
      threads_.emplace_back([this] { Work(); });
    }
    ready_.notify_one();
  }
  std::vector<std::unique_ptr<Operation>> TakeResults() {
    const std::lock_guard lock(mutex_);
    return std::exchange(results_, {});
  }

 private:
  void Work() {
    FsIds own = FsIds::Own();
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      --idle_;
      if (queue_.empty()) return;  // and stopping: what was asked for has been done
      std::unique_ptr<Operation> operation = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const bool may = operation->caller == own || operation->caller.Take();
      own = may ? operation->caller : FsIds{};
      operation->result = may ? operation->Run() : -EPERM;
      lock.lock();
      results_.push_back(std::move(operation));
      wake_();
    }
  }

  const unsigned max_;
  const std::function<void()> wake_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable ready_;
  std::deque<std::unique_ptr<Operation>> queue_;
  std::vector<std::unique_ptr<Operation>> results_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Result<std::unique_ptr<FileIo>> FileIo::Create(const Options& options) {
  std::unique_ptr<FileIo> io(new FileIo(options));
  RDFS_ASSIGN_OR_RETURN(io->wake_, EventFd::Create());
  if (options.use_io_uring) {
    if (const Status status = io->StartRing(); !status.ok()) {
      LogDebug("file I/O uses threads: {}", status.message());
      io->ring_ = nullptr;
    }
  }
  return io;
}

FileIo::FileIo(const Options& options)
    : options_(options),
      threads_(std::make_unique<Threads>(options.max_threads, [this] { Wake(); })) {}

FileIo::~FileIo() {
  // The kernel still writes into the buffers of what is in flight.
  waiting_.clear();
  while (ring_ != nullptr && ring_->in_flight > 0) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_submit_and_wait(&ring_->ring, 1) < 0 ||
        io_uring_peek_cqe(&ring_->ring, &cqe) != 0) {
      continue;
    }
    delete static_cast<Operation*>(io_uring_cqe_get_data(cqe));
    io_uring_cqe_seen(&ring_->ring, cqe);
    --ring_->in_flight;
  }
}

Status FileIo::StartRing() {
  ring_ = std::make_unique<Ring>();
  if (const int error = io_uring_queue_init(options_.depth, &ring_->ring, 0); error < 0) {
    return Status::FromErrno(-error, "io_uring is not available");
  }
  ring_->started = true;
  (void)io_uring_ring_dontfork(&ring_->ring);
  if (const int error = io_uring_register_eventfd(&ring_->ring, wake_.fd()); error < 0) {
    return Status::FromErrno(-error, "io_uring takes no eventfd");
  }
  return Status::Ok();
}

void FileIo::Read(SharedFd fd, MutableByteSpan to, std::uint64_t offset, Done done) {
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kRead;
  operation->fd = std::move(fd);
  operation->buffer = {.iov_base = to.data(), .iov_len = to.size()};
  operation->offset = offset;
  operation->done = std::move(done);
  Start(std::move(operation));
}

void FileIo::Write(SharedFd fd, ByteSpan from, std::uint64_t offset, int flags, Done done) {
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kWrite;
  operation->fd = std::move(fd);
  operation->buffer = {.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};
  operation->offset = offset;
  operation->flags = flags;
  operation->done = std::move(done);
  Start(std::move(operation));
}

void FileIo::Fsync(SharedFd fd, bool data_only, Done done) {
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kFsync;
  operation->fd = std::move(fd);
  operation->flags = data_only ? 1 : 0;
  operation->done = std::move(done);
  Start(std::move(operation));
}

void FileIo::Offload(std::function<std::int64_t()> work, Done done) {
  auto operation = std::make_unique<Operation>();
  operation->work = std::move(work);
  operation->done = std::move(done);
  Start(std::move(operation));
}

void FileIo::Start(std::unique_ptr<Operation> operation) {
  ++in_flight_;
  if (operation->kind == Operation::Kind::kWork || ring_ == nullptr) {
    StartOnThread(std::move(operation));
  } else if (!waiting_.empty() || ring_->in_flight >= options_.depth) {
    waiting_.push_back(std::move(operation));
  } else {
    StartOnRing(std::move(operation));
  }
}

void FileIo::StartOnThread(std::unique_ptr<Operation> operation) {
  operation->caller = FsIds::Own();
  threads_->Add(std::move(operation));
}

void FileIo::StartOnRing(std::unique_ptr<Operation> operation) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_->ring);
  if (sqe == nullptr) {
    Submit();
    sqe = io_uring_get_sqe(&ring_->ring);
  }
  if (sqe == nullptr) {  // the kernel is short of memory: threads still work
    StartOnThread(std::move(operation));
    return;
  }
  const int fd = operation->fd->get();
  const auto length = static_cast<unsigned>(operation->buffer.iov_len);
  switch (operation->kind) {
    case Operation::Kind::kRead:
      io_uring_prep_read(sqe, fd, operation->buffer.iov_base, length, operation->offset);
      break;
    case Operation::Kind::kWrite:
      io_uring_prep_write(sqe, fd, operation->buffer.iov_base, length, operation->offset);
      sqe->rw_flags = operation->flags;
      break;
    case Operation::Kind::kFsync:
      io_uring_prep_fsync(sqe, fd, operation->flags != 0 ? IORING_FSYNC_DATASYNC : 0);
      break;
    case Operation::Kind::kWork:
      break;
  }
  io_uring_sqe_set_data(sqe, operation.release());
  ++ring_->in_flight;
  ring_->unsubmitted = true;
}

void FileIo::Submit() {
  if (ring_ == nullptr || !ring_->unsubmitted) return;
  // EAGAIN, EBUSY: the next Poll tries again; the entries stay queued.
  if (io_uring_submit(&ring_->ring) >= 0) {
    ring_->unsubmitted = io_uring_sq_ready(&ring_->ring) > 0;
  } else {
    Wake();
  }
}

void FileIo::Complete(std::unique_ptr<Operation> operation) {
  --in_flight_;
  const Done done = std::move(operation->done);
  const std::int64_t result = operation->result;
  operation.reset();  // lets go of the descriptor before anybody hears of it
  done(result);
}

void FileIo::ReapRing() {
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_->ring, &cqe) == 0) {
    std::unique_ptr<Operation> operation(static_cast<Operation*>(io_uring_cqe_get_data(cqe)));
    operation->result = cqe->res;
    io_uring_cqe_seen(&ring_->ring, cqe);
    --ring_->in_flight;
    Complete(std::move(operation));
  }
  while (!waiting_.empty() && ring_->in_flight < options_.depth) {
    std::unique_ptr<Operation> next = std::move(waiting_.front());
    waiting_.pop_front();
    StartOnRing(std::move(next));
  }
}

void FileIo::Poll(std::chrono::nanoseconds posted_turn) {
  // First: what comes during the rest of this makes it readable again.
  wake_.Drain();
  if (ring_ != nullptr) ReapRing();
  for (std::unique_ptr<Operation>& operation : threads_->TakeResults()) {
    Complete(std::move(operation));
  }
  RunPosted(posted_turn);
  Submit();
}

void FileIo::RunPosted(std::chrono::nanoseconds turn) {
  {
    const std::lock_guard lock(mutex_);
    posted_some_ = false;
    std::move(posted_.begin(), posted_.end(), std::back_inserter(due_));
    posted_.clear();
  }
  if (due_.empty()) return;
  const Deadline until = due_.size() > 1 ? DeadlineAfter(turn) : Deadline();
  do {
    const std::function<void()> task = std::move(due_.front());
    due_.pop_front();
    task();
  } while (!due_.empty() && BootClock::now() < until);
}

void FileIo::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
    posted_some_ = true;
  }
  Wake();
}

void FileIo::Defer(std::function<void()> task) {
  if (deferred_.size() < kMostDeferred) deferred_.push_back(std::move(task));
}

bool FileIo::RunDeferred() {
  if (deferred_.empty()) return false;
  const std::function<void()> task = std::move(deferred_.front());
  deferred_.pop_front();
  task();
  return !deferred_.empty();
}

void FileIo::Wake() { wake_.Ring(); }

}  // namespace rdfs::server
