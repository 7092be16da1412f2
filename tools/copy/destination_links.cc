// Hard links: which of an inode's names is brought, and the others as links to it.
#include <fcntl.h>

#include <cerrno>

#include "tools/copy/destination_impl.h"
#include "tools/copy/names.h"

namespace rdfs::copy {

Result<Destination::Turn> Destination::TakeTurn(const Entry& entry, bool whole,
                                                std::function<void()> made, bool stays) {
  if (!options_.keep.links || entry.links < 2) return Turn::kFirst;
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  std::string first;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = groups_.try_emplace(entry.id);
    LinkGroup& group = at->second;
    if (is_new) {
      group.state = whole ? LinkGroup::State::kWhole : LinkGroup::State::kPending;
      group.path = path;
      return Turn::kFirst;
    }
    ++group.seen;
    if (stays) return Turn::kThere;
    if (group.state == LinkGroup::State::kFailed) {
      return Status(Code::kErrno, ECANCELED, "what it is a link to was not copied");
    }
    if (group.state == LinkGroup::State::kPending) {
      group.waiting.push_back({path, place, std::move(made)});
      return Turn::kWaits;
    }
    first = group.path;
    if (group.seen >= entry.links) groups_.erase(at);  // all its names are there
  }
  return MakeLink(first, place);
}

void Destination::Settle(const Entry& entry, bool is_there) {
  if (!options_.keep.links || entry.links < 2) return;
  std::vector<LinkGroup::Waiting> waiting;
  std::string first;
  {
    const std::lock_guard lock(mutex_);
    const auto at = groups_.find(entry.id);
    if (at == groups_.end() || at->second.state != LinkGroup::State::kPending) return;
    LinkGroup& group = at->second;
    group.state = is_there ? LinkGroup::State::kWhole : LinkGroup::State::kFailed;
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

}  // namespace rdfs::copy
