#include "fs/fuse/command/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <span>

#include "fs/fuse/content/read_ahead_window.h"
#include "fs/fuse/worker/workers.h"
#include "fs/protocol.h"
#include "transport/base/home_directory.h"
#include "transport/base/parse_number.h"
#include "transport/base/printable.h"
#include "transport/base/url_scheme.h"
#include "transport/ssh/launch.h"

namespace rdfs::fs::fuse {
namespace {

constexpr std::string_view kScheme = "rdfs://";
constexpr std::string_view kForms =
    "write [user@]host:DIR for a directory that ssh reaches, or rdfs://HOST[:PORT]/NAME for an "
    "export of a running rdfsd (an IPv6 address in brackets)";

Status BadSource(std::string_view text, std::string_view why) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not a source: {}; {}", text, why, kForms)};
}

// Hosts, users and names go to terminals, logs and (as one word) to ssh.
bool HasControlOrBlank(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return c == ' ' || IsControl(c); });
}

bool HasControl(std::string_view text) { return std::ranges::any_of(text, IsControl); }

// Takes "host" or "[address]" off the front of `text`.
std::optional<std::string> TakeHost(std::string_view& text, std::string_view stops) {
  std::string_view host;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos) return std::nullopt;
    host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (!text.empty() && stops.find(text.front()) == stops.npos) return std::nullopt;
  } else {
    host = text.substr(0, text.find_first_of(stops));
    text.remove_prefix(host.size());
  }
  if (host.empty() || HasControlOrBlank(host)) return std::nullopt;
  return std::string(host);
}

Result<Source> ParseExportSource(std::string_view text) {
  std::string_view rest = text.substr(kScheme.size());
  ExportSource source;
  const std::optional<std::string> host = TakeHost(rest, ":/");
  if (!host) return BadSource(text, "it names no host");
  source.host = *host;
  if (rest.starts_with(':')) {
    const std::string_view digits = rest.substr(1, rest.find('/') - 1);
    const auto port = ParseNumber<std::uint16_t>(digits);
    if (!port || *port == 0) {
      return BadSource(text, fmt::format("'{}' is not a port from 1 to 65535", digits));
    }
    source.port = *port;
    rest.remove_prefix(1 + digits.size());
  }
  while (rest.starts_with('/')) rest.remove_prefix(1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty()) return BadSource(text, "it names no export");
  if (rest.find('/') != rest.npos) {
    return BadSource(text, "the name of an export has no '/'; mount the export and go on below it");
  }
  if (rest.size() > kMaxExportNameBytes || HasControl(rest)) {
    return BadSource(text, "no export has such a name");
  }
  source.name = rest;
  return Source(source);
}

// "~" and "~/" are the home directory, where rdfsd is started there: what is left is below it.
// False for somebody else's.
bool TakeHome(std::string_view& directory) {
  if (!directory.starts_with('~')) return true;
  if (directory.size() > 1 && directory[1] != '/') return false;
  directory.remove_prefix(std::min(directory.find_first_not_of('/', 1), directory.size()));
  return true;
}

Result<Source> ParseSshSource(std::string_view text) {
  if (const std::string_view scheme = SchemeOf(text); !scheme.empty()) {
    return BadSource(text, fmt::format("there is no {}:// here", scheme));
  }
  std::string_view rest = text;
  std::string user;
  // The last '@' before the host's colon: a user may have one in the name.
  const std::size_t bracket = rest.find('[');
  const std::size_t at = rest.substr(0, std::min(bracket, rest.find(':'))).rfind('@');
  if (at != rest.npos) {
    user = rest.substr(0, at + 1);
    rest.remove_prefix(at + 1);
  }
  const std::optional<std::string> host = TakeHost(rest, ":");
  if (!host || user == "@" || HasControlOrBlank(user)) return BadSource(text, "it names no host");
  if (!rest.starts_with(':')) return BadSource(text, "there is no ':' behind the host");
  if (host->find('/') != host->npos) return BadSource(text, "the host has a '/' in its name");
  SshSource source;
  source.destination = user + *host;
  // ssh would take it for an option.
  if (source.destination.starts_with('-') || host->starts_with('-')) {
    return BadSource(text, "a host or user does not begin with '-'");
  }
  rest.remove_prefix(1);
  if (!TakeHome(rest)) {
    return BadSource(text,
                     "'~/' is the far user's own home directory, and nobody else's is known; give "
                     "its whole path");
  }
  source.directory = rest.empty() ? "." : std::string(rest);
  if (source.directory.size() >= kMaxPathBytes ||
      source.directory.find('\0') != std::string::npos) {
    return BadSource(text, "its directory is longer than a path can be");
  }
  return Source(source);
}

