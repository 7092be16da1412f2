// Where a user's own files are. Reads the environment: before there is a thread that changes it.
#pragma once

#include <string>

namespace rdfs {

// $HOME where it is absolute, else what the system's database of users says of who runs us
// (mount(8), services and cron leave HOME out). Empty when there is none. May ask a directory
// service, which takes its time (nsswitch.conf(5)).
std::string HomeDirectory();
// "~/..." below the home directory; other paths, and where there is none, as they are. A shell does
// it at the start of a word only, not behind "--key-file=".
std::string WithHomeDirectory(const std::string& path);

}  // namespace rdfs
