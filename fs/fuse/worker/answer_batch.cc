#include "fs/fuse/worker/answer_batch.h"

#include <liburing.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "transport/base/log.h"
#include "transport/base/status.h"

namespace rdfs::fs::fuse {
namespace {

// What one write to /dev/fuse is made of.
struct Parts {
  fuse_out_header header;
  std::array<iovec, 2> list;

  void Fill(std::uint64_t unique, std::span<std::byte> body) {
    header = {.len = static_cast<std::uint32_t>(sizeof header + body.size()),
              .error = 0,
              .unique = unique};
    list = {{{&header, sizeof header}, {body.data(), body.size()}}};
  }
};

}  // namespace

struct AnswerBatch::Ring {
  // Takes one over that has been started.
  explicit Ring(io_uring started) : ring(started) { (void)io_uring_ring_dontfork(&ring); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { io_uring_queue_exit(&ring); }

  static std::unique_ptr<Ring> Start() {
    io_uring ring{};
    if (const int error = io_uring_queue_init(kMost, &ring, 0); error < 0) {
      LogDebug("answers go to the kernel one by one: {}",
               Status::FromErrno(-error, "io_uring is not available").message());
      return nullptr;
    }
    return std::make_unique<Ring>(ring);
  }

  io_uring ring;
  std::array<Parts, kMost> parts{};
};

AnswerBatch::AnswerBatch(int fuse_fd, bool use_io_uring) : fd_(fuse_fd), tried_(!use_io_uring) {}
AnswerBatch::~AnswerBatch() = default;

void AnswerBatch::Add(std::uint64_t unique, client::Buffer buffer, std::size_t length) {
  if (count_ == answers_.size()) Send();
  answers_.at(count_++) = {.unique = unique, .buffer = std::move(buffer), .length = length};
}

void AnswerBatch::Send() {
  std::size_t sent = 0;
  if (count_ > 1) {
    if (!std::exchange(tried_, true)) ring_ = Ring::Start();
    if (ring_ != nullptr) sent = SendTogether();
  }
  for (; sent < count_; ++sent) SendAlone(answers_.at(sent));
  for (std::size_t i = 0; i < count_; ++i) answers_.at(i).buffer.Reset();
  count_ = 0;
}

std::size_t AnswerBatch::SendTogether() {
  io_uring* const ring = &ring_->ring;
  for (std::size_t i = 0; i < count_; ++i) {
    Answer& answer = answers_.at(i);
    Parts& parts = ring_->parts.at(i);
    parts.Fill(answer.unique, answer.buffer.bytes().first(answer.length));
    io_uring_sqe* const entry = io_uring_get_sqe(ring);  // there are kMost, and all are free
    io_uring_prep_writev(entry, fd_, parts.list.data(), static_cast<unsigned>(parts.list.size()),
                         0);
    entry->user_data = i;
  }
  const int submitted = io_uring_submit_and_wait(ring, static_cast<unsigned>(count_));
  const std::size_t taken = submitted > 0 ? static_cast<std::size_t>(submitted) : 0;
  for (std::size_t ended = 0; ended < taken;) {
    io_uring_cqe* completion = nullptr;
    if (io_uring_wait_cqe(ring, &completion) != 0) continue;  // a signal
    if (completion->res < 0) Ended(answers_.at(completion->user_data), -completion->res);
    io_uring_cqe_seen(ring, completion);
    ++ended;
  }
  if (taken < count_) ring_.reset();  // it has the rest in it, which nobody has submitted
  return taken;
}

void AnswerBatch::SendAlone(const Answer& answer) const {
  Parts parts;
  parts.Fill(answer.unique, answer.buffer.bytes().first(answer.length));
  if (writev(fd_, parts.list.data(), static_cast<int>(parts.list.size())) < 0) {
    Ended(answer, errno);
  }
}

void AnswerBatch::Ended(const Answer& answer, int error) const {
  if (error == ENOENT || error == ENODEV) return;
  LogWarn("{}", Status::FromErrno(error, "the kernel does not take what has been read").message());
  AnswerError(fd_, answer.unique, EIO);
}

void AnswerError(int fuse_fd, std::uint64_t unique, int errno_value) {
  fuse_out_header answer{};
  answer.len = sizeof answer;
  answer.error = -errno_value;
  answer.unique = unique;
  (void)!write(fuse_fd, &answer, sizeof answer);
}

}  // namespace rdfs::fs::fuse