// ---- the words of -o ----------------------------------------------------------------------------

struct Word {
  std::string_view name;
  std::string_view value_name;  // empty: a word without '='
  Status (*apply)(const std::string& value, Options& options);
};

Status BadValue(std::string_view word, std::string_view value, std::string_view wanted) {
  return {Code::kInvalidArgument, fmt::format("-o {}={}: {}", word, value, wanted)};
}

Status ApplyNumber(std::string_view word, const std::string& value, unsigned least, unsigned most,
                   unsigned& out) {
  const auto number = ParseNumber<unsigned>(value);
  if (!number || *number < least || *number > most) {
    return BadValue(word, value, fmt::format("give a number from {} to {}", least, most));
  }
  out = *number;
  return {};
}

Status ApplyRequire(const std::string& value, Options& options) {
  options.require = transport::KindFromName(value);
  if (!options.require) return BadValue("require", value, "give verbs, shm or tcp");
  return {};
}

Status ApplyDeadline(const std::string& value, Options& options) {
  unsigned seconds = 0;
  RDFS_RETURN_IF_ERROR(ApplyNumber("deadline", value, 1, 86'400, seconds));
  options.deadline = std::chrono::seconds(seconds);
  return {};
}

Status ApplyIdMap(const std::string& value, Options& options) {
  if (value != "user" && value != "none") return BadValue("idmap", value, "give user or none");
  options.raw_ids = value == "none";
  return {};
}

Status ApplyId(std::string_view word, const std::string& value, std::optional<std::uint32_t>& out) {
  const auto id = ParseNumber<std::uint32_t>(value);
  // The last one means "none" to chown(2).
  if (!id || *id == std::numeric_limits<std::uint32_t>::max()) {
    return BadValue(word, value, "give a number; `id NAME` tells it");
  }
  out = *id;
  return {};
}

Status ApplyRdfsdPath(const std::string& value, Options& options) {
  if (value.empty() || value.starts_with('-') || HasControl(value)) {
    return BadValue("rdfsd_path", value, "give the path of rdfsd on the far host");
  }
  options.rdfsd_path = value;
  return {};
}

Status ApplyAddress(const std::string& value, Options& options) {
  std::string_view rest = value;
  const auto host = TakeHost(rest, "");  // IPv6 also without brackets: no port follows it
  const bool port = !value.starts_with('[') && std::ranges::count(value, ':') == 1;
  if (!host || port || value.find('/') != value.npos) {
    return BadValue("address", value, "give another address of the server, without a port");
  }
  options.other_addresses.push_back(*host);
  return {};
}

Status ApplySshCommand(const std::string& value, Options& options) {
  auto words = transport::ssh::SplitWords(value);
  constexpr std::string_view kWord = "ssh_command";
  if (!words.ok()) return BadValue(kWord, value, words.status().message());
  options.ssh_command = *std::move(words);
  if (options.ssh_command.empty() || options.ssh_command.front().empty()) {
    return BadValue(kWord, value, "give the program and its options, as in 'ssh -p 2222'");
  }
  return {};
}

Status ApplyFile(std::string_view word, const std::string& value, std::string& out) {
  if (value.empty() || value.find('\0') != std::string::npos) {
    return BadValue(word, value, "give the path of a file");
  }
  out = WithHomeDirectory(value);
  return {};
}

Status ApplyMetrics(const std::string& value, Options& options) {
  RDFS_ASSIGN_OR_RETURN(options.metrics, metrics::ParseAddress(value));
  return {};
}

#define RDFS_FLAG(member, value)             \
  [](const std::string&, Options& options) { \
    options.member = value;                  \
    return Status();                         \
  }

constexpr auto kWords = std::to_array<Word>({
    {"key_file", "FILE",
     [](const std::string& v, Options& o) { return ApplyFile("key_file", v, o.key_file); }},
    {"require", "verbs|shm|tcp", ApplyRequire},
    {"address", "ADDRESS", ApplyAddress},
    {"deadline", "SECONDS", ApplyDeadline},
    {"workers", "N",
     [](const std::string& v, Options& o) {
       return ApplyNumber("workers", v, 1, Workers::kMost, o.workers.emplace());
     }},
    {"allow_other", "", RDFS_FLAG(allow_other, true)},
    {"ro", "", RDFS_FLAG(read_only, true)},
    {"rw", "", RDFS_FLAG(read_only, false)},
    {"plaintext", "", RDFS_FLAG(plaintext, true)},
    {"require_encryption", "", RDFS_FLAG(require_encryption, true)},
    {"idmap", "user|none", ApplyIdMap},
    {"uid", "N", [](const std::string& v, Options& o) { return ApplyId("uid", v, o.uid); }},
    {"gid", "N", [](const std::string& v, Options& o) { return ApplyId("gid", v, o.gid); }},
    {"writeback", "", RDFS_FLAG(writeback, true)},
    {"sync", "", RDFS_FLAG(sync, true)},
    {"async", "", RDFS_FLAG(sync, false)},
    {"strict", "", RDFS_FLAG(strict, true)},
    {"rdfsd_path", "PATH", ApplyRdfsdPath},
    {"ssh_command", "CMD", ApplySshCommand},
    {"log", "FILE",
     [](const std::string& v, Options& o) { return ApplyFile("log", v, o.log_file); }},
    {"metrics", "PORT|ADDRESS:PORT|PATH", ApplyMetrics},
    {"read_ahead", "KIB",
     [](const std::string& v, Options& o) {
       return ApplyNumber("read_ahead", v, 0, 1U << 20U, o.read_ahead_kib);
     }},
    {"prefetch", "KIB",
     [](const std::string& v, Options& o) {
       return ApplyNumber("prefetch", v, 0, ReadAheadWindow::kMost >> 10U,
                          o.prefetch_kib.emplace());
     }},
    {"suid", "", RDFS_FLAG(set_uid, true)},
    {"nosuid", "", RDFS_FLAG(set_uid, false)},
    {"dev", "", RDFS_FLAG(devices, true)},
    {"nodev", "", RDFS_FLAG(devices, false)},
    {"exec", "", RDFS_FLAG(no_exec, false)},
    {"noexec", "", RDFS_FLAG(no_exec, true)},
    {"noatime", "", RDFS_FLAG(no_atime, true)},
    {"atime", "", RDFS_FLAG(no_atime, false)},
});
#undef RDFS_FLAG

// Words for mount(8) and fstab(5) that mean nothing to us.
constexpr auto kIgnored = std::to_array<std::string_view>(
    {"relatime",   "norelatime", "_netdev",  "auto",        "noauto",        "user",
     "nouser",     "users",      "defaults", "nofail",      "lazytime",      "default_permissions",
     "owner",      "noowner",    "group",    "nogroup",     "nousers",       "diratime",
     "nodiratime", "silent",     "loud",     "strictatime", "nostrictatime", "iversion",
     "noiversion", "nolazytime", "mand",     "nomand"});

constexpr std::string_view kRemount = "remount";
// mount(8)'s words for promises that a mount does not keep: left out, somebody would rely on them.
constexpr auto kNotKept = std::to_array<std::string_view>({"dirsync", "nosymfollow", kRemount});

Status NotKept(std::string_view name) {
  if (name == kRemount) {
    return {Code::kInvalidArgument,
            "-o remount: what a mount is like is settled when it begins; unmount it, and mount it "
            "again"};
  }
  if (name == "dirsync") {
    return {Code::kInvalidArgument,
            "-o dirsync: a name that was made or removed is at the server when its call returns, "
            "and on the server's disk after an fsync of its directory; leave it out"};
  }
  return {Code::kInvalidArgument,
          "-o nosymfollow: the kernel keeps that by itself, of what is mounted already; leave it "
          "out, and then run as root 'mount -o remount,bind,nosymfollow MNT'"};
}

bool HasWord(std::span<const std::string_view> words, std::string_view name) {
  return std::find(words.begin(), words.end(), name) != words.end();
}

std::string KnownWords() {
  std::string out;
  for (const Word& word : kWords) {
    if (!out.empty()) out += ", ";
    out += word.name;
    if (!word.value_name.empty()) out.append("=").append(word.value_name);
  }
  return out + ", and mount(8)'s own words";
}

Status ApplyWord(const std::string& text, Options& options) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (name.starts_with("x-")) return {};
  if (equals == text.npos && HasWord(kIgnored, name)) return {};
  if (HasWord(kNotKept, name)) return NotKept(name);
  const auto word =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.name == name; });
  if (word == kWords.end()) {
    return {Code::kInvalidArgument,
            fmt::format("-o {}: there is no such option; there are {}", name, KnownWords())};
  }
  const bool has_value = equals != text.npos;
  if (has_value == word->value_name.empty()) {
    return {Code::kInvalidArgument,
            has_value
                ? fmt::format("-o {}: it takes no value; write just {}", text, name)
                : fmt::format("-o {0}: it needs a value; write {0}={1}", name, word->value_name)};
  }
  return word->apply(has_value ? text.substr(equals + 1) : std::string(), options);
}

