// What happened to one register, and whether it is linearizable: whether each operation could have
// taken effect at one moment between its beginning and its end.
//
// Every write writes a value of its own. Then the question has a quick answer (Gibbons and Korach,
// Testing Shared Memories, SIAM J. Comput. 26/4, 1997): the operations on one value form a zone
// from the first end to the last beginning. Where that lies before (a forward zone), the register
// had the value all that time, so no two of these may overlap; and a value whose zone lies wholly
// inside another's forward zone has no moment of its own.
//
// A file system is a set of registers (attributes, a name, content); a set is linearizable when
// each one is, where an operation touches one of them. A rename touches several, each of which is
// checked.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace rdfs::coherence {

struct Operation {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  bool write = false;
  std::uint64_t value = 0;  // 0: what was there at the beginning
  std::uint64_t begin = 0;  // all beginnings and ends of a history differ
  std::uint64_t end = kNever;
};

// Empty, or what is wrong. A write without an end may have happened or not; reads have ended.
std::string WhyNotLinearizable(const std::vector<Operation>& history);

}  // namespace rdfs::coherence
