// Check: what of an exported directory is not as the journals of all threads say.
#pragma once

#include <string>
#include <vector>

namespace rdfs::acknowledged {

// `root`: the export, at the server or through a mount. `unsure`: as Judge's.
std::vector<std::string> Check(const std::string& journals, const std::string& root, int shared,
                               const std::vector<int>& unsure);

}  // namespace rdfs::acknowledged
