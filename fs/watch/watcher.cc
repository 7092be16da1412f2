#include "fs/watch/watcher.h"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/base/log.h"

namespace rdfs::fs::watch {
namespace {

// A server that is not there is asked again after this.
constexpr std::chrono::seconds kPatience{1};
// Before leases run out, so that there is no moment without them.
constexpr std::chrono::milliseconds kEarly{500};
// What many change at once gets no leases for a while: asked for less and less often, to 0.8 s.
constexpr unsigned kMostDoublings = 4;

bool Is(const Status& status, std::initializer_list<int> errnos) {
  return std::find(errnos.begin(), errnos.end(), status.errno_value()) != errnos.end();
}

}  // namespace

Result<std::unique_ptr<Watcher>> Watcher::Create(client::Mount& mount,
                                                 const client::CallContext& caller, bool recursive,
                                                 Output& output, int stop, Deadline deadline) {
  std::unique_ptr<Watcher> watcher(new Watcher(mount, recursive, output, stop));
  mount.SetRecallHandler(
      [raw = watcher.get()](client::Lane& lane, const client::RecallNotice& notice) {
        raw->OnRecall(lane, notice);
      });
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<client::Lane> lane, mount.OpenLane(deadline));
  watcher->client_ = std::make_unique<client::SyncClient>(std::move(lane), caller);
  return watcher;
}

Watcher::~Watcher() = default;

// The change comes after the acknowledgement: the look is for the loop, when it may have happened.
void Watcher::OnRecall(client::Lane& lane, const client::RecallNotice& notice) {
  const auto due = [this](const Handle& handle) {
    const auto found = directories_.find(handle);
    if (found != directories_.end()) Press(handle, found->second, found->second.looked + kPause);
  };
  if (notice.everything()) {
    for (auto& entry : directories_) {
      entry.second.next = {};
      entry.second.pressing = false;
    }
    pressing_.clear();
  } else {
    due(notice.handle);
    const auto [begin, end] = holders_.equal_range(notice.handle);
    for (auto it = begin; it != end; ++it) due(it->second);
  }
  lane.AcknowledgeRecall(notice.number);
}

Status Watcher::Add(const std::string& path, std::string shown) {
  Handle handle = mount_.info().root.handle;
  std::uint32_t mode = mount_.info().root.attr.mode;
  std::string_view rest(path);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name.empty() || name == ".") continue;
    const auto found = client_->Lookup(handle, name);
    if (!found.ok()) return Status::FromErrno(found.status().errno_value(), shown);
    NoteWay(found->handle, handle, name);
    handle = found->handle;
    mode = found->attr.mode;
  }
  if ((mode & S_IFMT) != S_IFDIR) {
    return {Code::kErrno, ENOTDIR,
            shown + " is not a directory; watch the directory that it is in"};
  }
  RDFS_RETURN_IF_ERROR(AddDirectory(handle, std::move(shown), /*named=*/true, /*come=*/false));
  while (!found_.empty() && !IsTold()) {
    const auto [below, name] = std::move(found_.back());
    found_.pop_back();
    const Status added = AddDirectory(below, name, /*named=*/false, /*come=*/false);
    // Gone again, or not for us: as inotifywait -r, the rest is watched.
    if (!added.ok() && !Is(added, {ENOENT, ESTALE, EACCES, EPERM})) return added;
  }
  return {};
}

Status Watcher::AddDirectory(const Handle& handle, std::string shown, bool named, bool come) {
  if (directories_.size() >= kMostDirectories) {
    return {Code::kBusy, "there are more directories than can be watched at once"};
  }
  Directory added;
  added.shown = shown;
  added.named = named;
  added.next = TimePoint::max();
  if (!directories_.emplace(handle, std::move(added)).second) return {};
  const Status looked = Look(handle, /*first=*/!come);
  if (looked.ok()) return looked;
  Forget(handle);
  return Status::FromErrno(looked.errno_value(), shown);
}

Status Watcher::Look(const Handle& handle, bool first) {
  // Its own lease first: what changes behind it is recalled, and looked at again.
  const auto own = client_->GetAttr(handle);
  if (!own.ok()) return own.status();
  auto entries = client_->List(handle, true);
  if (!entries.ok()) return entries.status();
  for (auto& entry : *entries) {
    if (entry.file || entry.name == "." || entry.name == "..") continue;
    // Somebody is writing to it: a look-up waits for what is on its way, a listing does not.
    const auto file = client_->Lookup(handle, entry.name);
    if (file.ok()) {
      entry.file = *file;
    } else if (!Is(file.status(), {ENOENT, ESTALE, EACCES, EPERM})) {
      return file.status();
    }
  }
  const auto directory = directories_.find(handle);
  if (directory != directories_.end()) Take(handle, directory->second, *own, *entries, first);
  return {};
}

