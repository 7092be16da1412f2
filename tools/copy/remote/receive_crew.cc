#include "tools/copy/remote/receive_crew.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tools/copy/file/names.h"
#include "tools/copy/remote/content.h"
#include "tools/copy/remote/sources.h"
#include "tools/pipe/wire/digest.h"

namespace rdfs::copy {

struct ReceiveCrew::Batch {
  BatchWire wire{};
  std::size_t jobs = 0;  // that are not done
  bool planned = false;
  std::vector<Entry> left;  // directories
};

// A file that comes in pieces. `file` is null once it has failed, which is told once.
struct ReceiveCrew::Incoming {
  Entry entry;
  std::mutex mutex;
  std::uint64_t kept = 0;            // of an interrupted copy
  std::shared_ptr<OutputFile> file;  // under mutex, as what follows
  std::size_t writing = 0;           // pieces
  bool ended = false;
  std::vector<Written> written;  // with --verify
};

struct ReceiveCrew::Job {
  Batch* batch = nullptr;
  Entry entry;                         // without `file`: whole, or made without content
  Destination::Pin pin;                // of an answer: its directory has been left
  std::shared_ptr<Incoming> incoming;  // a piece of it, or its end when there is no content
  std::uint64_t offset = 0;
  ByteSpan content;
};

Result<std::unique_ptr<ReceiveCrew>> ReceiveCrew::Create(Destination& destination, ByteSpan ring,
                                                         ReceiveCrewSettings settings) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<ReceiveCrew> crew(
      new ReceiveCrew(destination, ring, std::move(settings), std::move(wake)));
  crew->threads_.emplace(crew->settings_.threads, [raw = crew.get()] { raw->Run(); });
  RDFS_RETURN_IF_ERROR(crew->threads_->status());
  return crew;
}

ReceiveCrew::ReceiveCrew(Destination& destination, ByteSpan ring, ReceiveCrewSettings settings,
                         EventFd wake)
    : destination_(destination),
      ring_(ring),
      settings_(std::move(settings)),
      wake_(std::move(wake)),
      rules_(static_cast<std::uint32_t>(settings_.names.size())) {}

ReceiveCrew::~ReceiveCrew() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (threads_) threads_->Join();
}

void ReceiveCrew::Take(const BatchWire& batch) {
  {
    const std::lock_guard lock(mutex_);
    batches_.emplace_back();
    batches_.back().wire = batch;
    ++unplanned_;
  }
  changed_.notify_all();
}

// Jobs first: they empty the slots that the sender waits for.
void ReceiveCrew::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty() || (unplanned_ > 0 && !planning_); });
    if (stop_) return;
    if (!jobs_.empty()) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      Batch* const batch = job.batch;
      Do(job);
      job = Job();  // what it held open is closed without the lock
      lock.lock();
      --batch->jobs;
    } else {
      Batch& batch = batches_[batches_.size() - unplanned_];
      planning_ = true;
      lock.unlock();
      Plan(batch);
      lock.lock();
      --unplanned_;
      planning_ = false;
      batch.planned = true;
      changed_.notify_all();
    }
    LeaveDone(lock);
  }
}

// In the order of the batches; their slots are free then.
void ReceiveCrew::LeaveDone(std::unique_lock<std::mutex>& lock) {
  if (leaving_) return;
  leaving_ = true;
  bool any = false;
  while (!stop_ && !batches_.empty() && batches_.front().planned && batches_.front().jobs == 0) {
    const std::vector<Entry> left = std::move(batches_.front().left);
    lock.unlock();
    for (const Entry& entry : left) {
      if (const Status status = destination_.Leave(entry); !status.ok()) TellOf(entry, status);
    }
    lock.lock();
    batches_.pop_front();
    ++done_;
    any = true;
  }
  leaving_ = false;
  if (!any) return;
  outputs_.emplace_back(Done{done_});
  wake_.Ring();
}

void ReceiveCrew::Plan(Batch& batch) {
  if (Status status = PlanRecords(batch); !status.ok()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    Put(std::move(status));
  }
}

Status ReceiveCrew::PlanRecords(Batch& batch) {
  const std::size_t slot = batch.wire.number % settings_.slots;
  const ByteSpan bytes = ring_.subspan(slot * settings_.slot_bytes, batch.wire.length);
  if (pipe::DigestOf(bytes) != batch.wire.digest) {
    return {Code::kProtocolError, "a batch was damaged on its way: its checksum is another"};
  }
  BatchReader reader(bytes);
  want_ = {};
  for (;;) {
    RDFS_ASSIGN_OR_RETURN(std::optional<Record> record, reader.Next());
    if (!record) break;
    RDFS_RETURN_IF_ERROR(PlanRecord(batch, *std::move(record)));
  }
  // Answers what was offered in it.
  if (want_.up_to > 0) Put(std::move(want_));
  return {};
}

