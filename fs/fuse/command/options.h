// The command line of rdfs, read and checked before anything happens.
//
// Pure: argv (and $HOME) goes in, Options or what to print come out. Nothing here looks at the
// machine; whether a file or a host is there is found out later. Values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/base/status.h"
#include "transport/metrics/address.h"
#include "transport/session/session.h"

namespace rdfs::fs::fuse {

// rdfs://HOST[:PORT]/NAME
struct ExportSource {
  std::string host;  // without brackets
  std::uint16_t port = transport::kDefaultPort;
  std::string name;
};

// [user@]HOST:DIR
struct SshSource {
  std::string destination;  // what ssh is told: [user@]host, without brackets
  std::string directory;    // absolute, or relative to the far user's home
};

using Source = std::variant<ExportSource, SshSource>;

// Errors: kInvalidArgument, with the two forms that there are.
Result<Source> ParseSource(std::string_view text);

struct Options {
  std::string source_text;  // as typed: what mount(8) and df(1) show
  Source source;
  std::string mount_point;
  std::string option_lists;  // as typed, commas between them: for a session like this one

  std::string key_file;                      // empty: none
  std::optional<transport::Kind> require;    // nothing else will do
  std::vector<std::string> other_addresses;  // of the server, without brackets
  std::chrono::seconds deadline{30};         // how long a call waits for its answer
  std::optional<unsigned> workers;           // else one, and a helper where there is room for it
  bool allow_other = false;
  bool read_only = false;
  bool plaintext = false;
  bool require_encryption = false;
  bool raw_ids = false;
  std::optional<std::uint32_t> uid, gid;  // whom the far user's files belong to; else who mounts
  bool writeback = false;
  bool sync = false;    // no write is answered before the server has answered it
  bool strict = false;  // no read is answered from the kernel's pages
  bool set_uid = false, devices = false, no_exec = false, no_atime = false;
  std::string rdfsd_path = "rdfsd";
  std::vector<std::string> ssh_command{"ssh"};
  std::string log_file;  // empty: syslog
  std::optional<rdfs::metrics::Address> metrics;
  unsigned read_ahead_kib = 4096;
  std::optional<unsigned> prefetch_kib;  // none: as much as the wire needs

  bool foreground = false;
  int verbosity = 0;
};

// One value of -o: words between commas; a backslash keeps a comma (or a backslash) in a value.
// Unknown words are refused by name. On an error `options` is as it was, or partly changed.
Status ApplyMountOptions(std::string_view list, Options& options);

// The words of such a list, backslashes and all; empty ones are left out. They point into `list`.
std::vector<std::string_view> SplitMountOptions(std::string_view list);

// Whether ApplyMountOptions takes a word of this name (the part before '='), to use or to ignore
// it.
bool KnowsMountOption(std::string_view name);

// A source and one value of -o, for who mounts nothing: checked as ParseCommandLine checks them.
Result<Options> ParseSourceAndOptions(std::string_view source, std::string_view list);

// What to print instead of mounting, and the exit status.
struct Answer {
  int exit_code = 0;
  std::string text;  // to standard output when exit_code is 0, else to standard error
};

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

std::variant<Options, Answer> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace rdfs::fs::fuse
