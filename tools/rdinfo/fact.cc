#include "tools/rdinfo/fact.h"

#include <algorithm>

namespace rdfs::rdinfo {

Section Advise(const std::vector<Section>& sections) {
  std::vector<Fact> found;
  for (auto section = sections.rbegin(); section != sections.rend(); ++section) {
    for (const Fact& fact : section->facts) {
      const bool known = std::ranges::any_of(
          found, [&fact](const Fact& other) { return other.value == fact.remedy; });
      if (fact.remedy.empty() || known) continue;
      found.push_back({fact.name + ": " + fact.value, fact.remedy, fact.good, "", fact.weight});
    }
  }
  std::ranges::stable_sort(found, {}, &Fact::weight);
  return {std::string(kAdviceTitle), std::move(found)};
}

}  // namespace rdfs::rdinfo
