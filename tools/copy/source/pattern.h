// Patterns in names of the command line, without a shell, as glob(3) has them: '*', '?' and '[...]'
// stop at a slash and match no dot that a name begins with; a backslash takes the meaning of what
// is behind it away.
//
// Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/copy/file/file.h"

namespace rdfs::copy {

// Pure. Whether it has a '*', '?' or '[' in it.
bool HasPattern(std::string_view path);
// Pure. Whether one component of a pattern matches a name.
bool Matches(std::string_view component, const std::string& name);

// The paths from `from` on that the pattern matches, sorted. Symlinks on the way are followed; what
// cannot be read matches nothing. Blocks as `from` does.
std::vector<std::string> Expand(File& from, std::string_view pattern);
// The same for a name that may be none: what is there as it stands is meant, whatever is in it.
std::vector<std::string> Lead(File& from, const std::string& path);

}  // namespace rdfs::copy
