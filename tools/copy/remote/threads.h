// How many threads read or make files at one end.
#pragma once

#include <algorithm>
#include <thread>

namespace rdfs::copy {

// One more than there are processors helps where files are waited for; many more do not.
inline int CrewThreads() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2U, 8U));
}

}  // namespace rdfs::copy