void Watcher::Take(const Handle& handle, Directory& directory, const client::Attributes& own,
                   const std::vector<client::SyncClient::ListedEntry>& entries, bool first) {
  const TimePoint now = BootClock::now();
  Listing listing;
  std::vector<Handle> files;
  TimePoint leased = own.expires;
  for (const auto& entry : entries) {
    if (entry.name == "." || entry.name == ".." || !entry.file) continue;
    listing.emplace(entry.name, entry.file->attr);
    files.push_back(entry.file->handle);
    const bool directory_below = (entry.file->attr.mode & S_IFMT) == S_IFDIR;
    if (directory_below && recursive_) NoteWay(entry.file->handle, handle, entry.name);
    // What is in a directory below is that one's: only its own attributes count here.
    leased = std::min(leased, entry.file->attr_expires);
    if (!recursive_ || !directory_below) continue;
    std::string shown = directory.shown + "/" + entry.name;
    const auto known = directories_.find(entry.file->handle);
    if (known == directories_.end()) {
      found_.emplace_back(entry.file->handle, std::move(shown));
    } else if (known->second.shown != shown) {
      Rename(known->first, std::move(shown));
    }
  }
  if (!first) {
    for (const Event& event : Compare(directory.listing, listing)) {
      output_.Tell(Format(directory.shown, event));
    }
  }
  LetGoOfFiles(handle, directory);
  for (const Handle& file : files) holders_.emplace(file, handle);
  directory.listing = std::move(listing);
  directory.files = std::move(files);
  // A recall that came while it was listed, or no lease: what was seen may be what was before.
  const bool recalled = directory.next != TimePoint::max();
  const bool believed = !recalled && leased > now;
  directory.unleased = believed ? 0 : std::min(directory.unleased + 1, kMostDoublings);
  directory.looked = now;
  const TimePoint again = now + kPause * (1U << directory.unleased);
  if (believed) {
    directory.next = std::max(leased - kEarly, again);
  } else {
    Press(handle, directory, again);
  }
  directory.away = false;
}

void Watcher::LetGoOfFiles(const Handle& handle, const Directory& directory) {
  for (const Handle& file : directory.files) {
    const auto [begin, end] = holders_.equal_range(file);
    const auto mine = std::find_if(begin, end, [&](const auto& it) { return it.second == handle; });
    if (mine != end) holders_.erase(mine);
  }
}

void Watcher::Press(const Handle& handle, Directory& directory, TimePoint when) {
  if (directory.pressing && directory.next == when) return;
  directory.next = when;
  directory.pressing = true;
  pressing_.emplace(when, handle);
}

std::optional<Handle> Watcher::TakePressing() {
  const TimePoint now = BootClock::now();
  while (!pressing_.empty() && pressing_.begin()->first <= now) {
    const auto [when, handle] = *pressing_.begin();
    pressing_.erase(pressing_.begin());
    const auto found = directories_.find(handle);
    // Else it has been looked at since, or is to be at another time.
    const bool presses = found != directories_.end() && found->second.pressing;
    if (presses && found->second.next == when) return handle;
  }
  return std::nullopt;
}

void Watcher::LookAgain(const Handle& handle) {
  Directory& directory = directories_.at(handle);
  directory.next = TimePoint::max();  // until something is recalled
  directory.pressing = false;
  Status looked = Look(handle, /*first=*/false);
  if (Is(looked, {ESTALE}) && FindAgain(handle)) looked = Look(handle, /*first=*/false);
  if (looked.ok()) return;
  if (Is(looked, {ENOENT, ESTALE, ENOTDIR})) {
    output_.Tell(Format(directory.shown, {.what = "DELETE_SELF", .directory = false, .name = {}}));
    Forget(handle);
    return;
  }
  if (!directory.away) LogWarn("{}: {}", directory.shown, looked.ToString());
  directory.away = true;
  directory.next = BootClock::now() + kPatience;
  directory.pressing = false;
}