// '\,' and '\\' stand for the second character; any other backslash stands for itself.
std::string WithoutEscapes(std::string_view word) {
  std::string out;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool escapes =
        word[i] == '\\' && i + 1 < word.size() && (word[i + 1] == ',' || word[i + 1] == '\\');
    out += escapes ? word[++i] : word[i];
  }
  return out;
}

Status CheckTogether(const Options& options) {
  const auto no = [](std::string_view sentence) {
    return Status(Code::kInvalidArgument, std::string(sentence));
  };
  if (options.plaintext && options.require_encryption) {
    return no("-o plaintext and -o require_encryption exclude each other; give one of them");
  }
  if (options.require_encryption && options.require == transport::Kind::kVerbs) {
    return no(
        "-o require_encryption and -o require=verbs exclude each other: RDMA is not encrypted on "
        "the wire; leave one of them out");
  }
  if (options.strict && options.writeback) {
    return no(
        "-o strict and -o writeback exclude each other: one keeps nothing in the kernel's pages, "
        "the other all; give one of them");
  }
  if (options.sync && options.writeback) {
    return no(
        "-o sync and -o writeback exclude each other: one has each write at the server when it "
        "returns, the other gathers them in the kernel; give one of them");
  }
  if (options.raw_ids && (options.uid || options.gid)) {
    return no("-o idmap=none and -o uid= or gid= exclude each other; leave one of them out");
  }
  if (std::holds_alternative<SshSource>(options.source) && !options.key_file.empty()) {
    return no(
        "-o key_file is for rdfs://HOST/NAME; with host:DIR a key of its own travels through ssh, "
        "so leave it out");
  }
  return {};
}

