// rdfsd's command line and configuration file.
//
// Parsing makes no decision that depends on this machine: defaults that do (the key's place, the
// listening addresses) are settled in setup.h. The command line wins over the file; exports of both
// are served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/session/export.h"
#include "server/session/limits.h"
#include "transport/base/status.h"
#include "transport/metrics/address.h"
#include "transport/session/session.h"

namespace rdfs::server {

struct Options {
  std::vector<ExportSpec> exports;
  std::vector<std::string> listen;         // addresses; empty: see setup.h
  std::optional<std::uint16_t> port;       // 0: a free one; nothing: kDefaultPort
  std::optional<std::uint16_t> rdma_port;  // nothing and 0: port + 1
  std::string key_file;                    // empty: see setup.h
  bool no_auth = false;
  bool no_rdma = false;
  bool require_encryption = false;        // no RDMA, and TLS to every other host
  std::optional<std::size_t> pool_bytes;  // above 0; nothing: sized to the machine
  std::uint32_t lease_seconds = 40;       // of sessions
  ClientLimits limits{};                  // the configuration file's only
  bool stdio = false;
  bool foreground = false;
  int verbosity = 0;
  std::optional<rdfs::metrics::Address> metrics;
};

// Either options, or what to print and the exit code to end with.
struct CommandLine {
  std::optional<Options> options;
  std::string output;
  int exit_code = 0;  // 0: on standard output; 2: a usage error, on standard error
};
CommandLine ParseCommandLine(int argc, const char* const* argv);

// "64M", "1G", "4096": bytes; k, M, G are powers of 1024. kInvalidArgument for anything else.
Result<std::size_t> ParseSize(std::string_view text);
// The same, and not 0.
Result<std::size_t> ParsePoolSize(std::string_view text);

// Adds what the file `path` says to `options` where the command line said nothing. Errors name the
// file and, of what is in it, the line.
Status ReadConfig(const std::string& path, Options& options);

}  // namespace rdfs::server
