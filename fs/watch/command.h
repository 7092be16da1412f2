// `rdfs watch`: prints what happens in directories of an export, as inotifywait -m does.
#pragma once

#include <string>
#include <vector>

namespace rdfs::fs::watch {

// `arguments` behind "watch". Blocks until a signal ends it (0), every directory is gone (0), or it
// fails (1, with a sentence on standard error). 2: wrong usage.
int RunWatch(const std::vector<std::string>& arguments);

// What the control socket of a mount says of how it was made, for the request "session": the
// source, and the options as -o takes them, a line each.
std::string SessionAnswer(const std::string& source, const std::string& options);

}  // namespace rdfs::fs::watch
