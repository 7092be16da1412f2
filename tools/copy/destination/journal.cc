#include "tools/copy/destination/journal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

#include "tools/copy/file/data.h"
#include "tools/pipe/wire/digest.h"

namespace rdfs::copy {

using pipe::Digest;

// A stretch; without any length, the number of a name.
struct Journal::Record {
  Le64 offset, length;
  Digest digest;
};

namespace {

constexpr std::string_view kPartialPrefix = ".rdcp-part-";
constexpr std::string_view kJournalPrefix = ".rdcp-journal-";
constexpr std::array<char, 8> kMagic = {'R', 'D', 'C', 'P', 'J', 'N', 'L', '1'};
// Of one stretch: that of the largest batch.
constexpr std::uint64_t kMostNoted = 16 << 20;
// Of all that is read of one: 128 MiB. Behind it the file is copied again.
constexpr std::size_t kMostRecords = 4 << 20;
constexpr std::size_t kRecordsAtOnce = 4096;
// Each is a round trip to an export. Who is killed loses so many stretches at most, or what was
// written in so long a time.
constexpr std::size_t kNotedAtOnce = 8;
constexpr std::chrono::seconds kNotedWithin{1};
// Each was interrupted before it had done anything.
constexpr std::size_t kMostNumbers = 16;

struct TimeField {
  LeI64 seconds;
  Le32 nanoseconds;
};
struct Head {
  std::array<char, 8> magic;
  Le64 size, inode;
  TimeField mtime, ctime;
};
static_assert(sizeof(Head) == 48 && alignof(Head) == 1);
struct HeadWithDigest {
  Head head;
  Digest digest;
};
TimeField ToField(const timespec& time) {
  return {std::int64_t{time.tv_sec}, static_cast<std::uint32_t>(time.tv_nsec)};
}

template <typename T>
ByteSpan BytesOf(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

HeadWithDigest HeadOf(const SourceMark& mark) {
  const Head head{kMagic, mark.size, mark.inode, ToField(mark.mtime), ToField(mark.ctime)};
  return {head, pipe::DigestOf(BytesOf(head))};
}

bool SameTime(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

std::string Named(std::string_view prefix, std::string_view name) {
  const Digest digest = pipe::DigestOf(AsBytes(name));
  std::string out(prefix);
  for (std::size_t i = 0; i < 8; ++i) {
    out += fmt::format("{:02x}", std::to_integer<unsigned>(digest[i]));
  }
  return out;
}

constexpr int kOpenFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

// `made`: it was not there.
FilePtr OpenOrMake(File& directory, const std::string& name, bool& made) {
  FilePtr file = directory.Open(name, kOpenFlags | O_CREAT | O_EXCL, 0600);
  made = file != nullptr;
  if (made || errno != EEXIST) return file;
  // Whoever has it may remove it just now.
  return directory.Open(name, kOpenFlags | O_CREAT, 0600);
}

Digest DigestOfNumber(std::uint64_t number) { return pipe::DigestOf(BytesOf(Le64(number))); }

}  // namespace

bool operator==(const SourceMark& a, const SourceMark& b) {
  return a.size == b.size && a.inode == b.inode && SameTime(a.mtime, b.mtime) &&
         SameTime(a.ctime, b.ctime);
}

Range NextMissing(std::span<const Range> kept, std::uint64_t begin, std::uint64_t end) {
  auto next = std::ranges::upper_bound(kept, begin, {}, &Range::offset);
  if (next != kept.begin()) {
    const Range& before = *std::prev(next);
    begin = std::max(begin, before.offset + before.length);
  }
  for (; next != kept.end() && next->offset <= begin; ++next) begin = next->offset + next->length;
  if (begin >= end) return {end, 0};
  return {begin, (next == kept.end() ? end : std::min(end, next->offset)) - begin};
}

std::string PartialName(std::string_view name) { return Named(kPartialPrefix, name); }
std::string PartialName(std::uint64_t number) {
  return fmt::format("{}{:016x}", kPartialPrefix, number);
}
std::string JournalName(std::string_view name) { return Named(kJournalPrefix, name); }
bool IsPartialName(std::string_view name) {
  return name.starts_with(kPartialPrefix) || name.starts_with(kJournalPrefix);
}

// Those that `wanted` wants, as they were noted.
template <typename Wanted>
Result<std::vector<Journal::Record>> Journal::Read(const std::atomic<bool>& stop,
                                                   Wanted wanted) const {
  std::vector<Record> out;
  std::vector<Record> some(kRecordsAtOnce);
  constexpr std::uint64_t kBegin = sizeof(HeadWithDigest);
  std::uint64_t at = kBegin;
  while (at < kBegin + kMostRecords * sizeof(Record)) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t got,
                          ReadFully(*file_, at, std::as_writable_bytes(std::span(some)), stop));
    at += got;
    const auto whole = std::span(some).first(got / sizeof(Record));
    std::ranges::copy_if(whole, std::back_inserter(out), wanted);
    if (whole.size() < some.size()) break;
  }
  return out;
}

std::unique_ptr<Journal> Journal::Open(File& directory, const std::string& name, bool make) {
  bool made = false;
  FilePtr file = make ? OpenOrMake(directory, name, made) : directory.Open(name, kOpenFlags);
  if (file == nullptr) return nullptr;
  const bool locked = file->Lock() == 0;
  if (!locked && errno == EAGAIN) return nullptr;
  struct stat info {};
  struct stat named {};
  // Whoever had it before may have removed it since we opened it.
  if (file->Stat("", true, info) != 0 || directory.Stat(name, false, named) != 0 ||
      info.st_ino != named.st_ino) {
    return nullptr;
  }
  const bool ours = S_ISREG(info.st_mode) && info.st_uid == directory.Maker() &&
                    info.st_nlink == 1 && (info.st_mode & 077U) == 0;
  if (!locked || !ours) {
    // No later copy could use it either, and --delete leaves it.
    if (made) (void)directory.Remove(name, false);
    return nullptr;
  }
  return std::unique_ptr<Journal>(
      new Journal(std::move(file), static_cast<std::uint64_t>(info.st_size)));
}

// Behind the last record that is whole.
Journal::Journal(FilePtr file, std::uint64_t size)
    : file_(std::move(file)),
      at_once_(file_->descriptor() < 0 ? kNotedAtOnce : 1),
      end_(size / sizeof(Record) * sizeof(Record)),
      flushed_(BootClock::now()) {
  static_assert(sizeof(Record) == 32 && alignof(Record) == 1);
  static_assert(sizeof(HeadWithDigest) % sizeof(Record) == 0);
}

Journal::~Journal() = default;

Status Journal::Start(const SourceMark& mark) {
  if (file_->Truncate(0) != 0) return Status::FromErrno(errno, "cannot empty the journal");
  end_ = sizeof(HeadWithDigest);
  return WriteFully(*file_, 0, BytesOf(HeadOf(mark)));
}

Result<std::vector<Range>> Journal::Trusted(const SourceMark& mark, File& file,
                                            const std::atomic<bool>& stop) const {
  std::vector<Range> out;
  HeadWithDigest head{};
  const MutableByteSpan place = std::as_writable_bytes(std::span<HeadWithDigest, 1>(&head, 1));
  RDFS_ASSIGN_OR_RETURN(const std::size_t got, ReadFully(*file_, 0, place, stop));
  if (got != place.size() || !std::ranges::equal(place, BytesOf(HeadOf(mark)))) return out;
  // All that may be worth a look, in the order of the file.
  RDFS_ASSIGN_OR_RETURN(auto records, Read(stop, [size = mark.size](const Record& each) {
                          return each.length > 0 && each.length <= kMostNoted &&
                                 each.offset <= size && each.length <= size - each.offset;
                        }));
  std::ranges::stable_sort(records, {},
                           [](const Record& each) { return std::uint64_t{each.offset}; });
  std::vector<std::byte> buffer;
  std::uint64_t end = 0;
  for (const Record& each : records) {
    if (each.offset < end) continue;
    buffer.resize(each.length);
    const auto read = ReadFully(file, each.offset, buffer, stop);
    if (!read.ok() && read.status().errno_value() == EINTR) return read.status();
    if (!read.ok() || *read != buffer.size() || pipe::DigestOf(buffer) != each.digest) continue;
    if (!out.empty() && each.offset == end) {
      out.back().length += each.length;
    } else {
      out.push_back({each.offset, each.length});
    }
    end = each.offset + each.length;
  }
  return out;
}

void Journal::Add(std::uint64_t offset, ByteSpan bytes) {
  const Record record{offset, bytes.size(), pipe::DigestOf(bytes)};
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(record);
    if (pending_.size() < at_once_ && BootClock::now() < flushed_ + kNotedWithin) return;
  }
  Flush();
}

void Journal::Flush() {
  std::vector<Record> ripe;
  {
    const std::lock_guard lock(mutex_);
    ripe.swap(pending_);
    flushed_ = BootClock::now();
  }
  const ByteSpan bytes = std::as_bytes(std::span(ripe));
  (void)WriteFully(*file_, end_.fetch_add(bytes.size()), bytes);
}

Status Journal::AddNumber(std::uint64_t number) {
  const Record record{number, 0, DigestOfNumber(number)};
  return WriteFully(*file_, end_.fetch_add(sizeof(record)), BytesOf(record));
}

std::vector<std::uint64_t> Journal::Numbers() const {
  const std::atomic<bool> never{false};
  const auto records = Read(never, [](const Record& each) {
    return each.length == 0 && each.digest == DigestOfNumber(each.offset);
  });
  std::vector<std::uint64_t> out;
  if (!records.ok()) return out;
  for (auto each = records->rbegin(); each != records->rend() && out.size() < kMostNumbers;
       ++each) {
    out.push_back(each->offset);
  }
  return out;
}

}  // namespace rdfs::copy
