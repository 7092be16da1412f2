#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/copy/destination/destination_impl.h"
#include "tools/copy/file/data.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

// Zeros are written so many at once; and what fits has its holes filled.
constexpr std::size_t kBuffer = 64 << 10;
constexpr std::uint64_t kFilledBytes = 4096;

}  // namespace

Result<std::unique_ptr<OutputFile>> Destination::Begin(const Entry& entry) {
  if (entry.kind != Kind::kFile) return Status(Code::kProtocolError, "this is no regular file");
  auto place = PlaceFor(entry);
  if (!place.ok()) {
    Settle(entry, false);
    return place.status();
  }
  auto state = std::make_unique<OutputFile::State>(*this, *std::move(place), entry);
  // From here on its destructor settles.
  std::unique_ptr<OutputFile> out(new OutputFile(std::move(state)));
  RDFS_RETURN_IF_ERROR(out->Open());
  return out;
}

File& OutputFile::file() const { return *state_->file; }

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}

OutputFile::~OutputFile() {
  if (!state_->open) return;
  if (state_->journal != nullptr && state_->written) {
    state_->journal->Flush();
  } else if (!state_->temporary.empty()) {
    Remove();
  }
  state_->owner.Settle(state_->entry, false);
}

// Nobody may read what may be somebody else's, or have attributes; save those who may anyway.
mode_t OutputFile::FirstMode() const {
  const Entry& entry = state_->entry;
  const DestinationOptions& options = state_->owner.options_;
  const Destination::Node& folder = *state_->place.folder;
  const bool is_ours = entry.uid == geteuid() && entry.gid == folder.group.value_or(getegid()) &&
                       entry.xattrs.empty() && !folder.inherits;
  if (options.keep.mode) return is_ours ? entry.mode & 0777U : 0600;
  if (ReplacesFile()) return 0600;
  return entry.mode & 0777U & ~(folder.inherits ? 0 : options.umask);
}

bool OutputFile::ReplacesFile() const {
  const State& state = *state_;
  return !state.temporary.empty() && state.place.now && S_ISREG(state.place.now->st_mode);
}

// Two names of it may be two files of the source: the second one gets a file of its own.
bool Destination::MayBeWritten(const struct stat& there, const Entry& entry) {
  if (there.st_nlink < 2) return true;
  const std::lock_guard lock(mutex_);
  return written_.try_emplace(IdOf(there), entry.id).first->second == entry.id;
}

