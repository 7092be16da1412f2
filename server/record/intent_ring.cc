#include "server/record/intent_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "server/record/epoch_tag.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/base/random.h"

namespace rdfs::server {

// The file: a header of one page, then records of 1 KiB. Little-endian.
struct IntentRing::Header {
  Le64 magic;
  Le64 session;
  Le32 version;
  Le32 records;
  Le64 seed;
  Le64 exported;
  Le64 sum;               // of the fields above
  Le64 acknowledged;      // written in place,
  Le64 acknowledged_sum;  // hence with a checksum of its own
  Le64 seen;              // CLOCK_REALTIME, seconds
  Le32 opens;
  Le32 given_up;
};

struct IntentRing::Record {
  Le64 intent_sum;  // written last by Begin, cleared first when the record is freed
  Le64 result_sum;  // written last by Complete
  Le64 sequence;
  Le64 digest;
  Le16 opcode;
  Le16 error;
  Le16 reply_bytes;
  Le16 reply_lost;
  PriorStateWire before;
  std::array<std::byte, kMaxReplyBytes> reply;
};

namespace {

constexpr std::uint64_t kMagic = 0x31676e6972736664;  // "dfsring1"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kRecordBytes = 1024;
constexpr std::uint32_t kMaxRecords = 1 << 16;
constexpr std::size_t kMostStretches = 4096;
constexpr std::chrono::milliseconds kLongestLook{1000};
constexpr std::chrono::microseconds kBetweenLooks{200};
// Of a request's body: every place of fs::NamesInBody lies within.
constexpr std::size_t kNamesWithin = 64;

// A kill ends the thread between two of its stores, and what it had stored by then is there: only
// the compiler's order has to be held.
void StoresAboveComeFirst() { std::atomic_signal_fence(std::memory_order_seq_cst); }

std::uint64_t NeverZero(std::uint64_t sum) { return sum == 0 ? 1 : sum; }

// Whether the name is still that of this file.
bool IsAt(const std::string& path, const Fd& fd) {
  struct stat named {};
  struct stat ours {};
  return lstat(path.c_str(), &named) == 0 && fstat(fd.get(), &ours) == 0 &&
         named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
}

// The lock says that it is in use, until this process ends; whoever else asks so is not in the way.
// Who looks at what is left over (OpenUnused) is, for a moment, and may take the name away then.
// Where locks do not work at all, the file does without.
Result<Fd> OpenLocked(const std::string& path) {
  const Deadline until = DeadlineAfter(kLongestLook);
  while (true) {
    Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return Status::FromErrno(errno, fmt::format("cannot open {}", path));
    struct stat st {};
    if (fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
      return Status(Code::kErrno, EPERM, fmt::format("{} is not a file of ours", path));
    }
    const bool locked = flock(fd.get(), LOCK_SH | LOCK_NB) == 0;
    const bool looked_at = !locked && (errno == EWOULDBLOCK || errno == EINTR);
    if (!looked_at && IsAt(path, fd)) return fd;
    if (BootClock::now() >= until) {
      LogWarn("{} is being looked at, or made anew, all the time", path);
      return fd;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

Result<Fd> OpenFile(const std::string& path, std::size_t size) {
  RDFS_ASSIGN_OR_RETURN(Fd fd, OpenLocked(path));
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, path);
  if (static_cast<std::uint64_t>(st.st_size) != size &&
      (ftruncate(fd.get(), 0) != 0 || ftruncate(fd.get(), static_cast<off_t>(size)) != 0)) {
    return Status::FromErrno(errno, fmt::format("cannot size {}", path));
  }
  // All of it now: a store into a mapping that finds the disk full would kill the process.
  if (const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); error != 0) {
    return Status::FromErrno(error, fmt::format("cannot reserve {} bytes for {}", size, path));
  }
  return fd;
}

// A ring that no process has open, locked against it; invalid where there is none. Not for long:
// who opens it waits.
Fd OpenUnused(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const bool unused = fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && IsAt(path, fd);
  return unused ? std::move(fd) : Fd();
}

}  // namespace

IntentRing::IntentRing(std::string path, Fd fd, std::byte* base, std::size_t size)
    : path_(std::move(path)), fd_(std::move(fd)), base_(base), size_(size) {
  static_assert(sizeof(Record) <= kRecordBytes);
  static_assert(sizeof(Header) <= kHeaderBytes);
}

IntentRing::~IntentRing() { munmap(base_, size_); }

IntentRing::Header& IntentRing::header() const { return *reinterpret_cast<Header*>(base_); }

IntentRing::Record& IntentRing::At(std::uint32_t index) const {
  return *reinterpret_cast<Record*>(base_ + kHeaderBytes + std::size_t{index} * kRecordBytes);
}

void IntentRing::Format(std::byte* base, std::uint64_t session, std::uint32_t records,
                        std::uint64_t exported) {
  std::memset(base, 0, kHeaderBytes + std::size_t{records} * kRecordBytes);
  auto& header = *reinterpret_cast<Header*>(base);
  header.session = session;
  header.version = kVersion;
  header.records = records;
  header.exported = exported;
  header.seed = RandomU64();
  header.magic = kMagic;
  header.sum = NeverZero(XXH3_64bits(&header, offsetof(Header, sum)));
}

Result<std::unique_ptr<IntentRing>> IntentRing::Open(const std::string& path, std::uint64_t session,
                                                     std::uint32_t records,
                                                     std::uint64_t exported) {
  if (records == 0 || records > kMaxRecords) {
    return Status(Code::kInvalidArgument, "an intent ring of no or too many records");
  }
  const std::size_t size = kHeaderBytes + std::size_t{records} * kRecordBytes;
  RDFS_ASSIGN_OR_RETURN(Fd fd, OpenFile(path, size));
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Status::FromErrno(errno, fmt::format("cannot map {}", path));
  (void)madvise(base, size, MADV_DONTFORK);
  std::unique_ptr<IntentRing> ring(
      new IntentRing(path, std::move(fd), static_cast<std::byte*>(base), size));
  const Header& header = ring->header();
  if (!IsWhole(header) || header.session != session || header.records != records ||
      header.exported != exported) {
    if (header.magic != 0) LogWarn("{} was no intent ring of its session: begun anew", path);
    Format(ring->base_, session, records, exported);
    ring->made_anew_ = true;
  }
  ring->count_ = records;
  ring->seed_ = header.seed;
  ring->Load();
  ring->NoteSeen();
  return ring;
}

bool IntentRing::IsWhole(const Header& header) {
  return header.magic == kMagic && header.version == kVersion &&
         header.sum == NeverZero(XXH3_64bits(&header, offsetof(Header, sum)));
}

void IntentRing::Load() {
  const std::lock_guard lock(mutex_);
  const Header& header = this->header();
  if (header.acknowledged_sum == AcknowledgedSum(header.acknowledged)) {
    acknowledged_ = header.acknowledged;
  }
  std::uint32_t damaged = 0;
  for (std::uint32_t index = count_; index-- > 0;) {
    Record& record = At(index);
    const std::uint64_t sequence = record.sequence;
    const bool whole = record.intent_sum != 0 && record.intent_sum == IntentSum(record);
    if (record.intent_sum != 0 && !whole) ++damaged;
    if (!whole || sequence <= acknowledged_ || entries_.contains(sequence)) {
      record.intent_sum = 0;
      free_.push_back(index);
      continue;
    }
    const bool done =
        record.reply_bytes <= kMaxReplyBytes && record.result_sum == ResultSum(record);
    // A lock that an earlier server gave or took may be gone, or its client's again: once more.
    const bool lasts = record.opcode != static_cast<std::uint16_t>(fs::Opcode::kSetLock);
    entries_[sequence] = {index, done && lasts ? Phase::kDone : Phase::kInterrupted};
  }
  if (damaged > 0) LogWarn("{}: {} damaged records were dropped", path_, damaged);
}

std::uint64_t IntentRing::IntentSum(const Record& record) const {
  std::array<std::byte, 24 + sizeof(PriorStateWire)> bytes{};
  ByteWriter writer(bytes);
  writer.Write(record.sequence);
  writer.Write(record.digest);
  writer.Write(record.opcode);
  writer.Write(record.before);
  return NeverZero(XXH3_64bits_withSeed(bytes.data(), writer.size(), seed_));
}

std::uint64_t IntentRing::ResultSum(const Record& record) const {
  std::array<std::byte, 24 + kMaxReplyBytes> bytes{};
  ByteWriter writer(bytes);
  writer.Write(record.intent_sum);
  writer.Write(record.error);
  writer.Write(record.reply_bytes);
  writer.Write(record.reply_lost);
  const std::size_t length = std::min<std::size_t>(record.reply_bytes, kMaxReplyBytes);
  writer.WriteBytes(ByteSpan(record.reply).first(length));
  return NeverZero(XXH3_64bits_withSeed(bytes.data(), writer.size(), seed_));
}

std::uint64_t IntentRing::AcknowledgedSum(std::uint64_t sequence) const {
  return NeverZero(XXH3_64bits_withSeed(&sequence, sizeof(sequence), seed_));
}

std::uint64_t IntentRing::Digest(fs::Opcode opcode, ByteSpan body) {
  std::array<std::byte, kNamesWithin> head{};
  const std::size_t head_bytes = std::min(body.size(), head.size());
  std::copy_n(body.begin(), head_bytes, head.begin());
  for (const std::size_t at : fs::NamesInBody(opcode)) {
    std::fill_n(head.begin() + static_cast<std::ptrdiff_t>(at), sizeof(Le64), std::byte{0});
  }
  const std::uint64_t seed =
      XXH3_64bits_withSeed(head.data(), head_bytes, static_cast<std::uint64_t>(opcode));
  const ByteSpan rest = body.subspan(head_bytes);
  return XXH3_64bits_withSeed(rest.data(), rest.size(), seed);
}

IntentRing::Found IntentRing::Lookup(std::uint64_t sequence, std::uint64_t digest) const {
  const std::lock_guard lock(mutex_);
  Found found;
  const auto entry = entries_.find(sequence);
  if (entry == entries_.end()) {
    const bool answered = sequence <= acknowledged_ || IsAnsweredLocked(sequence);
    found.verdict = answered ? Verdict::kAcknowledged : Verdict::kNew;
    return found;
  }
  const Record& record = At(entry->second.index);
  if (record.digest != digest) {
    found.verdict = Verdict::kMismatch;
    return found;
  }
  switch (entry->second.phase) {
    case Phase::kIntent:
      found.verdict = Verdict::kInProgress;
      break;
    case Phase::kInterrupted:
      found.verdict = Verdict::kInterrupted;
      found.before = record.before.ToState();
      break;
    case Phase::kDone: {
      found.verdict = Verdict::kDone;
      found.error = static_cast<fs::WireError>(std::uint16_t{record.error});
      found.reply_lost = record.reply_lost != 0;
      const std::size_t length = std::min<std::size_t>(record.reply_bytes, kMaxReplyBytes);
      found.reply.assign(record.reply.begin(),
                         record.reply.begin() + static_cast<std::ptrdiff_t>(length));
      break;
    }
  }
  return found;
}

Status IntentRing::Begin(std::uint64_t sequence, fs::Opcode opcode, std::uint64_t digest,
                         const PriorState& before) {
  const std::lock_guard lock(mutex_);
  if (sequence <= acknowledged_ || entries_.contains(sequence)) {
    return Status(Code::kInvalidArgument, "this sequence number has been used");
  }
  if (free_.empty()) {
    return Status(Code::kBusy, "the client does not acknowledge the answers that it was sent");
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Record& record = At(index);
  record.result_sum = 0;
  record.sequence = sequence;
  record.digest = digest;
  record.opcode = static_cast<std::uint16_t>(opcode);
  record.error = 0;
  record.reply_bytes = 0;
  record.reply_lost = 0;
  record.before = PriorStateWire::From(before);
  StoresAboveComeFirst();
  record.intent_sum = IntentSum(record);
  StoresAboveComeFirst();
  entries_[sequence] = {index, Phase::kIntent};
  return Status::Ok();
}

bool IntentRing::Resume(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(sequence);
  if (entry == entries_.end() || entry->second.phase != Phase::kInterrupted) return false;
  entry->second.phase = Phase::kIntent;
  return true;
}

void IntentRing::Complete(std::uint64_t sequence, fs::WireError error, ByteSpan reply) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(sequence);
  if (entry == entries_.end() || entry->second.phase == Phase::kDone) return;
  WriteResultLocked(At(entry->second.index), error, reply);
  entry->second.phase = Phase::kDone;
}

void IntentRing::Amend(std::uint64_t sequence, ByteSpan reply) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(sequence);
  if (entry == entries_.end() || entry->second.phase != Phase::kDone) return;
  WriteResultLocked(At(entry->second.index), fs::WireError::kOk, reply);
}

void IntentRing::WriteResultLocked(Record& record, fs::WireError error, ByteSpan reply) {
  const bool fits = reply.size() <= kMaxReplyBytes;
  record.error = static_cast<std::uint16_t>(error);
  record.reply_lost = fits ? 0 : 1;
  record.reply_bytes = static_cast<std::uint16_t>(fits ? reply.size() : 0);
  if (fits) std::ranges::copy(reply, record.reply.begin());
  StoresAboveComeFirst();
  record.result_sum = ResultSum(record);
  StoresAboveComeFirst();
}

void IntentRing::Abandon(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  ReleaseLocked(sequence);
}

void IntentRing::ReleaseLocked(std::uint64_t sequence) {
  const auto entry = entries_.find(sequence);
  if (entry == entries_.end()) return;
  At(entry->second.index).intent_sum = 0;
  StoresAboveComeFirst();
  free_.push_back(entry->second.index);
  entries_.erase(entry);
}

void IntentRing::Acknowledge(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (sequence <= acknowledged_) return;
  acknowledged_ = sequence;
  // First the number, so that no record vanishes whose number could then be used again.
  header().acknowledged = sequence;
  header().acknowledged_sum = AcknowledgedSum(sequence);
  StoresAboveComeFirst();
  std::erase_if(answered_, [&](const auto& stretch) { return stretch.second <= sequence; });
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    // What is being carried out cannot have been answered: the client is wrong, the record stays.
    if (entry->first > sequence || entry->second.phase == Phase::kIntent) {
      ++entry;
      continue;
    }
    At(entry->second.index).intent_sum = 0;
    free_.push_back(entry->second.index);
    entry = entries_.erase(entry);
  }
}

