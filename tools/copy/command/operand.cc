#include "tools/copy/command/operand.h"

#include <algorithm>
#include <map>
#include <set>

#include "tools/copy/file/names.h"
#include "transport/base/parse_number.h"
#include "transport/base/url_scheme.h"

namespace rdfs::copy {
namespace {

constexpr std::string_view kScheme = "rdfs://";

Status NoHost(const std::string& word, std::string_view why) {
  return {Code::kInvalidArgument, "'" + Shown(word) + "' names no host: " + std::string(why) +
                                      "; for a file here write ./" + Shown(word)};
}

// A host or user that ssh would take for an option, or that has anything in it that no host has.
bool Suspicious(std::string_view part) {
  return part.empty() || part.front() == '-' || std::any_of(part.begin(), part.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte <= ' ' || byte == 0x7F || byte == '\'' || byte == '"' || byte == '\\';
         });
}

std::string_view WithoutSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

// The name that a source has in a directory it is copied into: none for ".", ".." and "/".
std::string LastName(std::string_view path) {
  const std::string_view name = NameOf(WithoutSlashes(path));
  return name == "." || name == ".." || name.empty() ? std::string() : std::string(name);
}

Status CheckDistinct(const std::vector<SourceFacts>& sources,
                     const std::vector<std::string>& names) {
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto [before, is_new] = seen.emplace(names[i], i);
    if (is_new || (sources[i].is_directory && sources[before->second].is_directory)) continue;
    return {Code::kInvalidArgument, "'" + Shown(sources[before->second].path) + "' and '" +
                                        Shown(sources[i].path) + "' would both become '" +
                                        Shown(names[i]) + "': copy them one by one"};
  }
  return {};
}

Targets NewName(std::string_view destination) {
  const std::string_view whole = WithoutSlashes(destination);
  const std::size_t slash = whole.rfind('/');
  if (slash == std::string_view::npos) return {".", {std::string(whole)}};
  return {slash == 0 ? "/" : std::string(whole.substr(0, slash)), {LastName(whole)}};
}

Status NoExport(const std::string& word, std::string_view why) {
  return {Code::kInvalidArgument, "'" + Shown(word) + "' names no export: " + std::string(why) +
                                      "; write rdfs://HOST[:PORT]/EXPORT/PATH, an IPv6 address in "
                                      "brackets"};
}

// Takes ":PORT" off the front, if it is there.
bool TakePort(std::string_view& rest, std::uint16_t& port) {
  if (!rest.starts_with(':')) return true;
  const std::string_view digits = rest.substr(1, rest.find('/') - 1);
  port = ParseNumber<std::uint16_t>(digits).value_or(0);
  rest.remove_prefix(1 + digits.size());
  return port != 0;
}

Result<Operand> ParseExport(const std::string& word) {
  Operand out;
  out.where = Operand::Where::kExport;
  out.url = word;
  std::string_view rest = std::string_view(word).substr(kScheme.size());
  const bool bracket = rest.starts_with('[');
  const std::size_t end =
      bracket ? rest.find(']') : std::min(rest.find_first_of(":/"), rest.size());
  if (end == std::string_view::npos) return NoExport(word, "']' is missing");
  out.host = bracket ? rest.substr(1, end - 1) : rest.substr(0, end);
  rest.remove_prefix(end + (bracket ? 1 : 0));
  if (Suspicious(out.host)) return NoExport(word, "a host is not called so");
  if (!rest.empty() && rest.front() != ':' && rest.front() != '/') {
    return NoExport(word, "a host in brackets ends with ']'");
  }
  if (!TakePort(rest, out.port)) return NoExport(word, "a port is a number from 1 to 65535");
  const auto skip_slashes = [&rest] {
    rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
  };
  skip_slashes();
  out.export_name = rest.substr(0, rest.find('/'));
  rest.remove_prefix(out.export_name.size());
  if (out.export_name.empty()) return NoExport(word, "its name is missing");
  skip_slashes();
  out.path = rest;
  return out;
}

}  // namespace

