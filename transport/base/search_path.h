// Where programs are looked for, as a shell does. Reads the environment: before there is a thread
// that changes it.
#pragma once

#include <string>
#include <string_view>

namespace rdfs {

// $PATH, or where it is not set what a system has.
std::string SearchPath();

// The first file of that name in `path`, as in $PATH, that may be run; empty when there is none.
std::string FindProgram(std::string_view name, std::string_view path);

// The first one, also if it may not be run.
std::string FindFile(std::string_view name, std::string_view path);

}  // namespace rdfs
