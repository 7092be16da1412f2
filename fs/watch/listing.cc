#include "fs/watch/listing.h"

#include <sys/stat.h>

#include "transport/base/printable.h"

namespace rdfs::fs::watch {
namespace {

bool IsDirectory(const AttrWire& attr) { return (attr.mode & S_IFMT) == S_IFDIR; }

bool Same(const TimeWire& a, const TimeWire& b) {
  return a.seconds == b.seconds && a.nanoseconds == b.nanoseconds;
}

// Whether the one name stood for another file before.
bool Is(const Listing& listing, const std::string& name, const AttrWire& attr) {
  const auto found = listing.find(name);
  return found != listing.end() && found->second.ino == attr.ino &&
         (found->second.mode & S_IFMT) == (attr.mode & S_IFMT);
}

// Names in `here` that stand for nothing, or something else, in `there`; by inode.
std::multimap<std::uint64_t, const Listing::value_type*> Missing(const Listing& here,
                                                                 const Listing& there) {
  std::multimap<std::uint64_t, const Listing::value_type*> missing;
  for (const auto& entry : here) {
    if (!Is(there, entry.first, entry.second)) missing.emplace(entry.second.ino, &entry);
  }
  return missing;
}

std::string_view Change(const AttrWire& before, const AttrWire& now) {
  const bool owner = before.mode != now.mode || before.uid != now.uid || before.gid != now.gid;
  if (owner) return "ATTRIB";
  // What happens in a directory is not its own change.
  if (IsDirectory(now)) return {};
  if (before.size != now.size || !Same(before.mtime, now.mtime)) return "MODIFY";
  return before.nlink != now.nlink || !Same(before.ctime, now.ctime) ? "ATTRIB"
                                                                     : std::string_view();
}

}  // namespace

std::vector<Event> Compare(const Listing& before, const Listing& now) {
  std::vector<Event> events;
  auto gone = Missing(before, now);
  auto come = Missing(now, before);
  const auto tell = [&](std::string_view what, const Listing::value_type& entry) {
    events.push_back({what, IsDirectory(entry.second), entry.first});
  };
  for (auto old = gone.begin(); old != gone.end();) {
    const auto next = come.find(old->first);
    if (next == come.end()) {
      ++old;
      continue;
    }
    tell("MOVED_FROM", *old->second);
    tell("MOVED_TO", *next->second);
    come.erase(next);
    old = gone.erase(old);
  }
  // Replaced by another file, from elsewhere or new: its name is told once, by what came.
  std::erase_if(gone, [&](const auto& old) { return now.count(old.second->first) > 0; });
  for (const auto& old : gone) tell("DELETE", *old.second);
  for (const auto& next : come) {
    const bool replaced = before.count(next.second->first) > 0;
    tell(replaced ? "MOVED_TO" : "CREATE", *next.second);
    const AttrWire& attr = next.second->second;
    if (!replaced && (attr.mode & S_IFMT) == S_IFREG && attr.size > 0) tell("MODIFY", *next.second);
  }
  for (const auto& entry : now) {
    if (!Is(before, entry.first, entry.second)) continue;
    const std::string_view what = Change(before.at(entry.first), entry.second);
    if (!what.empty()) tell(what, entry);
  }
  return events;
}

std::string Format(std::string_view directory, const Event& event) {
  std::string line(directory);
  line += directory.ends_with('/') ? " " : "/ ";
  line += event.what;
  if (event.directory) line += ",ISDIR";
  line += ' ';
  line += event.name;
  return Printable(line) + '\n';
}

}  // namespace rdfs::fs::watch
