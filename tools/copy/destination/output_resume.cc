// OutputFile: what an interrupted copy has left, and what this one leaves to the next.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "tools/copy/destination/destination_impl.h"
#include "tools/copy/file/data.h"

namespace rdfs::copy {

Result<std::unique_ptr<OutputFile>> Destination::GoOn(const Entry& entry,
                                                      const std::atomic<bool>& stop) {
  std::unique_ptr<OutputFile> out;
  if (!options_.resume || entry.kind != Kind::kFile || entry.size < kLeastResumed) return out;
  auto place = PlaceFor(entry);
  // Begin says what is wrong.
  if (!place.ok() || place->folder->fresh) return out;
  out.reset(new OutputFile(std::make_unique<OutputFile::State>(*this, *std::move(place), entry)));
  OutputFile::State& state = *out->state_;
  if (out->OpenPartial(true)) {
    state.written = true;
    RDFS_RETURN_IF_ERROR(out->KeepTrusted(stop));
    if (!state.kept.empty()) return out;
  }
  state.open = false;
  return std::unique_ptr<OutputFile>();
}

// Under names that are found again. False where there is nothing to go on with, or where somebody
// else writes it: then it gets a name that nobody else knows.
bool OutputFile::OpenPartial(bool go_on) {
  State& state = *state_;
  const DestinationOptions& options = state.owner.options_;
  if (!options.resume || options.in_place || state.entry.size < kLeastResumed) return false;
  File& folder = *state.place.in;
  auto journal = Journal::Open(folder, JournalName(state.place.name), !go_on);
  if (journal == nullptr) return false;
  std::vector<std::string> left;
  if (folder.descriptor() >= 0) {
    state.temporary = PartialName(state.place.name);
    left.push_back(state.temporary);
  } else {
    state.number = state.owner.NextNumber();
    state.temporary = PartialName(*state.number);
    for (const std::uint64_t each : journal->Numbers()) left.push_back(PartialName(each));
  }
  state.journal = std::move(journal);
  if (go_on ? TakePartial(left) : MakePartial(left)) return true;
  state.journal = nullptr;
  state.temporary.clear();
  return false;
}

// Whoever goes on with it opens it to write.
mode_t OutputFile::PartialMode() const { return FirstMode() | 0600U; }

// The latest of these that is there.
bool OutputFile::TakePartial(const std::vector<std::string>& left) {
  State& state = *state_;
  File& folder = *state.place.in;
  for (const std::string& name : left) {
    state.file = folder.Open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    // Neither somebody else's, nor one that was about to be finished with another mode.
    if (state.file == nullptr || state.file->Lock() != 0 ||
        state.file->Stat("", true, state.made) != 0 || !S_ISREG(state.made.st_mode) ||
        state.made.st_uid != folder.Maker() || state.made.st_nlink != 1 ||
        (state.made.st_mode & 07777U & ~PartialMode()) != 0) {
      continue;
    }
    return !state.number || (state.journal->AddNumber(*state.number).ok() &&
                             folder.Rename(name, state.temporary) == 0);
  }
  return false;
}

// A file of our own: whoever has an old one open has nothing.
bool OutputFile::MakePartial(const std::vector<std::string>& left) {
  State& state = *state_;
  File& folder = *state.place.in;
  for (const std::string& name : left) (void)folder.Remove(name, false);
  if (state.journal->Start(SourceMark::Of(state.entry)).ok() &&
      (!state.number || state.journal->AddNumber(*state.number).ok())) {
    state.file =
        folder.Open(state.temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, PartialMode());
    if (state.file != nullptr && state.file->Lock() == 0) return true;
  }
  if (state.file != nullptr) (void)folder.Remove(state.temporary, false);
  (void)folder.Remove(JournalName(state.place.name), false);
  return false;
}

// Takes what can be believed, and makes all the rest a hole again.
Status OutputFile::KeepTrusted(const std::atomic<bool>& stop) {
  State& state = *state_;
  auto trusted = state.journal->Trusted(SourceMark::Of(state.entry), *state.file, stop);
  if (!trusted.ok()) {
    if (trusted.status().errno_value() == EINTR) return trusted.status();
    return {};
  }
  if (trusted->empty()) return {};
  const std::uint64_t end = trusted->back().offset + trusted->back().length;
  if (state.file->Truncate(end) != 0) return {};
  for (Range hole = NextMissing(*trusted, 0, end); hole.length > 0;
       hole = NextMissing(*trusted, hole.offset + hole.length, end)) {
    if (state.file->PunchHole(hole.offset, hole.length) != 0) return {};
  }
  Reached(end);
  state.kept = *std::move(trusted);
  return {};
}

// Others may know such a name: what has it now is the file that was written.
Status OutputFile::CheckPartial() const {
  const State& state = *state_;
  struct stat now {};
  if (state.place.in->Stat(state.temporary, false, now) != 0) {
    return Status::FromErrno(errno, "cannot look at what was written");
  }
  if (now.st_dev == state.made.st_dev && now.st_ino == state.made.st_ino) return {};
  return {Code::kErrno, EEXIST, "another file has taken the place of what was written"};
}

const std::vector<Range>& OutputFile::kept() const { return state_->kept; }

std::uint64_t OutputFile::kept_bytes() const {
  return std::accumulate(state_->kept.begin(), state_->kept.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Range& each) { return sum + each.length; });
}

void OutputFile::Note(std::uint64_t offset, ByteSpan bytes) {
  if (state_->journal == nullptr) return;
  state_->journal->Add(offset, bytes);
  state_->written = true;
}

Status OutputFile::CopyMissing(File& source, std::uint64_t begin, std::uint64_t end,
                               const Conduct& conduct) {
  if (state_->journal == nullptr) {
    return CopyData({source, *state_->file, begin, end}, conduct);
  }
  const Conduct noted{conduct.moved, conduct.stop, conduct.pace,
                      [this](std::uint64_t offset, ByteSpan bytes) { Note(offset, bytes); }};
  for (Range next = NextMissing(state_->kept, begin, end); next.length > 0;
       next = NextMissing(state_->kept, next.offset + next.length, end)) {
    const Span span{source, *state_->file, next.offset, next.offset + next.length};
    RDFS_RETURN_IF_ERROR(CopyData(span, noted));
  }
  return {};
}

void OutputFile::Remove() {
  File& folder = *state_->place.in;
  (void)folder.Remove(state_->temporary, false);
  if (state_->journal != nullptr) (void)folder.Remove(JournalName(state_->place.name), false);
}

void OutputFile::Distrust() { state_->written = false; }

void OutputFile::Forget() {
  Remove();
  state_->open = false;
}

}  // namespace rdfs::copy
