#include "fs/watch/listing.h"

#include <sys/stat.h>

#include <algorithm>

#include "transport/base/printable.h"

namespace rdfs::fs::watch {
namespace {

bool IsDirectory(const AttrWire& attr) { return (attr.mode & S_IFMT) == S_IFDIR; }

bool Same(const TimeWire& a, const TimeWire& b) {
  return a.seconds == b.seconds && a.nanoseconds == b.nanoseconds;
}

bool IsSet(const TimeWire& time) { return time.seconds != 0 || time.nanoseconds != 0; }

// A number that is free again may be the next file's: that one was born later.
bool SameFile(const AttrWire& a, const AttrWire& b) {
  const bool births_are_known = IsSet(a.btime) && IsSet(b.btime);
  return a.ino == b.ino && (a.mode & S_IFMT) == (b.mode & S_IFMT) &&
         (!births_are_known || Same(a.btime, b.btime));
}

// Whether the one name stood for another file before.
bool Is(const Listing& listing, const std::string& name, const AttrWire& attr) {
  const auto found = listing.find(name);
  return found != listing.end() && SameFile(found->second, attr);
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

// What happens in a directory is not its own change.
bool IsWritten(const AttrWire& before, const AttrWire& now) {
  return !IsDirectory(now) && (before.size != now.size || !Same(before.mtime, now.mtime));
}

std::string_view Change(const AttrWire& before, const AttrWire& now) {
  const bool owner = before.mode != now.mode || before.uid != now.uid || before.gid != now.gid;
  if (owner) return "ATTRIB";
  if (IsDirectory(now)) return {};
  if (IsWritten(before, now)) return "MODIFY";
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
    const AttrWire& attr = old->second->second;
    const auto [begin, end] = come.equal_range(old->first);
    const auto next = std::find_if(
        begin, end, [&attr](const auto& entry) { return SameFile(entry.second->second, attr); });
    if (next == end) {
      ++old;
      continue;
    }
    tell("MOVED_FROM", *old->second);
    tell("MOVED_TO", *next->second);
    // A move changes its ctime, and nothing else.
    if (IsWritten(attr, next->second->second)) tell("MODIFY", *next->second);
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