Status OutputFile::Open() {
  State& state = *state_;
  const DestinationOptions& options = state.owner.options_;
  const Destination::Place& place = state.place;
  if (options.in_place && place.now && S_ISREG(place.now->st_mode) &&
      state.owner.MayBeWritten(*place.now, state.entry)) {
    state.file = place.in->Open(place.name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (state.file == nullptr) return Status::FromErrno(errno, "cannot open it to write in place");
  } else if (!OpenPartial(false)) {
    state.temporary = state.owner.TemporaryName();
    state.file =
        place.in->Open(state.temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, FirstMode());
    if (state.file == nullptr) {
      const int error = errno;
      state.temporary.clear();
      return Status::FromErrno(error, "cannot make a file at the destination");
    }
  }
  if (state.file->Stat("", true, state.made) != 0) {
    return Status::FromErrno(errno, "cannot look at the file at the destination");
  }
  if (!S_ISREG(state.made.st_mode)) return {Code::kErrno, EEXIST, "it was replaced just now"};
  return {};
}

Status OutputFile::Write(std::uint64_t offset, ByteSpan bytes) {
  RDFS_RETURN_IF_ERROR(WriteFully(*state_->file, offset, bytes));
  Reached(offset + bytes.size());
  Note(offset, bytes);
  return {};
}

void OutputFile::Reached(std::uint64_t end) {
  std::uint64_t before = state_->end.load();
  while (before < end && !state_->end.compare_exchange_weak(before, end)) {
  }
}

Status OutputFile::Hole(std::uint64_t offset, std::uint64_t length) {
  if (!state_->temporary.empty() || length == 0) return {};
  const auto size = static_cast<std::uint64_t>(state_->made.st_size);
  if (offset >= size) return {};
  const std::uint64_t end = std::min(size, offset + length);
  if (state_->file->PunchHole(offset, end - offset) == 0) return {};
  static constexpr std::array<std::byte, kBuffer> kZeros{};
  for (std::uint64_t at = offset; at < end;) {
    const std::size_t piece = std::min<std::uint64_t>(kZeros.size(), end - at);
    RDFS_RETURN_IF_ERROR(Write(at, ByteSpan(kZeros).first(piece)));
    at += piece;
  }
  return {};
}

Status OutputFile::CopyFrom(File& source, std::uint64_t size, const Conduct& conduct) {
  struct stat info {};
  if (size <= kFilledBytes) {
    RDFS_RETURN_IF_ERROR(CopyData({source, *state_->file, 0, size}, conduct));
    Reached(size);
    return {};
  }
  if (source.Stat("", true, info) != 0) return Status::FromErrno(errno, "cannot look at it");
  const bool sparse = static_cast<std::uint64_t>(info.st_blocks) * 512 < size;
  if (state_->kept.empty() && Clone(source, info.st_dev)) {
    if (state_->file->Stat("", true, info) != 0) {
      return Status::FromErrno(errno, "cannot look at it");
    }
    if (static_cast<std::uint64_t>(info.st_size) < size) return BecameShorter();
    Reached(static_cast<std::uint64_t>(info.st_size));
    conduct.moved += size;
    return {};
  }
  for (std::uint64_t at = 0; at < size;) {
    std::uint64_t end = size;
    std::uint64_t begin = at;
    if (sparse) RDFS_RETURN_IF_ERROR(FindData(source, size, begin, end));
    RDFS_RETURN_IF_ERROR(Hole(at, begin - at));
    conduct.moved += begin - at;
    RDFS_RETURN_IF_ERROR(CopyMissing(source, begin, end, conduct));
    if (begin < end) Reached(end);
    at = end;
  }
  // What is behind the end looks like a hole.
  if (!sparse) return {};
  if (source.Stat("", true, info) != 0) return Status::FromErrno(errno, "cannot look at it");
  return static_cast<std::uint64_t>(info.st_size) < size ? BecameShorter() : Status::Ok();
}

bool OutputFile::Clone(File& source, std::uint64_t device) {
  const int to = state_->file->descriptor();
  if (source.descriptor() < 0 || to < 0) return false;
  Clones& clones = state_->owner.clones_;
  const std::uint64_t device_to = state_->made.st_dev;
  if (!clones.MayBe(device, device_to)) return false;
  if (ioctl(to, FICLONE, source.descriptor()) == 0) return true;
  clones.Failed(device, device_to, errno);
  return false;
}

// The next data from `begin` on; both at `size` when there are none.
Status OutputFile::FindData(File& source, std::uint64_t size, std::uint64_t& begin,
                            std::uint64_t& end) {
  const off_t data = source.Seek(begin, SEEK_DATA);
  if (data < 0) {
    if (errno == EINVAL) return {};  // cannot tell: all of it is data
    if (errno != ENXIO) return Status::FromErrno(errno, "cannot read");
    begin = end = size;
    return {};
  }
  const off_t hole = source.Seek(static_cast<std::uint64_t>(data), SEEK_HOLE);
  begin = std::min(size, static_cast<std::uint64_t>(data));
  end = hole < 0 ? size : std::min(size, static_cast<std::uint64_t>(hole));
  return {};
}

Status OutputFile::SetLength(std::uint64_t size) {
  if (!state_->temporary.empty() && state_->end == size) return {};
  if (state_->file->Truncate(size) == 0) return {};
  return Status::FromErrno(errno, "cannot set the length");
}

Status OutputFile::Finish(const Entry& entry) {
  State& state = *state_;
  RDFS_RETURN_IF_ERROR(SetLength(entry.size));
  const bool in_place = state.temporary.empty();
  const Keep& keep = state.owner.options_.keep;
  const bool fresh = !in_place && !state.place.folder->inherits;
  Status status = Apply({.file = *state.file, .now = &state.made, .fresh = fresh}, entry, keep);
  if (!keep.mode && !in_place) GiveAccess();
  if (state.file->Flush() != 0) {
    const int error = errno;
    Distrust();  // nor what the page cache still has of it
    return Status::FromErrno(error, "cannot write");
  }
  if (state.journal != nullptr) RDFS_RETURN_IF_ERROR(CheckPartial());
  if (!in_place && state.place.in->Rename(state.temporary, state.place.name) != 0) {
    return Status::FromErrno(errno, "cannot give it its name");
  }
  if (state.journal != nullptr) {
    (void)state.place.in->Remove(JournalName(state.place.name), false);
  }
  state.open = false;
  state.owner.Settle(state.entry, true);
  return status;
}

// Without -p an existing file keeps what access it gave: owner where allowed, mode, ACL. Another
// has FirstMode, and may have been made with more or less: see OpenPartial.
void OutputFile::GiveAccess() {
  const State& state = *state_;
  if (!ReplacesFile()) {
    const mode_t made = state.made.st_mode & 07777U;
    const mode_t mode = state.place.folder->inherits ? made & FirstMode() : FirstMode();
    if (mode != made) (void)state.file->SetMode("", mode);
    return;
  }
  constexpr Keep kAccess{.mode = true, .owner = true, .acls = true};
  Entry was = EntryOf(*state.place.now);
  was.mode &= 0777U;  // setuid and setgid were given to other content
  if (auto acls = ReadXattrs(*state.place.in, {.acls = true}, state.place.name); acls.ok()) {
    was.xattrs = *std::move(acls);
  }
  (void)Apply({.file = *state.file, .fresh = false}, was, kAccess);
}

}  // namespace rdfs::copy
