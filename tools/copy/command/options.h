// The command line of rdcp.
//
// One thread, before any other is made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/copy/command/operand.h"
#include "tools/copy/destination/decide.h"
#include "tools/copy/file/entry.h"
#include "tools/copy/remote/ports.h"
#include "tools/copy/source/filter.h"
#include "transport/transport.h"

namespace rdfs::copy {

struct CopyOptions {
  std::vector<Operand> sources;
  Operand destination;
  bool recurse = false;
  bool follow = false;           // -L
  bool one_file_system = false;  // -x
  bool in_place = false;
  bool resume = false;
  bool remove = false;  // --delete
  bool verify = false;
  bool dry_run = false;
  bool quiet = false;
  bool progress = false;  // -P: though names are listed
  int verbosity = 0;
  std::uint64_t limit = 0;  // --bwlimit, bytes a second; zero: none
  Keep keep;
  Policy policy;
  Rules rules;
  std::string files_from;  // a file, or "-"; empty: none
  bool nul = false;        // -0: its names end with NUL

  // For exports.
  std::string key_file;

  // For other machines; what concerns transports for exports, too.
  std::vector<std::string> ssh_command{"ssh"};  // -e
  std::string rdcp_path = "rdcp";
  bool bootstrap = false;
  PortRange ports;
  std::optional<transport::Kind> require;
  std::optional<int> lanes;
  bool plaintext = false;
  bool require_encryption = false;

  // Whether nothing is on a host, so that no other rdcp is needed.
  [[nodiscard]] bool IsLocal() const;
};

// What main returns at once: help was printed (0), or a wrong command line was told (2).
std::optional<int> ParseCopy(int argc, char** argv, CopyOptions& out);

}  // namespace rdfs::copy
