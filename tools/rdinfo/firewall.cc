#include "tools/rdinfo/firewall.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "tools/rdinfo/local.h"

namespace rdfs::rdinfo {
namespace {

constexpr const char* kPorts =
    "where rdfsd serves, let TCP ports 7337 and 7338 in (and UDP port 4791 for RoCE); ";

// By its process: Debian's firewalld is told to leave no file.
bool HasProcess(std::string_view name) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (FirstLine(entry.path() / "comm") == name) return true;
  }
  return false;
}

// What the program says on standard output; empty where it is not there or refuses.
std::string Output(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command, "re"), pclose);
  std::string out;
  if (pipe == nullptr) return out;
  std::array<char, 4096> piece{};
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), pipe.get())) {
    out.append(piece.data(), got);
  }
  return out;
}

}  // namespace

bool FiltersInput(std::string_view ruleset) {
  bool input = false;
  while (!ruleset.empty()) {
    const std::string_view line = ruleset.substr(0, ruleset.find('\n'));
    ruleset.remove_prefix(std::min(line.size() + 1, ruleset.size()));
    const auto has = [line](std::string_view word) { return line.find(word) != line.npos; };
    if (has("chain ")) input = false;
    if (has("type filter hook input") || has("type filter hook prerouting")) input = true;
    if (!input) continue;
    // A jump leads where something may be stopped.
    if (has("policy drop") || has(" drop") || has("\tdrop") || has("reject") || has("jump ")) {
      return true;
    }
  }
  return false;
}

Fact Firewall() {
  if (HasLine(ReadFile("/etc/ufw/ufw.conf"), "ENABLED=yes")) {
    return {"firewall", "ufw is on", true,
            "where rdfsd serves, as root: ufw allow 7337:7338/tcp (and 4791/udp for RoCE)",
            Weight::kNote};
  }
  if (HasProcess("firewalld")) {
    return {"firewall", "firewalld is on", true,
            "where rdfsd serves, as root: firewall-cmd --permanent --add-port=7337-7338/tcp "
            "--add-port=4791/udp; firewall-cmd --reload",
            Weight::kNote};
  }
  if (geteuid() != 0) {
    return {"firewall", "neither ufw nor firewalld is on (other rules are root's to see)", true,
            ""};
  }
  if (FiltersInput(Output("PATH=/usr/sbin:/sbin:$PATH timeout 5 nft list ruleset 2>/dev/null"))) {
    return {"firewall", "nftables has rules for what comes in", true,
            std::string(kPorts) + "nft list ruleset shows the rules", Weight::kNote};
  }
  if (HasLine(ReadFile("/proc/net/ip_tables_names"), "filter")) {
    return {"firewall", "iptables has a table for what comes in", true,
            std::string(kPorts) + "iptables -L INPUT shows the rules", Weight::kNote};
  }
  return {"firewall", "none that was found", true, ""};
}

}  // namespace rdfs::rdinfo
