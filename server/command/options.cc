#include "server/command/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>

namespace rdfs::server {
namespace {

constexpr const char* kDescription =
    "rdfsd exports directories to rdfs mounts, over RDMA, shared memory or TCP.";
constexpr const char* kFooter =
    "An export is NAME=DIR, and after commas: ro, rw, root_squash (a root server's default),\n"
    "all_squash, trusted or no_root_squash, as_me, anonuid=N, anongid=N.\n"
    "Without --key-file and --no-auth, the key is kept in ~/.config/rdfs/key.\n"
    "SIGUSR1 writes the counters to the log; SIGHUP reads the exports again.\n"
    "rdfsd status, rdfsd stats [--json|--prometheus] and rdfsd top ask a running one.";

// What CLI11 fills, before it is checked.
struct Raw {
  std::vector<std::string> exports, read_only;
  std::string config, pool, metrics;
};

void Declare(CLI::App& app, Options& options, Raw& raw) {
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("rdfsd ") + RDFS_VERSION);
  app.add_option("--export", raw.exports, "export DIR as NAME (repeatable)")
      ->type_name("NAME=DIR[,OPTION...]")
      ->allow_extra_args(false);
  app.add_option("--read-only", raw.read_only, "make the export NAME read-only (repeatable)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--listen", options.listen, "address to listen on (repeatable; default: all)")
      ->type_name("ADDR")
      ->allow_extra_args(false);
  app.add_option("--port", options.port, "TCP port; 0 takes a free one (default 7337)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--rdma-port", options.rdma_port, "RDMA port (default: the TCP port + 1)")
      ->check(CLI::Range(0, 65535));
  auto* key = app.add_option("--key-file", options.key_file, "file whose first line is the key");
  app.add_flag("--no-auth", options.no_auth,
               "ask for no key; listens on loopback only, unless --listen is given")
      ->excludes(key);
  auto* no_rdma = app.add_flag("--no-rdma", options.no_rdma, "serve nobody over RDMA");
  auto* encryption =
      app.add_flag("--require-encryption", options.require_encryption,
                   "no RDMA, whose data is not encrypted, and TLS to every other host");
  app.add_option("--config", raw.config, "configuration file (TOML)");
  app.add_option("--pool", raw.pool, "memory for cached file content, as 512M or 4G");
  app.add_option("--lease", options.lease_seconds,
                 "seconds after which a silent client loses its locks and open files (default 40)")
      ->check(CLI::Range(1, 3600));
  auto* metrics = app.add_option("--metrics", raw.metrics,
                                 "answer Prometheus there: a port of this host's own, an address "
                                 "and a port, or a socket")
                      ->type_name("PORT|ADDR:PORT|PATH");
  app.add_flag("--stdio", options.stdio, "serve one client over standard input and output (ssh)")
      ->excludes(metrics)
      ->excludes(no_rdma)
      ->excludes(encryption);
  app.add_flag("-f,--foreground", options.foreground, "stay in the foreground");
  app.add_flag("-v,--verbose", options.verbosity, "say more; twice for debugging");
}

// What a shell's empty variable makes of an option must not be as if it were not given.
Status CheckNotEmpty(const CLI::App& app, const Raw& raw, const Options& options) {
  if (std::ranges::any_of(options.listen, &std::string::empty)) {
    return {Code::kInvalidArgument, "an address is empty; leave --listen out for every address"};
  }
  if (raw.config.empty() && app.count("--config") > 0) {
    return {Code::kInvalidArgument, "--config is empty: give a FILE, or leave it out"};
  }
  if (options.key_file.empty() && app.count("--key-file") > 0) {
    return {Code::kInvalidArgument, "--key-file is empty: give a FILE, or leave it out"};
  }
  return {};
}

Status Settle(const CLI::App& app, const Raw& raw, Options& options) {
  RDFS_RETURN_IF_ERROR(CheckNotEmpty(app, raw, options));
  for (const std::string& text : raw.exports) {
    RDFS_ASSIGN_OR_RETURN(ExportSpec spec, ExportSpec::Parse(text));
    const auto is_called = [&](const ExportSpec& other) { return other.name == spec.name; };
    if (std::ranges::any_of(options.exports, is_called)) {
      return {Code::kInvalidArgument, "two exports are called \"" + spec.name + "\""};
    }
    options.exports.push_back(std::move(spec));
  }
  if (app.count("--pool") > 0) {
    RDFS_ASSIGN_OR_RETURN(options.pool_bytes, ParsePoolSize(raw.pool));
  }
  if (app.count("--metrics") > 0) {
    RDFS_ASSIGN_OR_RETURN(options.metrics, metrics::ParseAddress(raw.metrics));
  }
  if (!raw.config.empty()) RDFS_RETURN_IF_ERROR(ReadConfig(raw.config, options));
  for (const std::string& name : raw.read_only) {
    bool known = false;
    for (ExportSpec& spec : options.exports) {
      if (spec.name != name) continue;
      spec.read_only = true;
      known = true;
    }
    if (!known) return {Code::kInvalidArgument, "--read-only names no export: \"" + name + "\""};
  }
  if (options.stdio && !options.exports.empty()) {
    return {Code::kInvalidArgument, "--stdio takes its directory from the client: no --export"};
  }
  if (options.stdio && (options.no_rdma || options.require_encryption)) {
    return {Code::kInvalidArgument, "--stdio excludes rdma and require_encryption of a --config"};
  }
  if (!options.stdio && options.exports.empty() && !raw.config.empty()) {
    return {Code::kErrno, EINVAL, raw.config + " has no [[export]]"};
  }
  if (!options.stdio && options.exports.empty()) {
    return {Code::kInvalidArgument, "nothing to export: give --export NAME=DIR, or --config FILE"};
  }
  return {};
}

CommandLine Usage(const std::string& sentence) {
  return {.options = std::nullopt,
          .output = "rdfsd: " + sentence + "\nTry 'rdfsd --help'.\n",
          .exit_code = 2};
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app(kDescription, "rdfsd");
  Options options;
  Raw raw;
  try {  // CLI11 reports by exceptions; they end here
    Declare(app, options, raw);
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    return {.options = std::nullopt, .output = app.version() + "\n", .exit_code = 0};
  } catch (const CLI::CallForHelp&) {
    return {.options = std::nullopt, .output = app.help(), .exit_code = 0};
  } catch (const CLI::Error& error) {
    return Usage(error.what());
  }
  if (const Status status = Settle(app, raw, options); !status.ok()) {
    // A broken file is not a wrong call.
    if (status.code() != Code::kInvalidArgument) {
      return {
          .options = std::nullopt, .output = "rdfsd: " + status.message() + "\n", .exit_code = 1};
    }
    return Usage(status.message());
  }
  return {.options = std::move(options), .output = {}, .exit_code = 0};
}

Result<std::size_t> ParseSize(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned shift = 64;
  if (unit.empty()) shift = 0;
  if (unit == "k" || unit == "K") shift = 10;
  if (unit == "M") shift = 20;
  if (unit == "G") shift = 30;
  if (error != std::errc() || shift == 64 ||
      value > (std::numeric_limits<std::size_t>::max() >> shift)) {
    return Status(Code::kInvalidArgument,
                  "a size is a number and k, M or G, not \"" + std::string(text) + "\"");
  }
  return value << shift;
}

Result<std::size_t> ParsePoolSize(std::string_view text) {
  auto size = ParseSize(text);
  if (!size.ok() || *size > 0) return size;
  return Status(Code::kInvalidArgument,
                "a pool of 0 holds nothing: give a size, as 512M, or leave it out");
}

}  // namespace rdfs::server
