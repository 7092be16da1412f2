// MakeFile: a file that rdfsd needs and makes itself the first time: its key, the handles' secret.
//
// It appears under its name only with all of its content, so that neither a full disk nor a kill
// leaves one that later starts could not use, and of several that start at once each finds the
// first one's, whole.
#pragma once

#include <string>

#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::server {

// Makes `path` with mode 0600 in a folder that is there. True when it was made, false when there
// was one already. Blocks until it is on disk. Errors: kErrno.
Result<bool> MakeFile(const std::string& path, ByteSpan content);

}  // namespace rdfs::server