Status ReceiveCrew::PlanRecord(Batch& batch, Record record) {
  RDFS_RETURN_IF_ERROR(rules_.Check(record));
  if (auto* entry = std::get_if<EntryRecord>(&record)) {
    if (!WasAskedFor(entry->entry, settings_.asked, settings_.keep)) {
      return NotAskedFor(Named(entry->entry));
    }
    if (entry->answer) return PlanAnswer(batch, std::move(*entry));
    if (entry->entry.path.empty()) destination_.AddSource(entry->entry);
    // Whatever becomes of it: the sender waits for an answer to each.
    if (entry->offer) want_.up_to = entry->number + 1;
    if (settings_.dry_run) {
      Rehearse(*entry);
    } else if (IsSkipped(entry->entry)) {
      Pass(entry->entry);
    } else {
      PlanEntry(batch, std::move(*entry));
    }
  } else if (auto* leave = std::get_if<LeaveRecord>(&record)) {
    if (!WasAskedFor(leave->entry, settings_.asked, settings_.keep)) {
      return NotAskedFor(Named(leave->entry));
    }
    if (settings_.dry_run) {
      RehearseLeave(*leave);
    } else {
      PlanLeave(batch, std::move(*leave));
    }
  } else if (const auto* piece = std::get_if<PieceRecord>(&record)) {
    PlanPiece(batch, *piece);
  } else {
    PlanFileEnd(batch, std::get<FileEndRecord>(record));
  }
  return {};
}

bool ReceiveCrew::IsSkipped(const Entry& entry) const {
  if (!skipped_ || skipped_->source != entry.source) return false;
  const std::string& folder = skipped_->path;
  return folder.empty() || entry.path == folder ||
         (entry.path.starts_with(folder) && entry.path[folder.size()] == '/');
}

void ReceiveCrew::PlanEntry(Batch& batch, EntryRecord record) {
  const Entry& entry = record.entry;
  if (!seen_.empty()) seen_.back().emplace(NameOf(entry.path));
  if (entry.kind == Kind::kDirectory) return PlanDirectory(entry);
  if (record.offer) return PlanOffer(record);
  Verdict verdict = record.no_data && !settings_.policy.update ? Verdict::kCopy : Judge(entry);
  // Of what comes without its data all that counts is whether it replaces what is newer.
  if (record.no_data && verdict != Verdict::kLeave) verdict = Verdict::kCopy;
  if (!PlanLink(record, verdict) || IsThere(entry, verdict, std::nullopt)) return;
  PlanContent(batch, std::move(record), nullptr);
}

void ReceiveCrew::PlanDirectory(const Entry& entry) {
  if (const Status entered = destination_.Enter(entry); !entered.ok()) {
    TellOf(entry, entered);
    skipped_ = entry;
    return;
  }
  if (settings_.remove) seen_.emplace_back();
  Made(entry);
}

void ReceiveCrew::PlanLeave(Batch& batch, LeaveRecord record) {
  if (IsSkipped(record.entry)) {
    if (record.entry.path == skipped_->path) skipped_.reset();
    return;
  }
  if (!seen_.empty()) {
    Prune(record);
    seen_.pop_back();
  }
  batch.left.push_back(std::move(record.entry));
}

void ReceiveCrew::PlanOffer(const EntryRecord& record) {
  const Entry& entry = record.entry;
  // A directory that changes while it is read may tell of a name twice: it comes once.
  std::string key = KeyOf(entry);
  if (wanted_.contains(key)) return Pass(entry);
  const Verdict verdict = Judge(entry);
  if (!PlanLink(record, verdict) || IsThere(entry, verdict, record.digest)) return;
  auto pin = destination_.Hold(entry);
  if (!pin.ok()) {
    destination_.Settle(entry, false);
    TellOf(entry, pin.status());
    return Pass(entry);
  }
  wanted_[std::move(key)] = {*std::move(pin), GoOn(record)};
  want_.numbers.push_back(record.number);
}

