// rdinfo: what this machine can do for rdfs, and, given a peer, which leg to it works.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/rdinfo/local.h"
#include "tools/rdinfo/remote.h"
#include "transport/base/log.h"
#include "transport/session/session.h"

namespace {

using rdfs::rdinfo::Section;

void PrintText(const std::vector<Section>& sections) {
  for (const Section& section : sections) {
    fmt::print("{}\n", section.title);
    for (const auto& fact : section.facts) {
      fmt::print("  {} {:<22} {}\n", fact.good ? " " : "!", fact.name, fact.value);
      if (!fact.remedy.empty()) fmt::print("      -> {}\n", fact.remedy);
    }
  }
}

void PrintJson(const std::vector<Section>& sections) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Section& section : sections) {
    nlohmann::ordered_json facts = nlohmann::ordered_json::array();
    for (const auto& fact : section.facts) {
      facts.push_back({{"name", fact.name},
                       {"value", fact.value},
                       {"good", fact.good},
                       {"remedy", fact.remedy}});
    }
    out.push_back({{"title", section.title}, {"facts", std::move(facts)}});
  }
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

int main(int argc, char** argv) {
  rdfs::SetLogName("rdinfo");
  CLI::App app(
      "Says what this machine can do for rdfs (RDMA devices, FUSE, limits, versions). With HOST, "
      "tries each leg to a running rdfsd or rdping server there, and says which works, which does "
      "not, and what to do about it. Exit code 1 when HOST cannot be used at all.");
  app.set_version_flag("--version", "rdinfo " RDFS_VERSION);
  rdfs::rdinfo::PeerOptions peer;
  peer.port = rdfs::transport::kDefaultPort;
  std::string key_file;
  bool json = false;
  int verbosity = 0;
  app.add_option("HOST", peer.host, "The peer to try (HOST:PORT and [ADDRESS]:PORT do too)");
  app.add_option("PORT", peer.port, "Its TCP port")->capture_default_str();
  app.add_option("--key-file", key_file, "The server's key");
  app.add_flag("--json", json, "JSON instead of text");
  app.add_flag("-v", verbosity, "Say more");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  rdfs::SetLogLevel(verbosity == 0 ? rdfs::LogLevel::kError : rdfs::LogLevel::kDebug);
  if (!peer.host.empty()) {
    const auto named = rdfs::transport::HostAndPort::Parse(peer.host, peer.port);
    if (!named.ok()) {
      fmt::print(stderr, "rdinfo: {}\n", named.status().message());
      return 2;
    }
    peer.host = named->host;
    peer.port = named->port;
  }
  if (!key_file.empty()) {
    auto key = rdfs::transport::Key::FromFile(key_file);
    if (!key.ok()) {
      fmt::print(stderr, "rdinfo: {}\n", key.status().message());
      return 1;
    }
    peer.key = *std::move(key);
  }
  std::vector<Section> sections = rdfs::rdinfo::DescribeMachine();
  bool reached = true;
  if (!peer.host.empty()) {
    sections.push_back(rdfs::rdinfo::DescribePeer(peer));
    // Good enough is one transport that works; authentication and all before it are a must.
    reached = false;
    for (const auto& fact : sections.back().facts) {
      reached |= fact.good && rdfs::transport::KindFromName(fact.name).has_value() &&
                 fact.value.starts_with("works");
    }
  }
  json ? PrintJson(sections) : PrintText(sections);
  return reached ? 0 : 1;
}
