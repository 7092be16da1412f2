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
  kCauses,   // why something else does not work; Advise alone gives it
  kStops,    // something does not work at all
  kHinders,  // it works slower, or with surprises
  kNote,     // it could be better
};

// What the advice has to know of a fact to tell a cause from what follows from it.
enum class Role {
  kPlain,
  kRdmaPort,    // of this machine; good where it is up
  kPeerSilent,  // nothing of the peer's machine answers, not even with a refusal
};

struct Fact {
  std::string name;
  std::string value;
  bool good = true;    // whether rdfs is served by it
  std::string remedy;  // what to do; empty when good
  Weight weight = Weight::kStops;
  Role role = Role::kPlain;
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
};

// What to do, best first: what stops before what hinders, and of the same weight the later
// section's first, since it is what was asked for. Where the peer is silent and this machine has
// RDMA ports of which none is up, these come before all else: the peer is most likely behind them.
// Each remedy once; the facts' values are remedies.
Section Advise(const std::vector<Section>& sections);
inline constexpr std::string_view kAdviceTitle = "what to do, best first";

}  // namespace rdfs::rdinfo
