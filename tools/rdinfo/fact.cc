#include "tools/rdinfo/fact.h"

#include <algorithm>

namespace rdfs::rdinfo {
namespace {

bool HasFact(const std::vector<Section>& sections, Role role, bool good) {
  return std::ranges::any_of(sections, [role, good](const Section& section) {
    return std::ranges::any_of(section.facts, [role, good](const Fact& fact) {
      return fact.role == role && fact.good == good;
    });
  });
}

// A peer that refuses is reached, and a port that is up may lead to a silent one: then the ports
// that are down are no more than a hindrance.
bool PortsCutOff(const std::vector<Section>& sections) {
  return HasFact(sections, Role::kPeerSilent, false) && HasFact(sections, Role::kRdmaPort, false) &&
         !HasFact(sections, Role::kRdmaPort, true);
}

}  // namespace

Section Advise(const std::vector<Section>& sections) {
  const bool cut_off = PortsCutOff(sections);
  std::vector<Fact> found;
  for (auto section = sections.rbegin(); section != sections.rend(); ++section) {
    for (const Fact& fact : section->facts) {
      const bool known = std::ranges::any_of(
          found, [&fact](const Fact& other) { return other.value == fact.remedy; });
      if (fact.remedy.empty() || known) continue;
      const bool causes = cut_off && fact.role == Role::kRdmaPort;
      found.push_back({fact.name + ": " + fact.value, fact.remedy, fact.good, "",
                       causes ? Weight::kCauses : fact.weight});
    }
  }
  std::ranges::stable_sort(found, {}, &Fact::weight);
  return {std::string(kAdviceTitle), std::move(found)};
}

}  // namespace rdfs::rdinfo
