#include "tools/copy/remote/send_crew.h"

#include <algorithm>
#include <utility>

#include "tools/copy/file/data.h"
#include "tools/copy/remote/content.h"

namespace rdfs::copy {
Result<std::unique_ptr<SendCrew>> SendCrew::Create(WalkOptions walk, MutableByteSpan memory,
                                                   std::uint32_t buffers, int threads) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<SendCrew> crew(new SendCrew(std::move(walk), memory, buffers, std::move(wake)));
  crew->threads_.emplace(threads, [raw = crew.get()] { raw->Run(); });
  RDFS_RETURN_IF_ERROR(crew->threads_->status());
  return crew;
}

SendCrew::SendCrew(WalkOptions walk, MutableByteSpan memory, std::uint32_t buffers, EventFd wake)
    : slot_bytes_(walk.slot_bytes),
      memory_(memory),
      wake_(std::move(wake)),
      pace_(walk.limit),
      walk_(std::move(walk), [this](Notice notice) { Put(std::move(notice)); }) {
  for (std::uint32_t buffer = buffers; buffer-- > 0;) free_.push_back(buffer);
}

SendCrew::~SendCrew() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  walk_.Stop();
}

void SendCrew::Run() {
  while (MakeOne()) {
  }
}

std::optional<std::uint32_t> SendCrew::AwaitBuffer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || !free_.empty(); });
  if (stop_) return std::nullopt;
  const std::uint32_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

// All that was made so far is done there.
bool SendCrew::AwaitCredit(std::uint64_t batches) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stop_ || credited_ >= batches; });
  return !stop_;
}

void SendCrew::Credited(std::uint64_t done) {
  {
    const std::lock_guard lock(mutex_);
    credited_ = done;
  }
  changed_.notify_all();
}

std::optional<SendCrew::Task> SendCrew::NextTask() {
  const std::lock_guard lock(walk_mutex_);
  if (ended_) return std::nullopt;
  const auto buffer = AwaitBuffer();
  if (!buffer) return std::nullopt;
  auto work = walk_.Next();
  for (; !work && walk_.waits() && AwaitCredit(next_); work = walk_.Next()) walk_.BeginNext();
  if (work) return Task{*std::move(work), next_++, *buffer};
  ended_ = true;
  if (!stop_) Put(Ended{next_});
  return std::nullopt;
}

bool SendCrew::MakeOne() {
  auto task = NextTask();
  if (!task) return false;
  BatchWriter batch(memory_.subspan(std::size_t{task->buffer} * slot_bytes_, slot_bytes_));
  for (WalkItem& item : task->work.items) PackItem(item, batch);
  std::vector<Status> read;
  for (const WalkPiece& piece : task->work.pieces) read.push_back(PackPiece(piece, batch));
  // The driver goes on meanwhile, and keeps the peer convinced that we live.
  pace_.Await(batch.size(), stop_);
  if (stop_) return false;
  Put(Batch{task->number, task->buffer, static_cast<std::uint32_t>(batch.size()),
            pipe::DigestOf(batch.written())});
  // Behind the batch: a file's end comes in a later one than its last piece.
  for (std::size_t i = 0; i < read.size(); ++i) walk_.PieceRead(task->work.pieces[i], read[i]);
  return true;
}

void SendCrew::PackItem(WalkItem& item, BatchWriter& batch) {
  const Entry& entry = item.scanned.entry;
  bool packed = true;
  switch (item.what) {
    case WalkItem::What::kEntry:
      packed = batch.Add(entry, item.number, item.flags);
      ++entries_;
      walk_.Packed(entry, item.flags);
      break;
    case WalkItem::What::kOffer:
      packed = batch.AddOffer(entry, item.number,
                              static_cast<std::uint16_t>(item.flags & EntryWire::kResumable),
                              DigestFor(item));
      ++entries_;
      break;
    case WalkItem::What::kWhole:
      if (const Status status = PackWhole(item, batch); !status.ok() && !stop_) {
        walk_.TellOf(entry, status);
        walk_.Pass(entry);
      }
      break;
    case WalkItem::What::kLeave:
      packed = batch.AddLeave(entry.source, entry.path, item.partial);
      break;
    case WalkItem::What::kFileEnd:
      packed = batch.AddFileEnd(item.end);
      break;
  }
  if (!packed) Put(Status(Code::kInternal, "a batch was planned larger than it can be"));
  item.scanned.directory = nullptr;  // not open for as long as the batch waits for its turn
}

// One that cannot be read goes without: it will be wanted, and then what is wrong is told.
std::optional<Digest> SendCrew::DigestFor(const WalkItem& item) const {
  if (!walk_.digests()) return std::nullopt;
  Scanned scanned = item.scanned;
  const auto file = walk_.Open(scanned);
  if (!file.ok()) return std::nullopt;
  const auto digest = ContentDigest(**file, item.scanned.entry.size, stop_);
  return digest.ok() ? std::optional<Digest>(*digest) : std::nullopt;
}

Status SendCrew::PackWhole(WalkItem& item, BatchWriter& batch) {
  RDFS_ASSIGN_OR_RETURN(const FilePtr file, walk_.Open(item.scanned));
  RDFS_RETURN_IF_ERROR(
      batch.AddWhole(item.scanned.entry, item.number, item.flags, [&](MutableByteSpan place) {
        auto got = ReadFully(*file, 0, place, stop_);
        if (got.ok() && *got < place.size()) got = BecameShorter();
        if (got.ok()) bytes_ += *got;
        return got;
      }));
  ++entries_;
  walk_.Packed(item.scanned.entry, item.flags);
  return {};
}

Status SendCrew::PackPiece(const WalkPiece& piece, BatchWriter& batch) {
  const std::size_t before = batch.size();
  const MutableByteSpan place = batch.AddPiece(piece.file->number, piece.offset, piece.length);
  Status status;
  if (place.size() != piece.length) {
    status = Status(Code::kInternal, "a batch was planned larger than it can be");
  } else if (!piece.bytes.empty()) {
    std::ranges::copy(piece.bytes, place.begin());
  } else if (auto got = ReadFully(*piece.file->file, piece.offset, place, stop_); !got.ok()) {
    status = got.status();
  } else if (*got < piece.length) {
    status = BecameShorter();
  }
  if (status.ok()) {
    bytes_ += piece.length;
  } else {
    batch.TruncateTo(before);
  }
  return status;
}

void SendCrew::Put(Output output) {
  {
    std::unique_lock lock(mutex_);
    const bool notice = std::holds_alternative<Notice>(output);
    changed_.wait(lock, [&] { return stop_ || !notice || made_.size() < kMostUntaken; });
    made_.push_back(std::move(output));
  }
  wake_.Ring();
}

void SendCrew::Take(std::vector<Output>& out) {
  out.clear();
  wake_.Drain();
  {
    const std::lock_guard lock(mutex_);
    made_.swap(out);
  }
  changed_.notify_all();
}

void SendCrew::Release(std::uint32_t buffer) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
  }
  changed_.notify_all();
}

}  // namespace rdfs::copy
