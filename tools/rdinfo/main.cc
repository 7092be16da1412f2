// rdinfo: what this machine can do for rdfs, which leg to a peer works, and what to do about the
// rest.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/rdinfo/export.h"
#include "tools/rdinfo/local.h"
#include "tools/rdinfo/remote.h"
#include "transport/base/command_line.h"
#include "transport/base/fd.h"
#include "transport/base/log.h"
#include "transport/base/say.h"
#include "transport/base/sigpipe.h"
#include "transport/session/session.h"

namespace {

using rdfs::rdinfo::Section;

void PrintAdvice(const Section& advice) {
  rdfs::Tell("{}\n", advice.title);
  if (advice.facts.empty()) rdfs::Tell("  nothing\n");
  for (std::size_t i = 0; i < advice.facts.size(); ++i) {
    rdfs::Tell("  {}. {}\n     {}\n", i + 1, advice.facts[i].name, advice.facts[i].value);
  }
}

// Good enough is one transport that works; authentication and all before it are a must.
bool IsUsable(const Section& peer) {
  return std::ranges::any_of(peer.facts, [](const rdfs::rdinfo::Fact& fact) {
    return fact.good && rdfs::transport::KindFromName(fact.name).has_value() &&
           fact.value.starts_with("works");
  });
}

void PrintText(const std::vector<Section>& sections) {
  for (const Section& section : sections) {
    if (section.title == rdfs::rdinfo::kAdviceTitle) {
      PrintAdvice(section);
      continue;
    }
    rdfs::Tell("{}\n", section.title);
    for (const auto& fact : section.facts) {
      rdfs::Tell("  {} {:<22} {}\n", fact.good ? " " : "!", fact.name, fact.value);
      if (!fact.good) rdfs::Tell("      -> {}\n", fact.remedy);
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
  rdfs::Tell("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

int main(int argc, char** argv) {
  rdfs::HoldStandardDescriptors();
  rdfs::IgnoreSigpipe();
  rdfs::SetLogName("rdinfo");
  CLI::App app(
      "Says what this machine can do for rdfs (RDMA devices and their ports, FUSE, limits, "
      "firewall, "
      "clock, versions). With HOST, tries each step and each leg to a running rdfsd or rdping "
      "server there, with round trips and bandwidth; with rdfs://HOST/EXPORT also that export. "
      "Ends "
      "with what to do, best first. Exit code 1 when HOST or EXPORT cannot be used at all.");
  app.set_version_flag("--version", "rdinfo " RDFS_VERSION);
  rdfs::rdinfo::PeerOptions peer;
  peer.port = rdfs::transport::kDefaultPort;
  std::string host, key_file;
  bool json = false;
  int verbosity = 0;
  app.add_option(
      "HOST", host,
      "The peer to try (HOST:PORT, [ADDRESS]:PORT and rdfs://HOST[:PORT]/EXPORT do too)");
  const CLI::Option* port = app.add_option("PORT", peer.port, "Its TCP port")
                                ->check(CLI::Range(1, 65535))
                                ->capture_default_str();
  app.add_option("--key-file", key_file, "The server's key");
  app.add_flag("--json", json, "JSON instead of text");
  app.add_flag("-v", verbosity, "Say more");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return rdfs::TellAsked(app, done, "rdinfo");
  } catch (const CLI::ParseError& error) {
    rdfs::Say("rdinfo: {}; see rdinfo --help\n", error.what());
    return 2;
  }
  rdfs::SetLogLevel(verbosity == 0 ? rdfs::LogLevel::kError : rdfs::LogLevel::kDebug);
  peer.port_is_given = port->count() > 0;
  if (const rdfs::Status named = host.empty() ? rdfs::Status() : ParsePeer(host, peer);
      !named.ok()) {
    rdfs::Say("rdinfo: {}\n", named.message());
    return 2;
  }
  if (!key_file.empty()) {
    auto key = rdfs::transport::Key::FromFile(key_file);
    peer.key_problem = key.status();
    if (key.ok()) peer.key = *std::move(key);
  }
  std::vector<Section> sections = rdfs::rdinfo::DescribeMachine();
  bool usable = true;
  if (peer.host.empty() && !peer.key_problem.ok()) {
    sections.push_back(rdfs::rdinfo::DescribeKey(peer.key_problem));
  }
  if (!peer.host.empty()) {
    sections.push_back(rdfs::rdinfo::DescribePeer(peer));
    usable = IsUsable(sections.back());
    if (usable && !peer.export_name.empty()) {
      sections.push_back(rdfs::rdinfo::DescribeExport(peer));
      usable = sections.back().facts.front().good;
    }
  }
  sections.push_back(rdfs::rdinfo::Advise(sections));
  json ? PrintJson(sections) : PrintText(sections);
  if (const int told = rdfs::EndTold("rdinfo"); told != 0) return told;
  return usable ? 0 : 1;
}