constexpr std::string_view kDescription =
    "Mounts a directory of another machine: over RDMA where both ends have it, over shared memory "
    "on\n"
    "one host, over TCP otherwise, and through ssh itself if nothing else gets through.\n";

std::string Footer() {
  return R"(
SOURCE
  [user@]host:DIR          ssh starts rdfsd there and hands over a one-time key
  rdfs://HOST[:PORT]/NAME  an export of a running rdfsd (port 7337; IPv6 in brackets)

OPTIONS OF -o (a comma list, -o may be repeated; '\,' is a comma inside a value)
  key_file=FILE            the key of the rdfsd (mode 0600)
  require=verbs|shm|tcp    this transport or none
  address=ADDRESS          another address of the server; may be repeated. Lanes (workers=) go over
                           all of them, and over the others where one does not answer
  deadline=SECONDS         how long a call waits for its answer, reconnecting included (30)
  workers=N                event loops, each with a lane of its own (1, and a second one for
                           times when that has more to do than it can, where there are two
                           processors)
  read_ahead=KIB           the kernel's read-ahead, settable by root only (4096; 0: the kernel's own)
  prefetch=KIB             how much rdfs asks for ahead of the kernel, of files that are read from
                           front to back (as much as the way to the server needs, 1024 to begin
                           with; 0: nothing, and so with workers= of more than one; at most 8192)
  allow_other              other users may use the mount (needs user_allow_other in /etc/fuse.conf)
  ro, rw                   read-only or not (rw)
  plaintext                no TLS to another host
  require_encryption       no RDMA, whose data is not encrypted, and TLS to every other host
                           (with require=tcp to this one too)
  idmap=user|none          map the far user and the mounting one onto each other, or no ids at all
                           (user)
  uid=N                    who the far user is here, instead of who mounts; for servers that act as
                           themselves: by ssh, or the rdfsd of an ordinary user
  gid=N                    the same of the group
  writeback                the kernel's writeback cache: for a directory with a single writer; not
                           together with sync or strict
  sync, async              each write is at the server when it returns, also where nobody else has
                           the file open; or need not be, then (async)
  strict                   no read(2) is answered from the kernel's pages
  ssh_command=CMD          instead of ssh: a program and its options (no shell; absolute paths)
  rdfsd_path=PATH          where rdfsd is on the far host (rdfsd in its PATH)
  log=FILE                 where log lines go once mounted (else: syslog; with -f: standard error)
  metrics=PORT             answer Prometheus on this port of this host's own, or ADDRESS:PORT, or the
                           path of a socket
  suid, dev, noexec, noatime, ... as in mount(8); nosuid and nodev unless root says otherwise

