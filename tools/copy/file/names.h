// Names as bytes: which may be made, and how they are shown.
//
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/status.h"

namespace rdfs::copy {

// NAME_MAX of Linux.
inline constexpr std::size_t kMaxNameBytes = 255;

// One component that may be made or opened beneath a directory: not empty, not "." or "..", no '/',
// no NUL, 255 bytes at most.
Status CheckName(std::string_view name);
// Components as CheckName wants them, separated by one '/' each; or empty: the root itself.
Status CheckPath(std::string_view path);

// "a/b" and "c": "a/b/c"; either may be empty.
std::string Joined(std::string_view folder, std::string_view name);
// Everything before the last '/', or nothing.
std::string_view FolderOf(std::string_view path);
// What is behind it.
std::string_view NameOf(std::string_view path);

// For people: what a terminal would act on, and what is not UTF-8, as \n, \t, \\ or \x1b.
std::string Shown(std::string_view bytes);

}  // namespace rdfs::copy