// What an interrupted copy has left of it, of which the sender is told. As many as are open at a
// time: no more are left.
std::unique_ptr<OutputFile> ReceiveCrew::GoOn(const EntryRecord& record) {
  if (!record.resumable || files_wanted_ == kMaxOpenFiles) return nullptr;
  auto file = destination_.GoOn(record.entry, stop_);
  if (!file.ok() || *file == nullptr) return nullptr;
  ++files_wanted_;
  const std::vector<Range>& kept = (*file)->kept();
  const auto told = std::min(kept.size(), Have::kMostRanges);
  Put(Have{record.number, {kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(told)}});
  return *std::move(file);
}

Status ReceiveCrew::PlanAnswer(Batch& batch, EntryRecord record) {
  auto wanted = wanted_.extract(KeyOf(record.entry));
  if (wanted.empty()) {
    return {Code::kProtocolError, "the other rdcp sent a file that nobody wanted"};
  }
  std::unique_ptr<OutputFile> file = std::move(wanted.mapped().file);
  if (file != nullptr) --files_wanted_;
  if (record.goes_on && file == nullptr) {
    return {Code::kProtocolError, "the other rdcp goes on with a file that is not there"};
  }
  if (record.goes_on) {
    kept_ += file->kept_bytes();
    BeginFile(std::move(record), std::move(file));
    return {};
  }
  // It has changed since it was offered.
  if (file != nullptr) file->Forget();
  PlanContent(batch, std::move(record), std::move(wanted.mapped().pin));
  return {};
}

void ReceiveCrew::PlanContent(Batch& batch, EntryRecord record, Destination::Pin pin) {
  if (record.entry.kind == Kind::kFile && !record.whole) {
    BeginFile(std::move(record), nullptr);  // which keeps the directory open by itself
    return;
  }
  AddJob(batch, {.batch = &batch,
                 .entry = std::move(record.entry),
                 .pin = std::move(pin),
                 .incoming = nullptr,
                 .offset = 0,
                 .content = record.content});
}

// False when there is nothing more to be done: it is, or becomes, a link to a name before it.
bool ReceiveCrew::PlanLink(const EntryRecord& record, Verdict verdict) {
  const Entry& entry = record.entry;
  const bool stays = verdict == Verdict::kLeave;
  if (settings_.keep.links && entry.links > 1) {
    const bool is_there = stays || verdict == Verdict::kSame;
    const auto turn = destination_.TakeTurn(entry, is_there, {}, stays);
    if (!turn.ok()) TellOf(entry, turn.status());
    using Turn = Destination::Turn;
    if (turn.ok() && (*turn == Turn::kLink || *turn == Turn::kWaits)) {
      passed_bytes_ += entry.size;
      Made(entry);
      return false;
    }
    if (!turn.ok() || *turn != Turn::kFirst) {
      Pass(entry);
      return false;
    }
    if (record.no_data && !stays) destination_.Settle(entry, false);
  }
  if (!record.no_data) return true;
  Pass(entry);
  if (stays) return false;
  TellOf(entry, {Code::kErrno, ENOENT, "the name that it is a link to could not be copied"});
  return false;
}

void ReceiveCrew::BeginFile(EntryRecord record, std::unique_ptr<OutputFile> file) {
  auto incoming = std::make_shared<Incoming>();
  if (file != nullptr) incoming->kept = file->kept_bytes();
  auto begun = file != nullptr ? Result<std::unique_ptr<OutputFile>>(std::move(file))
                               : destination_.Begin(record.entry);
  if (begun.ok()) {
    incoming->file = *std::move(begun);
  } else {
    TellOf(record.entry, begun.status());
  }
  incoming->entry = std::move(record.entry);
  incoming_.emplace(record.number, std::move(incoming));
}

void ReceiveCrew::PlanPiece(Batch& batch, const PieceRecord& record) {
  const auto found = incoming_.find(record.number);
  if (found == incoming_.end()) return;  // beneath a directory that could not be made
  {
    const std::lock_guard lock(found->second->mutex);
    ++found->second->writing;
  }
  AddJob(batch, {.batch = &batch,
                 .entry = {},
                 .pin = nullptr,
                 .incoming = found->second,
                 .offset = record.offset,
                 .content = record.content});
}

void ReceiveCrew::PlanFileEnd(Batch& batch, const FileEndRecord& record) {
  const auto found = incoming_.find(record.number);
  if (found == incoming_.end()) return;
  const std::shared_ptr<Incoming> incoming = std::move(found->second);
  incoming_.erase(found);
  // The rest is a hole, or cannot be had.
  const std::uint64_t done = record.brought + incoming->kept;
  if (record.size > done) passed_bytes_ += record.size - done;
  {
    const std::lock_guard lock(incoming->mutex);
    incoming->entry.size = record.size;
    incoming->ended = true;
    // The sender has told why.
    if (record.given_up) incoming->file.reset();
    if (incoming->writing > 0) return;
  }
  AddJob(batch, {.batch = &batch,
                 .entry = {},
                 .pin = nullptr,
                 .incoming = incoming,
                 .offset = 0,
                 .content = {}});
}

