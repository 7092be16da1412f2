// rdping: what the network between two machines can do, by kernel TCP and by each of our
// transports.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "tools/rdping/client.h"
#include "tools/rdping/protocol.h"
#include "tools/rdping/server.h"
#include "transport/base/command_line.h"
#include "transport/base/fd.h"
#include "transport/base/log.h"
#include "transport/base/say.h"
#include "transport/base/sigpipe.h"

namespace {

using rdfs::Status;
using rdfs::rdping::ClientOptions;

struct Arguments {
  rdfs::rdping::ServerOptions server;
  rdfs::rdping::ClientOptions client;
  std::string key_file;
  std::string require;
  double seconds = 1;
  int verbosity = 0;
  bool json = false;
};

// Before the subcommand and behind it, as people type it.
void DeclareForAll(CLI::App& app, Arguments& arguments) {
  app.set_version_flag("--version", "rdping " RDFS_VERSION);
  app.add_flag_function(
      "-v", [&arguments](std::int64_t times) { arguments.verbosity += static_cast<int>(times); },
      "Say more; twice: much more");
}

void Declare(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  DeclareForAll(app, arguments);

  CLI::App* server =
      app.add_subcommand("server", "Answer measurements; prints the client's command");
  arguments.server.port = rdfs::rdping::kDefaultPort;
  server->add_option("PORT", arguments.server.port, "TCP port; 0 takes a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  server->add_option("--listen", arguments.server.address, "Address to listen on (default: all)");
  server->add_option("--key-file", arguments.key_file, "Serve only who has this key");
  DeclareForAll(*server, arguments);

  CLI::App* client = app.add_subcommand("client", "Measure against a server");
  DeclareForAll(*client, arguments);
  arguments.client.port = rdfs::rdping::kDefaultPort;
  client
      ->add_option("HOST", arguments.client.host,
                   "The server's name or address (HOST:PORT does too)")
      ->required();
  client->add_option("PORT", arguments.client.port, "The server's port")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  client->add_option("--key-file", arguments.key_file, "The server's key");
  client->add_option("--require", arguments.require, "Only this transport")
      ->check(CLI::IsMember({"verbs", "shm", "tcp"}));
  client->add_option("--seconds", arguments.seconds, "Of each measurement")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  client->add_option("--size", arguments.client.latency_bytes, "Of the round trips, in bytes")
      ->check(CLI::Range(8, 65536))
      ->capture_default_str();
  client
      ->add_option("--sizes", arguments.client.sizes,
                   "Of the bandwidth columns, in bytes, with commas between")
      ->check(CLI::Range(std::size_t{8}, rdfs::rdping::kRegionBytes))
      ->allow_extra_args(false)
      ->delimiter(',');
  client->add_flag("--plaintext", arguments.client.plaintext, "No TLS on the tcp transport");
  client->add_flag("--json", arguments.json, "JSON instead of a table");
}

int Fail(const Status& status) {
  rdfs::Say("rdping: {}\n", status.message());
  return 1;
}

int RunClient(Arguments& arguments, bool port_is_given, rdfs::transport::Key key) {
  ClientOptions& client = arguments.client;
  const auto named = rdfs::transport::HostAndPort::Parse(client.host, client.port);
  if (!named.ok()) {
    rdfs::Say("rdping: {}\n", named.status().message());
    return 2;
  }
  if (port_is_given && named->port != client.port) {
    rdfs::Say("rdping: '{}' names its port: leave out {}\n", client.host, client.port);
    return 2;
  }
  client.host = named->host;
  client.port = named->port;
  client.key = std::move(key);
  client.duration = std::chrono::milliseconds(static_cast<long>(arguments.seconds * 1000));
  if (!arguments.require.empty()) {
    client.only = rdfs::transport::KindFromName(arguments.require);
  }
  const auto report = rdfs::rdping::Measure(client);
  if (!report.ok()) return Fail(report.status());
  rdfs::Tell("{}", arguments.json ? rdfs::rdping::ToJson(*report) : rdfs::rdping::ToTable(*report));
  const Status told = rdfs::Told();
  if (told.errno_value() == EPIPE) rdfs::EndBySigpipe();
  if (!told.ok()) return Fail(told);
  return report->failed.ok() ? 0 : Fail(report->failed);
}

}  // namespace

int main(int argc, char** argv) {
  rdfs::HoldStandardDescriptors();
  rdfs::IgnoreSigpipe();
  rdfs::SetLogName("rdping");
  CLI::App app(
      "Measures round trips and bandwidth between two machines: kernel TCP, and rdfs's "
      "transports by message, READ and WRITE.");
  Arguments arguments;
  Declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return rdfs::TellAsked(app, done, "rdping");
  } catch (const CLI::ParseError& error) {
    rdfs::Say("rdping: {}; see rdping --help\n", error.what());
    return 2;
  }
  using rdfs::LogLevel;
  rdfs::SetLogLevel(arguments.verbosity == 0   ? LogLevel::kWarn
                    : arguments.verbosity == 1 ? LogLevel::kInfo
                                               : LogLevel::kDebug);
  rdfs::transport::Key key;
  if (!arguments.key_file.empty()) {
    auto read = rdfs::transport::Key::FromFile(arguments.key_file);
    if (!read.ok()) return Fail(read.status());
    key = *std::move(read);
  }
  if (app.got_subcommand("client")) {
    const bool port_is_given = app.get_subcommand("client")->count("PORT") > 0;
    return RunClient(arguments, port_is_given, std::move(key));
  }
  arguments.server.key = std::move(key);
  const Status status = rdfs::rdping::Serve(arguments.server);
  return status.ok() ? 0 : Fail(status);
}