SIGNALS
  TERM, INT, HUP           unmount; while programs use it, detach it and wait for them, at most the
                           deadline; a second one ends it at once
  USR1                     write the counters to the log

WATCHING
  rdfs status [MNT]                       what this user's mounts are, over what, and their counters
  rdfs stats [--json|--prometheus] [MNT]  the same for programs
  rdfs top [-n TURNS] [MNT]               what happens, by the second
  rdfs watch [-r] PATH...                 what is changed there, by whomever (rdfs watch --help)

EXIT STATUS
  0 mounted (with -f: and unmounted again)   1 failed, with the reason   2 wrong usage

In /etc/fstab:   rdfs://node/data  /mnt  rdfs  key_file=/etc/rdfs/key,_netdev,allow_other  0 0
Unmount with:    fusermount3 -u MNT)";
}

Answer UsageError(std::string_view sentence) {
  return {kExitUsage, fmt::format("rdfs: {}", sentence)};
}

// CLI11 reports by exceptions; they end here.
std::optional<Answer> RunParser(CLI::App& app, std::vector<std::string> arguments) {
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants a vector
    app.parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    return Answer{0, app.help()};
  } catch (const CLI::CallForVersion&) {
    return Answer{0, "rdfs " RDFS_VERSION};
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    return UsageError(what + "; see rdfs --help");
  }
}

}  // namespace

Result<Source> ParseSource(std::string_view text) {
  if (text.starts_with(kScheme)) return ParseExportSource(text);
  return ParseSshSource(text);
}

bool KnowsMountOption(std::string_view name) {
  return name.starts_with("x-") || HasWord(kIgnored, name) || HasWord(kNotKept, name) ||
         std::any_of(kWords.begin(), kWords.end(), [&](const Word& w) { return w.name == name; });
}

std::vector<std::string_view> SplitMountOptions(std::string_view list) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] != ',') {
      if (list[i] == '\\' && i + 1 < list.size()) ++i;  // whatever follows ends no word
      continue;
    }
    if (i > begin) words.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return words;
}

Status ApplyMountOptions(std::string_view list, Options& options) {
  const std::vector<std::string_view> words = SplitMountOptions(list);
  // Whatever is beside it: mount(8) may add words of the kernel's, which say nothing here.
  if (std::ranges::find(words, kRemount) != words.end()) return NotKept(kRemount);
  for (const std::string_view word : words) {
    RDFS_RETURN_IF_ERROR(ApplyWord(WithoutEscapes(word), options));
  }
  return {};
}

Result<Options> ParseSourceAndOptions(std::string_view source, std::string_view list) {
  Options options;
  options.source_text = source;
  RDFS_ASSIGN_OR_RETURN(options.source, ParseSource(source));
  RDFS_RETURN_IF_ERROR(ApplyMountOptions(list, options));
  RDFS_RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

std::variant<Options, Answer> ParseCommandLine(const std::vector<std::string>& arguments) {
  Options options;
  std::vector<std::string> lists;
  CLI::App app{std::string(kDescription)};
  app.name("rdfs");
  app.footer(Footer());
  app.set_help_flag("-h,--help", "Print this and exit");
  app.set_version_flag("-V,--version", "rdfs " RDFS_VERSION);
  app.add_option("SOURCE", options.source_text, "What to mount (see below)")->required();
  app.add_option("MNT", options.mount_point, "Where: an empty directory")->required();
  app.add_option("-o", lists, "Mount options (see below)")
      ->expected(1)
      ->take_all()
      ->type_name("OPTION,...");
  app.add_flag("-f,--foreground", options.foreground, "Stay in the foreground");
  app.add_flag("-v,--verbose", options.verbosity, "Say more; again: even more");
  if (std::optional<Answer> answer = RunParser(app, arguments)) return *std::move(answer);

  Result<Source> source = ParseSource(options.source_text);
  if (!source.ok()) return Answer{kExitFailure, "rdfs: " + source.status().message()};
  options.source = *std::move(source);
  for (const std::string& list : lists) {
    const Status applied = ApplyMountOptions(list, options);
    if (!applied.ok()) return UsageError(applied.message());
    options.option_lists += (options.option_lists.empty() ? "" : ",") + list;
  }
  const Status together = CheckTogether(options);
  if (!together.ok()) return UsageError(together.message());
  return options;
}

}  // namespace rdfs::fs::fuse