void IntentRing::AcknowledgeOne(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(sequence);
  // As above.
  if (entry == entries_.end() || entry->second.phase == Phase::kIntent) return;
  NoteAnsweredLocked(sequence);
  ReleaseLocked(sequence);
}

bool IntentRing::IsAnsweredLocked(std::uint64_t sequence) const {
  const auto above = answered_.upper_bound(sequence);
  return above != answered_.begin() && sequence <= std::prev(above)->second;
}

void IntentRing::NoteAnsweredLocked(std::uint64_t sequence) {
  auto above = answered_.upper_bound(sequence);
  auto stretch = above == answered_.begin() ? answered_.end() : std::prev(above);
  if (stretch != answered_.end() && stretch->second >= sequence) return;
  if (stretch != answered_.end() && stretch->second + 1 == sequence) {
    stretch->second = sequence;
  } else {
    stretch = answered_.emplace(sequence, sequence).first;
  }
  if (above != answered_.end() && above->first == sequence + 1) {
    stretch->second = above->second;
    answered_.erase(above);
  }
  // Between them lie those of requests without a record, and of those that wait: the oldest are
  // forgotten, and a copy of them that comes so late would be carried out.
  if (answered_.size() > kMostStretches) answered_.erase(answered_.begin());
}

void IntentRing::NoteOpens(std::size_t opens) {
  header().opens = static_cast<std::uint32_t>(opens);
}

