// What filters packets on this machine, as far as it can be found out. Reads only.
#pragma once

#include <string_view>

#include "tools/rdinfo/fact.h"

namespace rdfs::rdinfo {

// ufw and firewalld are known to everybody by what they leave in files and /proc; rules without
// them only to root, who asks nft and the kernel.
Fact Firewall();

// Whether `nft list ruleset` has a chain through which comes what is for this machine, with a rule
// or a policy that stops some of it.
bool FiltersInput(std::string_view ruleset);

}  // namespace rdfs::rdinfo
