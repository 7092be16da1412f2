// The table of `rdfs top` and `rdfsd top`: what running programs did between two of their answers.
//
// Pure; values. What they answered is ToPrometheus (snapshot.h), so that nothing is asked of them
// that others do not ask as well.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

namespace rdfs {

struct Sample {
  std::string program;  // "mount /mnt"
  std::string metric;   // "rdfs_grant_hits_total"
  std::string operation;
  std::string edge;  // of a histogram's bucket

  auto operator<=>(const Sample&) const = default;
};
using Samples = std::map<Sample, double>;

// Lines that are no samples are left out.
Samples ParseMetrics(const std::vector<std::string>& answers);

// Of each program a table of its operations, the most frequent first, and below it what else
// happened: bytes by the second, how often something was at hand, how much there is of things. What
// did not happen is left out.
std::string TopTable(const Samples& before, const Samples& now, double seconds);

}  // namespace rdfs
