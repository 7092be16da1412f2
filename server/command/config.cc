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
#include <fcntl.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "server/command/options.h"
#include "transport/base/fd.h"

namespace rdfs::server {
namespace {

Status Wrong(const std::string& path, const toml::node& node, std::string_view what) {
  return {Code::kErrno, EINVAL,
          path + ":" + std::to_string(node.source().begin.line) + ": " + std::string(what)};
}

Status NoSuchKey(const std::string& path, const toml::node& node, std::string_view key,
                 std::string_view known) {
  return Wrong(path, node,
               "there is no " + std::string(key) + " here; there are " + std::string(known));
}

Result<std::string> ReadString(const std::string& path, std::string_view key,
                               const toml::node& node, std::string_view example) {
  auto value = node.value_exact<std::string>();
  if (value) return *std::move(value);
  return Wrong(path, node, std::string(key) + " is a string, as \"" + std::string(example) + "\"");
}

Result<bool> ReadFlag(const std::string& path, std::string_view key, const toml::node& node) {
  const auto value = node.value_exact<bool>();
  if (value) return *value;
  return Wrong(path, node, std::string(key) + " is true or false, without quotes");
}

Status ReadExport(const std::string& path, const toml::node& node, Options& options) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return Wrong(path, node, "an [[export]] is a table");
  std::string name, dir, words;
  struct Row {
    std::string_view key, example;
    std::string& text;
  };
  const std::array rows = {Row{"name", "home", name}, Row{"dir", "/home", dir},
                           Row{"options", "ro,root_squash", words}};
  // What is misspelt must not be passed by: without its "ro" an export can be written to.
  for (const auto& [key, value] : *table) {
    const std::string_view word = key.str();
    const auto* const row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.key == word; });
    if (row == rows.end()) return NoSuchKey(path, value, word, "name, dir, options");
    RDFS_ASSIGN_OR_RETURN(row->text, ReadString(path, word, value, row->example));
  }
  if (name.empty() || dir.empty()) {
    return Wrong(path, node, "an [[export]] needs a name and a dir");
  }
  auto spec = ExportSpec::Make(name, dir);
  if (!spec.ok()) return Wrong(path, node, spec.status().message());
  if (const Status taken = spec->TakeOptions(words); !taken.ok()) {
    const toml::node* const at = table->get("options");
    return Wrong(path, at != nullptr ? *at : node, taken.message());
  }
  options.exports.push_back(*std::move(spec));
  return {};
}

Status ReadPort(const std::string& path, std::string_view key, const toml::node& node,
                std::optional<std::uint16_t>& port) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < 0 || *value > 65535) {
    return Wrong(path, node, std::string(key) + " is a number from 0 to 65535, without quotes");
  }
  if (!port) port = static_cast<std::uint16_t>(*value);
  return {};
}

Status ReadListen(const std::string& path, const toml::node& node, Options& options) {
  if (!options.listen.empty()) return {};
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    return Wrong(path, node, "listen is a list of addresses, as [\"10.0.0.7\"]");
  }
  for (const toml::node& item : *array) {
    const auto address = item.value<std::string>();
    if (!address) return Wrong(path, item, "an address is a string");
    if (address->empty()) {
      return Wrong(path, item, "an address is empty; leave listen out for every address");
    }
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
    std::string known;
    for (const Row& r : kRows) known += (known.empty() ? "" : ", ") + std::string(r.name);
    return NoSuchKey(path, node, key, known);
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

Status ReadMetrics(const std::string& path, const toml::node& node, Options& options) {
  if (!node.is_string() && !node.is_integer()) {
    return Wrong(path, node, "metrics is a place: give 9464, or \"10.0.0.7:9464\", or a path");
  }
  const auto port = node.value_exact<std::int64_t>();
  auto address = metrics::ParseAddress(node.is_integer() ? std::to_string(port.value_or(0))
                                                         : node.value<std::string>().value_or(""));
  if (!address.ok()) return Wrong(path, node, address.status().message());
  if (!options.metrics) options.metrics = *std::move(address);
  return {};
}

Status ReadEntry(const std::string& path, std::string_view key, const toml::node& node,
                 Options& options) {
  if (key == "listen") return ReadListen(path, node, options);
  if (key == "port") return ReadPort(path, key, node, options.port);
  if (key == "rdma_port") return ReadPort(path, key, node, options.rdma_port);
  if (key == "key_file") {
    RDFS_ASSIGN_OR_RETURN(std::string file, ReadString(path, key, node, "/etc/rdfs/key"));
    if (file.empty()) return Wrong(path, node, "key_file is empty: give a FILE, or leave it out");
    if (options.key_file.empty() && !options.no_auth) options.key_file = std::move(file);
    return {};
  }
  if (key == "no_auth") {
    RDFS_ASSIGN_OR_RETURN(const bool no_auth, ReadFlag(path, key, node));
    if (options.key_file.empty()) options.no_auth = no_auth;
    return {};
  }
  if (key == "rdma") {
    RDFS_ASSIGN_OR_RETURN(const bool rdma, ReadFlag(path, key, node));
    options.no_rdma |= !rdma;
    return {};
  }
  if (key == "require_encryption") {
    RDFS_ASSIGN_OR_RETURN(const bool required, ReadFlag(path, key, node));
    options.require_encryption |= required;
    return {};
  }
  if (key == "pool") {
    RDFS_ASSIGN_OR_RETURN(const std::string text, ReadString(path, key, node, "4G"));
    auto size = ParsePoolSize(text);
    if (!size.ok()) return Wrong(path, node, size.status().message());
    if (!options.pool_bytes) options.pool_bytes = *size;
    return {};
  }
  if (key == "metrics") return ReadMetrics(path, node, options);
  if (key == "limits") {
    if (!node.is_table()) return Wrong(path, node, "write [limits], in single brackets");
    return ReadLimits(path, *node.as_table(), options.limits);
  }
  if (key == "export") {
    if (!node.is_array()) return Wrong(path, node, "write [[export]], in double brackets");
    for (const toml::node& item : *node.as_array()) {
      RDFS_RETURN_IF_ERROR(ReadExport(path, item, options));
    }
    return {};
  }
  return NoSuchKey(path, node, key,
                   "listen, port, rdma_port, key_file, no_auth, rdma, require_encryption, pool, "
                   "metrics, [limits], [[export]]");
}

// All that `path` has.
Result<std::string> ReadText(const std::string& path) {
  constexpr std::size_t kMostBytes = 1 << 20;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, "cannot read " + path);
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EISDIR) {
      return Status(Code::kErrno, EISDIR, path + " is a directory; name the file in it");
    }
    if (got < 0) return Status::FromErrno(errno, "cannot read " + path);
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kMostBytes) {
      return Status(Code::kErrno, EFBIG, path + " is too large to be a configuration file");
    }
  }
}

}  // namespace

Status ReadConfig(const std::string& path, Options& options) {
  RDFS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  try {  // toml++ reports by exceptions; they end here
    const toml::table table = toml::parse(text, path);
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
