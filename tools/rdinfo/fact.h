// Facts: what rdinfo found out, as lines to print, and what to do about those that stand in the
// way.
//
// Pure values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdfs::rdinfo {

// How much depends on it; the order is that of the advice.
enum class Weight {
  kStops,    // something does not work at all
  kHinders,  // it works slower, or with surprises
  kNote,     // it could be better
};

struct Fact {
  std::string name;
  std::string value;
  bool good = true;    // whether rdfs is served by it
  std::string remedy;  // what to do; empty when good
  Weight weight = Weight::kStops;
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
};

// What to do, best first: what stops before what hinders, and of the same weight the later
// section's first, since it is what was asked for. Each remedy once; the facts' values are
// remedies.
Section Advise(const std::vector<Section>& sections);
inline constexpr std::string_view kAdviceTitle = "what to do, best first";

}  // namespace rdfs::rdinfo