std::string Operand::base() const {
  const bool address = host.find(':') != std::string::npos;
  return std::string(kScheme) + (address ? "[" + host + "]" : host) +
         (port == 0 ? "" : ":" + std::to_string(port)) + "/" + export_name;
}

Result<Operand> ParseOperand(const std::string& word) {
  if (word.starts_with(kScheme)) return ParseExport(word);
  Operand out;
  const std::string_view head = std::string_view(word).substr(0, word.find('/'));
  out.path = word;
  if (head.find(':') == std::string_view::npos) return out;

  if (const std::string_view scheme = SchemeOf(word); !scheme.empty()) {
    return NoHost(word, "there is no " + Shown(scheme) +
                            ":// here; write rdfs://HOST/EXPORT/PATH or HOST:PATH");
  }

  const std::size_t at = head.substr(0, head.find(':')).find('@');
  const std::size_t begin = at == std::string_view::npos ? 0 : at + 1;
  const bool bracket = head.substr(begin).starts_with('[');
  const std::size_t end = bracket ? head.find("]:", begin) : head.find(':');
  if (end == std::string_view::npos) return NoHost(word, "an address in brackets wants ']:'");
  out.where = Operand::Where::kHost;
  out.host = bracket ? head.substr(begin + 1, end - begin - 1) : head.substr(begin, end - begin);
  out.path = word.substr(end + (bracket ? 2 : 1));
  if (Suspicious(out.host)) return NoHost(word, "a host is not called so");
  if (begin == 0) return out;
  out.user = head.substr(0, at);
  if (Suspicious(out.user)) return NoHost(word, "a user is not called so");
  return out;
}

bool Meet(const std::vector<std::string>& names) { return Turns(names).size() > 1; }

std::vector<std::size_t> Turns(const std::vector<std::string>& names) {
  std::vector<std::size_t> ends;
  std::set<std::string_view> turn;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool root = names[i].empty() || turn.contains("");
    if (!turn.empty() && (root || turn.contains(names[i]))) {
      ends.push_back(i);
      turn.clear();
    }
    turn.insert(names[i]);
  }
  if (!names.empty()) ends.push_back(names.size());
  return ends;
}

Status CheckApart(const std::vector<std::string>& names) {
  if (!Meet(names)) return {};
  return {Code::kInvalidArgument,
          "several SRC go into one directory, and --delete would remove of each what the others "
          "have not: copy them one by one, without --delete"};
}

Result<Targets> PlaceTargets(const std::vector<SourceFacts>& sources,
                             const std::string& destination, const DestinationFacts& facts) {
  const std::string shown = "'" + Shown(destination) + "'";
  if (destination.empty()) return Status(Code::kInvalidArgument, "the last word, DST, is empty");
  if (facts.is_directory) {
    Targets out{destination, {}};
    for (const SourceFacts& source : sources) out.names.push_back(LastName(source.path));
    RDFS_RETURN_IF_ERROR(CheckDistinct(sources, out.names));
    return out;
  }
  if (sources.size() != 1) {
    return Status(Code::kInvalidArgument,
                  facts.exists ? shown + " is no directory, and there is more than one SRC"
                               : "there is no directory " + shown + ": make it first");
  }
  const bool onto_directory = sources[0].is_directory;
  if (facts.exists && onto_directory) {
    return Status(Code::kInvalidArgument,
                  shown + " is a file, and '" + Shown(sources[0].path) + "' a directory");
  }
  if (!onto_directory && destination.back() == '/') {
    return Status(Code::kInvalidArgument,
                  facts.exists ? shown + " is no directory"
                               : "there is no directory " + shown + ": make it first");
  }
  Targets out = NewName(destination);
  if (out.names[0].empty()) {
    return Status(Code::kInvalidArgument, "there is no directory " + shown + ": make it first");
  }
  return out;
}

}  // namespace rdfs::copy
