// Hard links: which of an inode's names is brought, and the others as links to it.
#include <fcntl.h>

#include <cerrno>
#include <optional>

#include "tools/copy/destination/destination_impl.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"

namespace rdfs::copy {

Result<Destination::Turn> Destination::TakeTurn(const Entry& entry, bool whole,
                                                std::function<void()> made, bool stays) {
  if (!options_.keep.links || entry.links < 2) return Turn::kFirst;
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  const FileId there = whole ? IdAt(path) : FileId();
  for (;;) {
    std::string first;
    std::optional<FileId> expected;
    {
      const std::lock_guard lock(mutex_);
      const auto [at, is_new] = groups_.try_emplace(entry.id);
      LinkGroup& group = at->second;
      if (!is_new && stays) {
        ++group.seen;
        return Turn::kThere;
      }
      // The next name may have what the first one had not.
      if (is_new || group.state == LinkGroup::State::kFailed) {
        group = {};
        group.state = whole ? LinkGroup::State::kWhole : LinkGroup::State::kPending;
        group.path = path;
        group.source = entry.source;
        group.made = there;
        return Turn::kFirst;
      }
      ++group.seen;
      if (group.state == LinkGroup::State::kPending) {
        group.waiting.push_back({path, place, std::move(made)});
        return Turn::kWaits;
      }
      first = group.path;
      if (options_.meet && group.source != entry.source) expected = group.made;
      if (!expected && group.seen >= entry.links) groups_.erase(at);  // all its names are there
    }
    if (!expected) return MakeLink(first, place);
    RDFS_ASSIGN_OR_RETURN(const Turn turn, MakeLinkOf(*expected, first, place));
    NoteLink(entry, first, path, turn);
    if (turn != Turn::kFirst) return turn;
  }
}

// Of MakeLinkOf: what this source makes of that file it does not replace.
void Destination::NoteLink(const Entry& entry, const std::string& first, const std::string& path,
                           Turn turn) {
  const std::lock_guard lock(mutex_);
  const auto at = groups_.find(entry.id);
  if (at == groups_.end() || at->second.path != first) return;
  if (turn == Turn::kFirst) {
    groups_.erase(at);
    return;
  }
  at->second.path = path;
  at->second.source = entry.source;
}

void Destination::Settle(const Entry& entry, bool is_there) {
  if (!options_.keep.links || entry.links < 2) return;
  FileId there;
  if (options_.meet && is_there) {
    const auto path = PathOf(entry);
    if (path.ok()) there = IdAt(*path);
  }
  std::vector<LinkGroup::Waiting> waiting;
  std::string first;
  {
    const std::lock_guard lock(mutex_);
    const auto at = groups_.find(entry.id);
    if (at == groups_.end() || at->second.state != LinkGroup::State::kPending) return;
    LinkGroup& group = at->second;
    group.state = is_there ? LinkGroup::State::kWhole : LinkGroup::State::kFailed;
    group.made = there;
    waiting = std::move(group.waiting);
    first = group.path;
    if (group.seen >= entry.links) groups_.erase(at);
  }
  for (const LinkGroup::Waiting& each : waiting) {
    const Result<Turn> turn =
        is_there ? MakeLink(first, each.place)
                 : Status(Code::kErrno, ECANCELED, "what it is a link to was not copied");
    if (!turn.ok()) options_.report(each.path, turn.status());
    if (turn.ok() && *turn == Turn::kLink && each.made) each.made();
  }
}

Result<Destination::Turn> Destination::MakeLink(const std::string& first, const Place& place) {
  const FilePtr folder = root_->OpenBeneath(std::string(FolderOf(first)), O_PATH | O_DIRECTORY);
  if (folder == nullptr) return Status::FromErrno(errno, "cannot link it to " + Shown(first));
  const std::string from(NameOf(first));
  File& to = *place.in;
  if (folder->Link(from, to, place.name) == 0) return Turn::kLink;
  if (errno != EEXIST) return Status::FromErrno(errno, "cannot link it to " + Shown(first));
  struct stat there {};
  struct stat here {};
  if (folder->Stat(from, false, there) != 0 || to.Stat(place.name, false, here) != 0) {
    return Status::FromErrno(errno, "cannot look at the destination");
  }
  // rename(2) of two names of one inode would do nothing.
  if (there.st_dev == here.st_dev && there.st_ino == here.st_ino) return Turn::kThere;
  const std::string temporary = TemporaryName();
  if (folder->Link(from, to, temporary) != 0) {
    return Status::FromErrno(errno, "cannot link it to " + Shown(first));
  }
  if (to.Rename(temporary, place.name) == 0) return Turn::kLink;
  const int error = errno;
  (void)to.Remove(temporary, false);
  return Status::FromErrno(error, "cannot give it its name");
}

// What is there now; nothing where no later source can replace it, or can by writing into it.
FileId Destination::IdAt(const std::string& path) const {
  if (!options_.meet || options_.in_place) return {};
  const FilePtr folder = root_->OpenBeneath(std::string(FolderOf(path)), O_PATH | O_DIRECTORY);
  struct stat info {};
  if (folder == nullptr || folder->Stat(std::string(NameOf(path)), false, info) != 0) return {};
  return IdOf(info);
}

// A link to what another source has made under the name `first`; kFirst where that is another file
// by now, or gone: nothing was done.
Result<Destination::Turn> Destination::MakeLinkOf(const FileId& made, const std::string& first,
                                                  const Place& place) {
  const FilePtr folder = root_->OpenBeneath(std::string(FolderOf(first)), O_PATH | O_DIRECTORY);
  if (made == FileId() || folder == nullptr) return Turn::kFirst;
  File& to = *place.in;
  struct stat here {};
  if (to.Stat(place.name, false, here) == 0 && IdOf(here) == made) return Turn::kThere;
  const std::string temporary = TemporaryName();
  if (folder->Link(std::string(NameOf(first)), to, temporary) != 0) return Turn::kFirst;
  const bool right = to.Stat(temporary, false, here) == 0 && IdOf(here) == made;
  if (right && to.Rename(temporary, place.name) == 0) return Turn::kLink;
  const int error = errno;
  (void)to.Remove(temporary, false);
  if (!right) return Turn::kFirst;
  return Status::FromErrno(error, "cannot give it its name");
}

}  // namespace rdfs::copy
