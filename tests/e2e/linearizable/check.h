// Whether what real processes saw could have happened in one order: their calls, sorted into the
// histories of single objects, for tests/coherence/history.h and search.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/e2e/linearizable/event.h"

namespace rdfs::linearizable {

struct Verdict {
  std::vector<std::string> wrong;
  std::size_t objects = 0;
  std::size_t overlapping = 0;  // calls that began before another one on the same object had ended
};

Verdict Check(std::span<const Event> events);

}  // namespace rdfs::linearizable
