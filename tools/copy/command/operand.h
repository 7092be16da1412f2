// What a word of the command line names, and what DST means for each SRC: the rules of cp and scp.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/status.h"

namespace rdfs::copy {

// PATH                       here
// [USER@]HOST:PATH           on another machine; HOST may be an IPv6 address in brackets
// rdfs://HOST[:PORT]/EXPORT/PATH
//
// As scp: a ':' before the first '/' means a host, so "./a:b" is a file here.
struct Operand {
  enum class Where : std::uint8_t { kHere, kHost, kExport };
  Where where = Where::kHere;
  std::string user, host;  // kHost; the host without brackets
  std::string path;        // empty: at a host the home directory, of an export all of it
  std::string url;         // kExport: all of it
  std::string export_name{};
  std::uint16_t port = 0;  // kExport; 0: the usual one
  // kExport: `url` without the path.
  [[nodiscard]] std::string base() const;
  friend bool operator==(const Operand&, const Operand&) = default;
};
// Fails for what looks like a host and cannot be one, as "[::1" or "-oProxyCommand=x:", and for a
// URL without an export.
Result<Operand> ParseOperand(const std::string& word);

// What must be known of the file systems; of DST with symlinks followed.
struct DestinationFacts {
  bool exists = false, is_directory = false;
};
struct SourceFacts {
  std::string path;
  bool is_directory = false;
};

// DST as Destination takes it: a directory that is there, and for each SRC the name in it (empty:
// the directory itself, for "." and "..").
struct Targets {
  std::string root;
  std::vector<std::string> names;
  friend bool operator==(const Targets&, const Targets&) = default;
};
//   DST is a directory        each SRC goes into it under its last name
//   DST is no directory       one SRC only, which takes that name; never a directory onto a file
//   DST ends with '/'         it is meant as a directory; only a directory may make it
Result<Targets> PlaceTargets(const std::vector<SourceFacts>& sources,
                             const std::string& destination, const DestinationFacts& facts);
// Whether two SRCs may bring one path: they have one name, or one of several is DST itself.
bool Meet(const std::vector<std::string>& names);
// The SRCs in turns, as few as there can be: where each ends, as a number of SRCs. No two of one
// turn may bring one path; those of one are begun when all before are finished.
std::vector<std::size_t> Turns(const std::vector<std::string>& names);
// With --delete they must not: when the first was copied nobody knows yet what the others bring.
Status CheckApart(const std::vector<std::string>& names);

}  // namespace rdfs::copy