void IntentRing::NoteGivenUp(bool given_up) { header().given_up = given_up ? 1 : 0; }

bool IntentRing::given_up() const { return header().given_up != 0; }

void IntentRing::NoteSeen() { header().seen = static_cast<std::uint64_t>(time(nullptr)); }

std::vector<IntentRing::Leftover> IntentRing::Leftovers(const std::string& directory) {
  std::vector<Leftover> found;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(directory, error)) {
    if (file.path().extension() != ".ring") continue;
    const Fd fd = OpenUnused(file.path());
    Header header{};
    if (!fd.valid()) continue;
    if (pread(fd.get(), &header, sizeof(header), 0) != sizeof(header) || !IsWhole(header)) continue;
    const auto now = static_cast<std::uint64_t>(time(nullptr));
    const std::uint64_t seen = header.seen;
    found.push_back({.path = file.path(),
                     .session = header.session,
                     .exported = header.exported,
                     .opens = header.opens,
                     .age = std::chrono::seconds(now > seen ? now - seen : 0)});
  }
  return found;
}

std::uint64_t IntentRing::FirstEpoch(const std::string& directory, std::uint64_t epoch) {
  const std::string path = directory + "/first-epoch";
  const Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  (void)flock(fd.get(), LOCK_EX);  // two may be the first
  std::array<char, 32> text{};
  const ssize_t length = pread(fd.get(), text.data(), text.size(), 0);
  std::uint64_t first = 0;
  if (length > 0 && std::from_chars(text.data(), text.data() + length, first).ec == std::errc()) {
    return first;
  }
  FillRandom(std::as_writable_bytes(std::span<std::uint64_t, 1>(&first, 1)));
  first = WithTagOf(first | kTaggedEpoch, epoch);
  const std::string own = std::to_string(first);
  if (pwrite(fd.get(), own.data(), own.size(), 0) != static_cast<ssize_t>(own.size())) {
    LogDebug("cannot write {}: errno {}", path, errno);
  }
  return first;
}

void IntentRing::RemoveLeftover(const std::string& path) {
  const Fd fd = OpenUnused(path);
  if (fd.valid() && unlink(path.c_str()) != 0) LogWarn("cannot remove {}: errno {}", path, errno);
}

void IntentRing::Remove() {
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) return;
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    LogWarn("cannot remove {}: errno {}", path_, errno);
  }
}

std::vector<std::uint64_t> IntentRing::interrupted() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> sequences;
  for (const auto& [sequence, entry] : entries_) {
    if (entry.phase == Phase::kInterrupted) sequences.push_back(sequence);
  }
  std::ranges::sort(sequences);
  return sequences;
}

std::size_t IntentRing::records_in_use() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace rdfs::server
