#include "tools/pipe/send/send_crew.h"

#include <utility>

namespace rdfs::pipe {

Result<std::unique_ptr<SendCrew>> SendCrew::Create(Source& source, MutableByteSpan memory,
                                                   std::uint32_t slot_bytes, std::uint32_t buffers,
                                                   Buffers kind, CrewSettings settings,
                                                   StopFlag& stop) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::unique_ptr<SendCrew>(new SendCrew(source, memory, slot_bytes, buffers, kind,
                                                std::move(settings), stop, std::move(wake)));
}

SendCrew::SendCrew(Source& source, MutableByteSpan memory, std::uint32_t slot_bytes,
                   std::uint32_t buffers, Buffers kind, CrewSettings settings, StopFlag& stop,
                   EventFd wake)
    : source_(source),
      memory_(memory),
      slot_bytes_(slot_bytes),
      kind_(kind),
      settings_(std::move(settings)),
      stop_(stop),
      wake_(std::move(wake)) {
  for (std::uint32_t buffer = 0; buffer < buffers; ++buffer) free_.push_back(buffer);
}

SendCrew::~SendCrew() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  buffer_freed_.notify_all();
}

Status SendCrew::Start() {
  if (settings_.threads == 0) {
    maker_.emplace(settings_.level, settings_.seal, slot_bytes_);
    return {};
  }
  threads_.emplace(settings_.threads, [this] { Run(); });
  return threads_->status();
}

MutableByteSpan SendCrew::Slot(std::uint32_t buffer) const {
  return memory_.subspan(std::size_t{buffer} * slot_bytes_, slot_bytes_);
}

void SendCrew::Run() {
  RecordMaker maker(settings_.level, settings_.seal, slot_bytes_);
  while (MakeOne(maker)) {
  }
}

std::optional<std::uint32_t> SendCrew::AwaitBuffer() {
  std::unique_lock lock(mutex_);
  buffer_freed_.wait(lock, [this] { return stop_ || !free_.empty(); });
  if (stop_) return std::nullopt;
  const bool ring = kind_ == Buffers::kRing;
  const std::uint32_t buffer = ring ? free_.front() : free_.back();
  ring ? free_.pop_front() : free_.pop_back();
  return buffer;
}

std::optional<SendCrew::Task> SendCrew::NextTask(RecordMaker& maker) {
  const std::lock_guard lock(source_mutex_);
  if (ended_) return std::nullopt;
  const auto buffer = AwaitBuffer();
  if (!buffer) return std::nullopt;
  const auto piece = source_.Next(maker.Place(Slot(*buffer)));
  starving_ = piece.ok() && piece->kind == Piece::Kind::kNone;
  if (starving_) {
    TakeBack(*buffer);
    return std::nullopt;
  }
  if (piece.ok() && piece->kind != Piece::Kind::kEnd) return Task{*piece, next_++, *buffer};
  ended_ = true;
  if (piece.ok()) {
    Put(Ended{next_, piece->offset});
  } else {
    Put(piece.status());
  }
  return std::nullopt;
}

bool SendCrew::MakeOne(RecordMaker& maker) {
  const auto task = NextTask(maker);
  if (!task) return false;
  const auto& [piece, sequence, buffer] = *task;
  if (piece.kind == Piece::Kind::kHole) {
    if (kind_ == Buffers::kOurs) Release(buffer);
    auto record = maker.MakeHole(sequence, piece.offset, piece.length);
    if (!record.ok()) return Put(record.status()), false;
    Put(ReadyRecord{*record, std::nullopt});
    return true;
  }
  const MutableByteSpan slot = Slot(buffer);
  if (piece.kind == Piece::Kind::kToFill) {
    const Status filled = source_.Fill(piece.offset, maker.Place(slot).first(piece.length));
    if (!filled.ok()) return Put(filled), false;
  }
  auto record = maker.Make(sequence, piece.offset, piece.length, slot);
  if (!record.ok()) return Put(record.status()), false;
  Put(ReadyRecord{*record, buffer});
  return true;
}

bool SendCrew::Work() {
  if (!maker_ || free_.empty() || ended_) return false;
  if (!MakeOne(*maker_) && !starving_) ended_ = true;
  return !made_.empty();
}

void SendCrew::Put(Output output) {
  {
    const std::lock_guard lock(mutex_);
    made_.push_back(std::move(output));
  }
  if (!maker_) wake_.Ring();
}

void SendCrew::Take(std::vector<Output>& out) {
  out.clear();
  if (!maker_) wake_.Drain();
  const std::lock_guard lock(mutex_);
  made_.swap(out);
}

void SendCrew::TakeBack(std::uint32_t buffer) {
  const std::lock_guard lock(mutex_);
  kind_ == Buffers::kRing ? free_.push_front(buffer) : free_.push_back(buffer);
}

void SendCrew::Release(std::uint32_t buffer) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
  }
  buffer_freed_.notify_one();
}

}  // namespace rdfs::pipe
