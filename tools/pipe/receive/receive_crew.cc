#include "tools/pipe/receive/receive_crew.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rdfs::pipe {
namespace {

// Of one record at a time: a hole may be long, and the driver has a peer and a user to hear.
constexpr int kMostWrites = 64;

}  // namespace

Result<std::unique_ptr<ReceiveCrew>> ReceiveCrew::Create(SinkOptions sink, ByteSpan ring,
                                                         std::uint32_t slot_bytes,
                                                         std::optional<Seal> seal, int threads,
                                                         std::shared_ptr<Relay> relay,
                                                         std::unique_ptr<Sink> part) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<ReceiveCrew> crew(new ReceiveCrew(std::move(sink), ring, slot_bytes,
                                                    std::move(seal), std::move(relay),
                                                    std::move(part), std::move(wake)));
  RDFS_RETURN_IF_ERROR(crew->Prepare(threads));
  return crew;
}

ReceiveCrew::ReceiveCrew(SinkOptions sink, ByteSpan ring, std::uint32_t slot_bytes,
                         std::optional<Seal> seal, std::shared_ptr<Relay> relay,
                         std::unique_ptr<Sink> part, EventFd wake)
    : options_(std::move(sink)),
      ring_(ring),
      slot_bytes_(slot_bytes),
      seal_(std::move(seal)),
      wake_(std::move(wake)),
      sink_(std::move(part)),
      relay_(std::move(relay)) {
  if (sink_ != nullptr) sink_->ObeyFrom(stop_);
}

Status ReceiveCrew::Prepare(int threads) {
  if (threads != 1 || relay_ != nullptr || !options_.path.empty()) return Start(threads);
  taker_.emplace(seal_, slot_bytes_);
  return {};
}

Status ReceiveCrew::Start(int threads) {
  taker_.reset();
  threads_.emplace(threads, [this] { Run(); });
  return threads_->status();
}

void ReceiveCrew::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (threads_) threads_->Join();
}

void ReceiveCrew::Run() {
  RecordTaker taker(seal_, slot_bytes_);
  while (const auto job = AwaitJob()) {
    if (Status status = Do(*job, taker); !status.ok()) {
      Report(std::move(status));
      return;
    }
  }
}

std::optional<ReceiveCrew::Job> ReceiveCrew::AwaitJob() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
  if (stop_) return std::nullopt;
  const Job job = jobs_.front();
  jobs_.pop_front();
  return job;
}

Status ReceiveCrew::Do(const Job& job, RecordTaker& taker) {
  switch (job.kind) {
    case Job::Kind::kOpen:
      return OpenSink();
    case Job::Kind::kStore:
      return StoreRecord(job, taker);
    case Job::Kind::kFinish:
      return FinishAll(job.length);
  }
  return {};
}

bool ReceiveCrew::Work(std::uint32_t most) {
  std::uint32_t count = 0;
  while (taker_ && !stop_ && count < most) {
    if (!half_) {
      if (jobs_.empty()) break;
      const Job job = jobs_.front();
      jobs_.pop_front();
      if (Status status = DoHere(job); !status.ok()) {
        stop_ = true;
        Report(std::move(status));
      }
    }
    if (half_) {
      const auto written = WriteHalf();
      if (!written.ok()) {
        stop_ = true;
        Report(written.status());
      } else if (!*written) {
        break;
      }
    }
    ++count;
  }
  return count > 0;
}

Status ReceiveCrew::DoHere(const Job& job) {
  if (job.kind == Job::Kind::kStore) {
    const RecordWire& record = job.record;
    const ByteSpan slot = ring_.subspan(std::size_t{job.slot} * slot_bytes_, slot_bytes_);
    RDFS_ASSIGN_OR_RETURN(const ByteSpan bytes, taker_->Take(record, slot));
    const bool hole = record.kind == static_cast<std::uint8_t>(RecordKind::kHole);
    half_ = Half{record.sequence, bytes, hole ? std::uint64_t{record.length} : 0};
    return {};
  }
  RDFS_RETURN_IF_ERROR(Do(job, *taker_));
  if (job.kind == Job::Kind::kOpen && !sink_->Unblock()) return Start(1);
  return {};
}

Result<bool> ReceiveCrew::WriteHalf() {
  static constexpr std::array<std::byte, 64 << 10> kNothing{};
  for (int turns = 0; !half_->bytes.empty() || half_->zeros > 0; ++turns) {
    if (turns == kMostWrites) return false;
    const std::size_t zeros = std::min<std::uint64_t>(half_->zeros, kNothing.size());
    const ByteSpan next = zeros > 0 ? ByteSpan(kNothing).first(zeros) : half_->bytes;
    RDFS_ASSIGN_OR_RETURN(const std::size_t put, sink_->WriteSome(next));
    if (put == 0) return false;
    if (zeros > 0) {
      half_->zeros -= put;
    } else {
      half_->bytes = half_->bytes.subspan(put);
    }
  }
  Report(Stored{half_->sequence});
  half_.reset();
  return true;
}

