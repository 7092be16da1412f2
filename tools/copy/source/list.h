// Reading the file that --files-from names.
//
// Blocks in it.
#pragma once

#include <string>

#include "tools/copy/source/filter.h"

namespace rdfs::copy {

// Adds each line (with `nul`: each name that ends with NUL) of the file, or of standard input for
// "-". Errors: one sentence.
Status ReadList(const std::string& file, bool nul, Listed& list);

}  // namespace rdfs::copy