void ReceiveCrew::AddJob(Batch& batch, Job job) {
  {
    const std::lock_guard lock(mutex_);
    ++batch.jobs;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void ReceiveCrew::Do(Job& job) {
  if (job.incoming == nullptr) {
    DoWhole(job.entry, job.content);
  } else if (job.content.empty()) {
    FinishFile(*job.incoming);
  } else {
    DoPiece(*job.incoming, job.offset, job.content);
  }
}

void ReceiveCrew::DoWhole(const Entry& entry, ByteSpan content) {
  const Status made = [&]() -> Status {
    if (entry.kind != Kind::kFile) return destination_.Make(entry);
    RDFS_ASSIGN_OR_RETURN(const auto file, destination_.Begin(entry));
    if (!content.empty()) RDFS_RETURN_IF_ERROR(file->Write(0, content));
    if (settings_.verify) {
      const Written all{0, content.size(), pipe::DigestOf(content)};
      RDFS_RETURN_IF_ERROR(CheckWritten(*file, entry.size, {&all, 1}, stop_));
    }
    return file->Finish(entry);
  }();
  if (!made.ok()) {
    TellOf(entry, made);
    return Pass(entry);
  }
  bytes_ += content.size();
  Made(entry);
}

void ReceiveCrew::DoPiece(Incoming& incoming, std::uint64_t offset, ByteSpan content) {
  std::shared_ptr<OutputFile> file;
  {
    const std::lock_guard lock(incoming.mutex);
    file = incoming.file;
  }
  const Status written = file == nullptr ? Status() : file->Write(offset, content);
  file.reset();
  const Digest digest = settings_.verify ? pipe::DigestOf(content) : Digest{};
  bool last = false;
  bool first_failure = false;
  {
    const std::lock_guard lock(incoming.mutex);
    if (settings_.verify) incoming.written.push_back({offset, content.size(), digest});
    if (!written.ok()) first_failure = std::exchange(incoming.file, nullptr) != nullptr;
    last = --incoming.writing == 0 && incoming.ended;
  }
  if (first_failure) TellOf(incoming.entry, written);
  if (written.ok()) bytes_ += content.size();
  if (last) FinishFile(incoming);
}

void ReceiveCrew::FinishFile(Incoming& incoming) {
  const std::shared_ptr<OutputFile> file = std::exchange(incoming.file, nullptr);
  if (file == nullptr) {
    ++passed_files_;
    return;
  }
  Status finished;
  if (settings_.verify)
    finished = CheckWritten(*file, incoming.entry.size, incoming.written, stop_);
  if (!finished.ok()) file->Distrust();
  if (finished.ok()) finished = file->Finish(incoming.entry);
  if (!finished.ok()) {
    ++passed_files_;
    return TellOf(incoming.entry, finished);
  }
  Made(incoming.entry);
}

std::string ReceiveCrew::Named(const Entry& entry) const {
  return Joined(settings_.names[entry.source], entry.path);
}

// Not its name at DST, which several sources may bring.
std::string ReceiveCrew::KeyOf(const Entry& entry) {
  return std::to_string(entry.source) + "/" + entry.path;
}

void ReceiveCrew::TellOf(const Entry& entry, const Status& why) {
  Put(Notice{Notice::What::kFailed, Named(entry), why.message()});
}

void ReceiveCrew::Made(const Entry& entry) {
  if (entry.kind != Kind::kDirectory) ++files_;
  if (settings_.copied) settings_.copied(entry, Named(entry));
}

void ReceiveCrew::Pass(const Entry& entry) {
  if (entry.kind == Kind::kDirectory) return;
  ++passed_files_;
  passed_bytes_ += entry.size;
}

void ReceiveCrew::Put(Output output) {
  {
    std::unique_lock lock(mutex_);
    const bool notice = std::holds_alternative<Notice>(output);
    changed_.wait(lock, [&] { return stop_ || !notice || outputs_.size() < kMostUntaken; });
    outputs_.push_back(std::move(output));
  }
  wake_.Ring();
}

void ReceiveCrew::Collect(std::vector<Output>& out) {
  out.clear();
  wake_.Drain();
  {
    const std::lock_guard lock(mutex_);
    outputs_.swap(out);
  }
  changed_.notify_all();
}

}  // namespace rdfs::copy