void Watcher::LookWhereDue(TimePoint now) {
  std::vector<Handle> due;
  for (const auto& [handle, directory] : directories_) {
    if (directory.next <= now) due.push_back(handle);
  }
  for (const Handle& handle : due) {
    if (IsTold() || output_.full()) return;
    // A change does not wait behind all the leases that only run out. One at a time: nor do these
    // run out behind directories that change all the time.
    if (const auto pressing = TakePressing()) LookAgain(*pressing);
    const auto found = directories_.find(handle);
    const bool is_due = found != directories_.end() && found->second.next <= now;
    if (is_due && !output_.full()) LookAgain(handle);
  }
  while (!found_.empty() && !IsTold() && !output_.full()) {
    // Nor does a change wait behind all that has come with a directory.
    if (const auto pressing = TakePressing()) LookAgain(*pressing);
    const auto [below, name] = std::move(found_.back());
    found_.pop_back();
    const Status added = AddDirectory(below, name, /*named=*/false, /*come=*/true);
    if (added.ok()) continue;
    if (added.code() != Code::kBusy) {
      LogInfo("{}", added.message());
    } else if (!std::exchange(full_, true)) {
      LogWarn("{}: {}", name, added.message());
    }
  }
}

void Watcher::Rename(const Handle& handle, std::string shown) {
  std::vector<std::pair<Handle, std::string>> renamed;
  renamed.emplace_back(handle, std::move(shown));
  // Seen at different times, two directories may each seem to be in the other: each is met once.
  std::unordered_set<Handle, HandleHash> met;
  while (!renamed.empty()) {
    auto [moved, name] = std::move(renamed.back());
    renamed.pop_back();
    const auto found = directories_.find(moved);
    if (found == directories_.end() || !met.insert(moved).second) continue;
    Directory& directory = found->second;
    if (directory.named || directory.shown == name) continue;
    directory.shown = std::move(name);
    for (const Handle& file : directory.files) {
      const auto way = ways_.find(file);
      if (way == ways_.end() || way->second.parent != moved) continue;
      renamed.emplace_back(file, directory.shown + "/" + way->second.name);
    }
  }
}

void Watcher::Forget(const Handle& handle) {
  const auto found = directories_.find(handle);
  if (found == directories_.end()) return;
  LetGoOfFiles(handle, found->second);
  directories_.erase(found);
  ways_.erase(handle);
}

void Watcher::NoteWay(const Handle& to, const Handle& parent, std::string_view name) {
  ways_.insert_or_assign(
      to, client::PathStep{.parent = parent, .name = std::string(name), .expected = to});
}

bool Watcher::FindAgain(const Handle& handle) {
  client::Path way;
  for (auto step = ways_.find(handle); step != ways_.end(); step = ways_.find(way.back().parent)) {
    // Seen at different times, two directories may each seem to be in the other.
    if (way.size() == ways_.size()) return false;
    way.push_back(step->second);
  }
  std::ranges::reverse(way);
  return !way.empty() && std::ranges::all_of(way, [this](const client::PathStep& step) {
    const auto found = client_->Lookup(step.parent, step.name);
    return found.ok() && found->handle == step.expected;
  });
}

TimePoint Watcher::Next() const {
  TimePoint next = TimePoint::max();
  for (const auto& entry : directories_) next = std::min(next, entry.second.next);
  return next;
}

bool Watcher::IsTold() const {
  pollfd entry{.fd = stop_, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) > 0;
}

void Watcher::Run() {
  client::Lane& lane = client_->lane();
  while (!directories_.empty() || !found_.empty()) {
    lane.Poll();
    const TimePoint now = BootClock::now();
    const bool may_look = !output_.full();
    const TimePoint next = !may_look ? TimePoint::max() : found_.empty() ? Next() : now;
    if (next <= now) {
      LookWhereDue(now);
      if (IsTold()) return;
      continue;
    }
    if (!lane.Arm()) continue;
    std::array<pollfd, 3> entries{{{.fd = lane.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = stop_, .events = POLLIN, .revents = 0},
                                   {.fd = output_.fd(), .events = POLLIN, .revents = 0}}};
    poll(entries.data(), entries.size(), PollTimeoutMs(std::min(next, lane.NextTimer()), now));
    if (entries[1].revents != 0) return;
    if (entries[2].revents != 0) output_.TakeRoom();
  }
}

}  // namespace rdfs::fs::watch
