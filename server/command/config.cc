// The configuration file:
//
//   listen = ["10.0.0.1"]
//   port = 7337
//   key_file = "/etc/rdfs/key"
//   rdma = false             # as --no-rdma
//   require_encryption = true
//   pool = "4G"
//   metrics = 9464           # or "10.0.0.7:9464", or the path of a socket
//   [limits]                 # of one client: see limits.h
//   mounts = 256
//   pinned = "256M"
//   [[export]]
//   name = "home"
//   dir = "/home"
//   options = "ro,root_squash"
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "server/command/options.h"

namespace rdfs::server {
namespace {

Status Wrong(const std::string& path, const toml::node& node, std::string_view what) {
  return {Code::kErrno, EINVAL,
          path + ":" + std::to_string(node.source().begin.line) + ": " + std::string(what)};
}

Status NotKnown(const std::string& path, std::string_view key, const toml::node& node) {
  return Wrong(path, node, "\"" + std::string(key) + "\" is not known here, or not of this type");
}

Status ReadExport(const std::string& path, const toml::node& node, Options& options) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return Wrong(path, node, "an [[export]] is a table");
  // What is misspelt must not be passed by: without its "ro" an export can be written to.
  for (const auto& [key, value] : *table) {
    const std::string_view word = key.str();
    const bool known = word == "name" || word == "dir" || word == "options";
    if (!known || !value.is_string()) return NotKnown(path, word, value);
  }
  const auto name = (*table)["name"].value<std::string>();
  const auto dir = (*table)["dir"].value<std::string>();
  if (!name || !dir) return Wrong(path, node, "an [[export]] needs a name and a dir");
  const auto words = (*table)["options"].value<std::string>().value_or("");
  auto spec = ExportSpec::Parse(*name + "=" + *dir + (words.empty() ? "" : "," + words));
  if (!spec.ok()) return Wrong(path, node, spec.status().message());
  if (spec->directory != *dir) return Wrong(path, node, "an option is not known: " + words);
  options.exports.push_back(*std::move(spec));
  return {};
}

Status ReadPort(const std::string& path, const toml::node& node,
                std::optional<std::uint16_t>& port) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < 0 || *value > 65535) return Wrong(path, node, "not a port");
  if (!port) port = static_cast<std::uint16_t>(*value);
  return {};
}

Status ReadListen(const std::string& path, const toml::node& node, Options& options) {
  if (!options.listen.empty()) return {};
  const toml::array* array = node.as_array();
  if (array == nullptr) return Wrong(path, node, "listen is a list of addresses");
  for (const toml::node& item : *array) {
    const auto address = item.value<std::string>();
    if (!address) return Wrong(path, item, "an address is a string");
    options.listen.push_back(*address);
  }
  return {};
}

Status ReadLimit(const std::string& path, std::string_view key, const toml::node& node,
                 ClientLimits& limits) {
  struct Row {
    std::string_view name;
    std::size_t ClientLimits::*limit;
  };
  constexpr std::array kRows = {
      Row{"mounts", &ClientLimits::mounts},         Row{"lanes", &ClientLimits::lanes},
      Row{"open_files", &ClientLimits::open_files}, Row{"locks", &ClientLimits::locks},
      Row{"pinned", &ClientLimits::pinned_bytes},   Row{"requests", &ClientLimits::requests},
      Row{"wrong_keys", &ClientLimits::wrong_keys},
  };
  const auto* const row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == key; });
  if (row == kRows.end()) {
    return Wrong(path, node, "\"" + std::string(key) + "\" is no limit that is known here");
  }
  if (key == "pinned" && node.is_string()) {
    auto size = ParseSize(node.value<std::string>().value_or(""));
    if (!size.ok()) return Wrong(path, node, size.status().message());
    limits.pinned_bytes = *size;
    return {};
  }
  const auto value = node.value_exact<std::int64_t>();
  // Without any of these there is no mount; memory for writes can be done without.
  if (!node.is_integer() || !value || *value < (key == "pinned" ? 0 : 1)) {
    return Wrong(path, node, "a limit is a number above zero, and pinned a size, as \"64M\"");
  }
  limits.*(row->limit) = static_cast<std::size_t>(*value);
  return {};
}

Status ReadLimits(const std::string& path, const toml::table& table, ClientLimits& limits) {
  for (const auto& [key, node] : table) {
    RDFS_RETURN_IF_ERROR(ReadLimit(path, key.str(), node, limits));
  }
  return {};
}

Status ReadEntry(const std::string& path, std::string_view key, const toml::node& node,
                 Options& options) {
  if (key == "listen") return ReadListen(path, node, options);
  if (key == "port") return ReadPort(path, node, options.port);
  if (key == "rdma_port") return ReadPort(path, node, options.rdma_port);
  if (key == "key_file" && node.is_string()) {
    if (options.key_file.empty() && !options.no_auth) {
      options.key_file = node.value<std::string>().value_or("");
    }
    return {};
  }
  if (key == "no_auth" && node.is_boolean()) {
    if (options.key_file.empty()) options.no_auth = node.value<bool>().value_or(false);
    return {};
  }
  if (key == "rdma" && node.is_boolean()) {
    options.no_rdma |= !node.value<bool>().value_or(true);
    return {};
  }
  if (key == "require_encryption" && node.is_boolean()) {
    options.require_encryption |= node.value<bool>().value_or(false);
    return {};
  }
  if (key == "pool" && node.is_string()) {
    auto size = ParseSize(node.value<std::string>().value_or(""));
    if (!size.ok()) return Wrong(path, node, size.status().message());
    if (!options.pool_bytes) options.pool_bytes = *size;
    return {};
  }
  if (key == "metrics" && (node.is_string() || node.is_integer())) {
    const auto port = node.value_exact<std::int64_t>();
    auto address =
        metrics::ParseAddress(node.is_integer() ? std::to_string(port.value_or(0))
                                                : node.value<std::string>().value_or(""));
    if (!address.ok()) return Wrong(path, node, address.status().message());
    if (!options.metrics) options.metrics = *std::move(address);
    return {};
  }
  if (key == "limits" && node.is_table()) {
    return ReadLimits(path, *node.as_table(), options.limits);
  }
  if (key == "export" && node.is_array()) {
    for (const toml::node& item : *node.as_array()) {
      RDFS_RETURN_IF_ERROR(ReadExport(path, item, options));
    }
    return {};
  }
  return NotKnown(path, key, node);
}

}  // namespace

Status ReadConfig(const std::string& path, Options& options) {
  try {  // toml++ reports by exceptions; they end here
    const toml::table table = toml::parse_file(path);
    for (const auto& [key, node] : table) {
      RDFS_RETURN_IF_ERROR(ReadEntry(path, key.str(), node, options));
    }
  } catch (const toml::parse_error& error) {
    const std::uint32_t line = error.source().begin.line;
    return {Code::kErrno, EINVAL,
            path + (line > 0 ? ":" + std::to_string(line) : std::string()) + ": " +
                std::string(error.description())};
  }
  return {};
}

}  // namespace rdfs::server
