// What this machine can do: facts read from the kernel and the libraries, as lines to print. Each
// fact that limits rdfs comes with what to do about it. Reads only; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdfs::rdinfo {

struct Fact {
  std::string name;
  std::string value;
  bool good = true;    // whether rdfs is served by it
  std::string remedy;  // what to do; empty when good
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
};

std::vector<Section> DescribeMachine();

// "key : value" lines as /proc files have them: the value of `key`, empty when it is not there.
std::string FindField(std::string_view text, std::string_view key);

}  // namespace rdfs::rdinfo
