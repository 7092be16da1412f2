// What a directory that folds case has under another spelling (vfat, exFAT, casefold of ext4).
//
// Pure; any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>

#include "tools/copy/file/entry.h"

namespace rdfs::copy {

// Whether `name`, which is `listed`, is what one of the `seen` names leads to that are not listed.
// `look`: what a name leads to now; it may be replaced meanwhile, once. Looks at the seen names
// only where the directory folds case, as far as `name` tells.
bool IsSpelledOtherwise(const std::string& name, const std::unordered_set<std::string>& listed,
                        const std::unordered_set<std::string>& seen,
                        const std::function<std::optional<FileId>(const std::string&)>& look);

}  // namespace rdfs::copy