Status ReceiveCrew::OpenSink() {
  if (sink_ == nullptr) {
    auto sink = Sink::Open(options_, stop_);
    if (!sink.ok()) {
      RDFS_RETURN_IF_ERROR(OwnFailure(sink.status(), 0));
      Report(Opened{});
      return {};
    }
    sink_ = *std::move(sink);
  }
  RDFS_ASSIGN_OR_RETURN(Partial partial, sink_->ReadPartial());
  Report(Opened{std::move(partial)});
  return {};
}

Status ReceiveCrew::StartAt(std::uint64_t offset) {
  Fd head;
  if (own_.ok()) {
    RDFS_RETURN_IF_ERROR(sink_->StartAt(offset));
    if (relay_ != nullptr && sink_->ranged()) {
      RDFS_ASSIGN_OR_RETURN(head, sink_->Reader());
    }
  }
  return relay_ != nullptr ? relay_->StartAt(std::move(head), offset) : Status::Ok();
}

Result<std::unique_ptr<Sink>> ReceiveCrew::Leave(std::uint64_t whole) {
  if (sink_ != nullptr) RDFS_RETURN_IF_ERROR(sink_->Pause(whole));
  return std::move(sink_);
}

Status ReceiveCrew::OwnFailure(Status why, std::uint64_t whole) {
  if (relay_ == nullptr || relay_->over() || stop_) return why;
  relay_->ForgetFile();
  own_ = WithKept(why, sink_ != nullptr ? sink_->Abandon(whole) : std::string());
  return {};
}

Status ReceiveCrew::StoreRecord(const Job& job, RecordTaker& taker) {
  const RecordWire& record = job.record;
  const ByteSpan slot = ring_.subspan(std::size_t{job.slot} * slot_bytes_, slot_bytes_);
  RDFS_ASSIGN_OR_RETURN(const ByteSpan bytes, taker.Take(record, slot));
  const bool in_turn = relay_ != nullptr || !sink_->ranged();
  if (in_turn && !AwaitTurn(record.sequence)) return {};
  RDFS_RETURN_IF_ERROR(WriteRecord(record, bytes));
  if (in_turn) PassTurn();
  Report(Stored{record.sequence});
  return {};
}

Status ReceiveCrew::WriteRecord(const RecordWire& record, ByteSpan bytes) {
  const bool hole = record.kind == static_cast<std::uint8_t>(RecordKind::kHole);
  if (own_.ok()) {
    Status status = hole ? sink_->WriteHole(record.length) : sink_->Write(record.offset, bytes);
    // What the relay is given is in our file: it may begin again from there.
    if (status.ok() && hole && relay_ != nullptr && sink_->ranged()) {
      status = sink_->ReachTo(record.offset + record.length);
    }
    if (!status.ok()) RDFS_RETURN_IF_ERROR(OwnFailure(std::move(status), record.offset));
  }
  if (relay_ == nullptr) return {};
  hole ? relay_->WriteHole(record.length, stop_) : relay_->Write(bytes, stop_);
  // Nobody is left who could take it.
  return relay_->over() ? own_ : Status::Ok();
}

Status ReceiveCrew::FinishAll(std::uint64_t length) {
  if (own_.ok()) {
    Status status = sink_->Finish(length);
    if (!status.ok()) RDFS_RETURN_IF_ERROR(OwnFailure(std::move(status), length));
  }
  Finished finished;
  if (relay_ != nullptr) finished.failed = relay_->Finish(length, stop_);
  if (!own_.ok()) finished.failed.insert(finished.failed.begin(), FailedHop{"", own_});
  Report(std::move(finished));
  return {};
}

bool ReceiveCrew::AwaitTurn(std::uint64_t sequence) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stop_ || turn_ == sequence; });
  return !stop_;
}

void ReceiveCrew::PassTurn() {
  {
    const std::lock_guard lock(mutex_);
    ++turn_;
  }
  changed_.notify_all();
}

void ReceiveCrew::Put(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_one();
}

void ReceiveCrew::Report(Output output) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(output));
  }
  if (!taker_) wake_.Ring();
}

void ReceiveCrew::Take(std::vector<Output>& out) {
  out.clear();
  if (!taker_) wake_.Drain();
  const std::lock_guard lock(mutex_);
  done_.swap(out);
}

}  // namespace rdfs::pipe
