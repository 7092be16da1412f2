#include "tools/copy/remote/walk.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tools/copy/file/data.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"
#include "tools/copy/local_copy.h"

namespace rdfs::copy {
namespace {

// Up to here a file travels in one record: opening one for its pieces costs a batch of its own.
constexpr std::uint64_t kMostWhole = 256 << 10;
// Enough for a batch that the other end has something to do meanwhile.
constexpr std::size_t kMostItems = 1024;
// That wait for an answer.
constexpr std::size_t kMostOffers = 4096;
// Pieces begin at multiples of a page, if their data do.
constexpr std::uint64_t kPage = 4096;

// Nothing has happened to it since.
bool IsStill(const SourceMark& mark, File& file) {
  struct stat info {};
  return file.Stat("", true, info) == 0 && SourceMark::Of(EntryOf(info)) == mark;
}

// Whatever its size says.
Result<bool> HasAny(File& file, const pipe::StopFlag& stop) {
  std::byte first{};
  RDFS_ASSIGN_OR_RETURN(const std::size_t got, ReadFully(file, 0, {&first, 1}, stop));
  return got > 0;
}

Notice::What Kinded(const Status& why) {
  const bool vanished = why.code() == Code::kErrno && why.errno_value() == ENOENT;
  return vanished ? Notice::What::kVanished : Notice::What::kFailed;
}

}  // namespace

std::size_t FoldersAtOnce() {
  constexpr std::size_t kPart = 4;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostOffers;
  return std::min<std::size_t>(limit.rlim_cur / kPart, kMostOffers);
}

std::string Walk::Named(const Entry& entry) const {
  const std::string& path = options_.paths[entry.source];
  if (entry.path.empty()) return path;
  return path.ends_with('/') ? path + entry.path : Joined(path, entry.path);
}

void Walk::TellOf(const Entry& entry, const Status& why) {
  tell_({Kinded(why), Named(entry), why.message()});
}

void Walk::Stop() {
  const std::lock_guard lock(files_mutex_);
  stopped_ = true;
  news_.notify_all();
}

Counter::Count CountOf(const WalkOptions& options) {
  return [scan = options.scan, paths = options.paths](auto& files, auto& bytes, const auto& stop) {
    for (const std::string& path : paths) {
      CountTree({.shown = path, .path = path}, scan, stop, files, bytes);
    }
  };
}

std::optional<WalkTask> Walk::Next() {
  WalkTask task;
  if (TakePieces(task) || TakeItems(task)) return task;
  return std::nullopt;
}

// Pieces of the file that is being handed out, as many as fit.
bool Walk::TakePieces(WalkTask& task) {
  std::uint64_t room = options_.slot_bytes;
  while (file_ != nullptr && room > kPieceOverhead + kPage) {
    WalkPiece piece{file_, 0, room - kPieceOverhead, {}};
    const bool found = file_->unsized ? ReadPiece(*file_, piece) : NextPiece(*file_, piece);
    const std::lock_guard lock(files_mutex_);
    if (found) {
      ++file_->reading;
      room -= kPieceOverhead + piece.length;
      task.pieces.push_back(std::move(piece));
      continue;
    }
    file_->handed_out = true;
    if (file_->reading == 0) EndFile(*file_);
    file_.reset();
  }
  return !task.pieces.empty();
}

// Under files_mutex_. What its pieces did not bring is a hole, there already, or cannot be had.
void Walk::EndFile(const LargeFile& file) {
  std::uint64_t done = file.brought;
  for (const Range& each : file.there) done += each.length;
  if (file.size > done) passed_bytes_ += file.size - done;
  ends_.push_back({file.number, file.size, file.brought, file.failed});
  --open_files_;
}

// Where data begin at `offset` or behind, and end: asked once for each stretch of them, since a
// file system may look at every page on the way. False when there is only a hole.
bool Walk::FindData(LargeFile& file, std::uint64_t& offset) {
  file.data_end = file.size;
  if (!options_.holes) return true;
  const off_t data = file.file->Seek(offset, SEEK_DATA);
  if (data < 0 && errno == ENXIO) {
    CheckLength(file);
    return false;
  }
  if (data < 0) return true;  // a file system that knows no holes has none
  offset = static_cast<std::uint64_t>(data);
  if (offset >= file.size) return false;
  const off_t hole = file.file->Seek(static_cast<std::uint64_t>(data), SEEK_HOLE);
  if (hole > data) file.data_end = std::min(file.size, static_cast<std::uint64_t>(hole));
  return true;
}

// Behind the end of a file that became shorter there are no data either, and no hole.
void Walk::CheckLength(LargeFile& file) {
  struct stat info {};
  Status status;
  if (file.file->Stat("", true, info) != 0) {
    status = Status::FromErrno(errno, "cannot read");
  } else if (static_cast<std::uint64_t>(info.st_size) < file.size) {
    status = BecameShorter();
  }
  if (!status.ok() && !file.failed.exchange(true)) {
    tell_({Kinded(status), file.path, status.message()});
  }
}

// The next data of the file, at most `out.length` of them; false when only a hole is left.
bool Walk::NextPiece(LargeFile& file, WalkPiece& out) {
  if (file.next >= file.size || file.failed) return false;
  Range missing;
  do {
    out.offset = file.next;
    if (file.next >= file.data_end && !FindData(file, out.offset)) return false;
    missing = NextMissing(file.there, out.offset, file.data_end);
    file.next = missing.offset;
    if (missing.length == 0 && file.next >= file.size) return false;
  } while (missing.length == 0);
  out.offset = missing.offset;
  const std::uint64_t most = missing.length;
  if (out.length < most) out.length -= (out.offset + out.length) % kPage;
  out.length = std::min(out.length, most);
  file.next = out.offset + out.length;
  return true;
}

// What comes next of a file that does not say how long it is; false at its end.
bool Walk::ReadPiece(LargeFile& file, WalkPiece& out) {
  if (file.failed) return false;
  out.offset = file.size;
  out.bytes.resize(std::min<std::uint64_t>(out.length, kMostWhole));
  const auto got = ReadFully(*file.file, file.size, out.bytes, stopped_);
  if (!got.ok()) {
    file.failed = true;
    tell_({Kinded(got.status()), file.path, got.status().message()});
    return false;
  }
  out.bytes.resize(*got);
  out.length = *got;
  file.size += *got;
  return *got > 0;
}

void Walk::PieceRead(const WalkPiece& piece, const Status& status) {
  LargeFile& file = *piece.file;
  if (status.ok()) {
    file.brought += piece.length;
  } else if (!file.failed.exchange(true)) {
    tell_({Kinded(status), file.path, status.message()});
  }
  const std::lock_guard lock(files_mutex_);
  if (--file.reading > 0 || !file.handed_out) return;
  EndFile(file);
  news_.notify_all();
}

// Waits for ends of files and for answers; false when none will come any more.
bool Walk::AwaitNews(bool scanned_all) {
  std::unique_lock lock(files_mutex_);
  news_.wait(lock, [&] {
    return stopped_ || !ends_.empty() || !wanted_.empty() ||
           (scanned_all ? open_files_ == 0 && offers_.empty() : MayScan(HoldsManyFolders(), true));
  });
  return !stopped_ && (!scanned_all || !ends_.empty() || !wanted_.empty());
}

bool Walk::HoldsManyFolders() {
  if (folders_.size() < options_.folders) return false;
  std::erase_if(folders_, [](const auto& folder) { return folder.expired(); });
  return folders_.size() >= options_.folders;
}

// Under files_mutex_. Nobody tells when a batch lets go of a directory: what waits for that is told
// of an answer, or the task is not empty and goes as it is.
bool Walk::MayScan(bool holds_many, bool is_empty) const {
  return offers_.size() < kMostOffers && (!holds_many || (is_empty && offers_.empty()));
}

Status Walk::Answered(const Want& want) {
  {
    const std::lock_guard lock(files_mutex_);
    for (const std::uint64_t number : want.numbers) {
      const auto offer = offers_.find(number);
      if (offer == offers_.end() || number >= want.up_to) {
        return {Code::kProtocolError, "the other rdcp wants what it was not offered"};
      }
      wanted_.push_back(std::move(offer->second));
      offers_.erase(offer);
    }
    const auto answered = offers_.lower_bound(want.up_to);
    for (auto at = offers_.begin(); at != answered; ++at) Pass(at->second.scanned.entry);
    offers_.erase(offers_.begin(), answered);
  }
  news_.notify_all();
  return {};
}

Status Walk::Has(Have have) {
  const std::lock_guard lock(files_mutex_);
  const auto offer = offers_.find(have.number);
  if (!options_.resume || offer == offers_.end() ||
      have.ranges.back().offset + have.ranges.back().length > offer->second.scanned.entry.size) {
    return {Code::kProtocolError, "the other rdcp has what it was not offered"};
  }
  offer->second.there = std::move(have.ranges);
  return {};
}

std::optional<WalkItem> Walk::TakeWanted() {
  for (;;) {
    WalkItem item;
    std::vector<Range> there;
    {
      const std::lock_guard lock(files_mutex_);
      if (wanted_.empty()) return std::nullopt;
      item.scanned = std::move(wanted_.front().scanned);
      there = std::move(wanted_.front().there);
      wanted_.pop_front();
    }
    item.flags = EntryWire::kAnswer;
    const SourceMark offered = SourceMark::Of(item.scanned.entry);
    if (!ClassifyFile(item)) {
      Pass(item.scanned.entry);
      continue;
    }
    if (options_.resume && item.large != nullptr) {
      item.flags |= EntryWire::kResumable;
      if (!there.empty() && IsStill(offered, *item.large->file)) {
        item.flags |= EntryWire::kGoesOn;
        for (const Range& each : there) kept_ += each.length;
        item.large->there = std::move(there);
      }
    }
    item.number = next_number_++;
    return item;
  }
}

void Walk::TakeEnds(WalkTask& task, std::size_t& room) {
  const std::lock_guard lock(files_mutex_);
  constexpr std::size_t kSize = sizeof(RecordHeader) + sizeof(FileEndWire);
  while (!ends_.empty() && room >= kSize) {
    room -= kSize;
    WalkItem item;
    item.what = WalkItem::What::kFileEnd;
    item.end = ends_.front();
    task.items.push_back(std::move(item));
    ends_.pop_front();
  }
}

bool Walk::TakeItems(WalkTask& task) {
  std::size_t room = options_.slot_bytes;
  TakeEnds(task, room);
  const std::size_t most = options_.offers ? kMostOffers / 8 : kMostItems;
  while (task.items.size() < most && file_ == nullptr) {
    std::optional<WalkItem> item = std::exchange(held_, std::nullopt);
    if (!item) item = TakeWanted();
    bool scanned_all = false;
    if (!item) {
      const bool holds_many = HoldsManyFolders();
      std::unique_lock lock(files_mutex_);
      const bool may_scan = MayScan(holds_many, task.items.empty());
      lock.unlock();
      if (may_scan) item = ScanOne(scanned_all);
    }
    if (!item) {
      if (!task.items.empty() || !AwaitNews(scanned_all)) break;
      TakeEnds(task, room);
      continue;
    }
    const std::size_t needed = RoomFor(*item);
    // What fits into no batch is handed out all the same: who packs it says so.
    if (needed > room && !task.items.empty()) {
      held_ = std::move(item);
      break;
    }
    room -= std::min(room, needed);
    file_ = item->large;
    if (item->scanned.directory != nullptr) folders_.insert(item->scanned.directory);
    task.items.push_back(*std::move(item));
  }
  return !task.items.empty();
}

// The next thing that there is to send; none at the end.
std::optional<WalkItem> Walk::ScanOne(bool& end) {
  Scanned scanned;
  while (Scan(scanned)) {
    if (auto item = Classify(std::move(scanned))) return item;
    scanned = Scanned();
  }
  end = true;
  return std::nullopt;
}

std::size_t Walk::RoomFor(const WalkItem& item) const {
  const Entry& entry = item.scanned.entry;
  if (item.what == WalkItem::What::kLeave) {
    return sizeof(RecordHeader) + sizeof(Le32) + sizeof(Le16) + entry.path.size();
  }
  std::size_t size = BatchWriter::SizeOf(entry);
  if (item.what == WalkItem::What::kWhole) return size + entry.size;
  if (item.what == WalkItem::What::kOffer && options_.digests) size += sizeof(Digest);
  if (options_.resume) size += sizeof(TimeWire);
  return size;
}

bool Walk::Scan(Scanned& out) {
  for (;;) {
    {
      const std::lock_guard lock(files_mutex_);
      if (stopped_) return false;
    }
    if (scanner_ != nullptr && scanner_->Next(out)) return true;
    scanner_.reset();
    if (source_ >= options_.paths.size()) TellMissing();
    if (source_ >= std::min(begun_, options_.paths.size())) return false;
    // A later source may have replaced what its names would be links to.
    if (options_.turns.size() > 1) seen_.clear();
    const auto source = static_cast<std::uint32_t>(source_++);
    auto scanner = Scanner::Open(source, options_.paths[source], options_.scan);
    if (scanner.ok()) {
      scanner_ = *std::move(scanner);
    } else {
      tell_({Kinded(scanner.status()), options_.paths[source], scanner.status().message()});
    }
  }
}

// Once: the scan has ended.
void Walk::TellMissing() {
  if (std::exchange(missing_told_, true) || options_.list == nullptr) return;
  for (const std::string& path : options_.list->Missing()) {
    tell_({Notice::What::kFailed, path, Listed::IsMissing().message()});
  }
}

// What becomes of it; nullopt when it is only told of.
std::optional<WalkItem> Walk::Classify(Scanned scanned) {
  const Scanned::What what = scanned.what;
  const Kind kind = scanned.entry.kind;
  if (what == Scanned::What::kProblem) {
    TellOf(scanned.entry, scanned.problem);
    return LeaveOut(nullptr);
  }
  WalkItem item;
  if (what == Scanned::What::kLeave) {
    item.what = WalkItem::What::kLeave;
    item.partial = sent_.back() != Sent::kAll;
    if (sent_.back() == Sent::kPart && options_.unsent) options_.unsent(Named(scanned.entry));
    sent_.pop_back();
    item.scanned = std::move(scanned);
    return item;
  }
  const bool special = kind != Kind::kFile && kind != Kind::kDirectory && kind != Kind::kSymlink;
  if (special && !options_.keep.specials) {
    TellOf(scanned.entry, {Code::kUnsupported,
                           "it is no regular file, directory or symlink; -a copies such, too"});
    return LeaveOut(&scanned.entry);
  }
  if (!ReadRestOf(scanned)) return LeaveOut(&scanned.entry);
  if (!BatchWriter::CanHold(scanned.entry) ||
      BatchWriter::SizeOf(scanned.entry) + sizeof(Digest) + sizeof(TimeWire) >
          options_.slot_bytes) {
    TellOf(scanned.entry,
           {Code::kErrno, ENAMETOOLONG, "its path and attributes are too long to be sent"});
    if (what == Scanned::What::kEnter) scanner_->Skip();
    return LeaveOut(&scanned.entry);
  }
  if (what == Scanned::What::kEnter) {
    sent_.push_back(scanned.unread ? Sent::kUnread : Sent::kAll);
  }
  item.scanned = std::move(scanned);
  if (!Number(item)) return LeaveOut(&item.scanned.entry);
  return item;
}

bool Walk::Number(WalkItem& item) {
  const Entry& entry = item.scanned.entry;
  const bool later = options_.keep.links && entry.links > 1 && entry.kind != Kind::kDirectory &&
                     !seen_.insert(entry.id).second;
  if (later) item.flags = EntryWire::kNoData;
  const bool has_data = entry.kind == Kind::kFile && !later;
  if (has_data && !options_.offers && !ClassifyFile(item)) return false;
  item.number = next_number_++;
  if (!has_data || !options_.offers) return true;
  item.what = WalkItem::What::kOffer;
  item.flags = EntryWire::kOffer;
  if (options_.resume && entry.size >= kLeastResumed) item.flags |= EntryWire::kResumable;
  const std::lock_guard lock(files_mutex_);
  offers_.emplace(item.number, Offered{item.scanned, {}});
  return true;
}

// It was told of, and is not sent: so its directory is not all there is.
std::optional<WalkItem> Walk::LeaveOut(const Entry* counted) {
  if (counted != nullptr) Pass(*counted);
  if (!sent_.empty()) sent_.back() = Sent::kPart;
  return std::nullopt;
}

bool Walk::ClassifyFile(WalkItem& item) {
  const Entry& entry = item.scanned.entry;
  const bool fits =
      entry.size <= kMostWhole && BatchWriter::SizeOf(entry) + entry.size <= options_.slot_bytes;
  item.what = fits ? WalkItem::What::kWhole : WalkItem::What::kEntry;
  if (fits && entry.size > 0) return true;
  auto opened = Open(item.scanned);
  const auto any =
      opened.ok() && entry.size == 0 ? HasAny(**opened, stopped_) : Result<bool>(false);
  const Status& problem = opened.ok() ? any.status() : opened.status();
  if (!problem.ok()) {
    TellOf(entry, problem);
    return false;
  }
  if (fits && !*any) return true;
  item.what = WalkItem::What::kEntry;
  auto file = std::make_shared<LargeFile>();
  file->number = next_number_;
  file->path = Named(entry);
  file->size = entry.size;
  file->unsized = *any;
  file->file = *std::move(opened);
  {
    // Never many: behind this one the next is opened only when a batch holds its last pieces.
    const std::lock_guard lock(files_mutex_);
    ++open_files_;
  }
  item.large = std::move(file);
  return true;
}

// What cannot be read is told of, and the entry goes without; a symlink only with its target.
bool Walk::ReadRestOf(Scanned& scanned) {
  const Status status = ReadRest(scanned, nullptr, options_.keep);
  if (!status.ok()) TellOf(scanned.entry, status);
  return scanned.entry.kind != Kind::kSymlink || !scanned.entry.target.empty();
}

Result<FilePtr> Walk::Open(Scanned& scanned) const {
  const Entry planned = scanned.entry;
  RDFS_ASSIGN_OR_RETURN(FilePtr file, OpenSource(scanned));
  if (scanned.replaced) {
    RDFS_RETURN_IF_ERROR(ReadRest(scanned, file, options_.keep));
    // A part of it would be no file that there ever was, and the batch has no more room.
    const bool fits = scanned.entry.size <= planned.size &&
                      BatchWriter::SizeOf(scanned.entry) <= BatchWriter::SizeOf(planned);
    if (!fits) return Status(Code::kErrno, ESTALE, "it was replaced while it was copied");
    return file;
  }
  // One that has grown is copied as far as it was then, and so are its times: whoever compares
  // them later sees that there is more.
  if (scanned.entry.size > planned.size) scanned.entry = planned;
  scanned.entry.xattrs = planned.xattrs;
  return file;
}

}  // namespace rdfs::copy
