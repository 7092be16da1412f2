// What happened in a directory, told from what it held before and what it holds now. Pure.
//
// Events have inotifywait(1)'s names. Between two looks several changes may be one: a file that was
// made and written is CREATE and MODIFY, one that came and went is nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fs/protocol.h"

namespace rdfs::fs::watch {

// By name: what is there, as it matters here.
using Listing = std::map<std::string, AttrWire>;

struct Event {
  std::string_view what;  // "CREATE", "DELETE", "MOVED_FROM", "MOVED_TO", "MODIFY", "ATTRIB"
  bool directory = false;
  std::string name;
  friend bool operator==(const Event&, const Event&) = default;
};

// What left first, then what came, then what changed. A file under a new name in the same directory
// has moved; one under a name that another one had before is MOVED_TO. A file is known by its inode
// number and, where it is told, by when it was born.
std::vector<Event> Compare(const Listing& before, const Listing& now);

// As inotifywait prints it: "DIR/ CREATE,ISDIR name". Control characters of a name, which would
// make two lines of one, as '?'.
std::string Format(std::string_view directory, const Event& event);

}  // namespace rdfs::fs::watch
