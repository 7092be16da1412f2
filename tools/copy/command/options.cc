#include "tools/copy/command/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/copy/file/pace.h"
#include "transport/base/command_line.h"
#include "transport/base/say.h"
#include "transport/ssh/launch.h"

namespace rdfs::copy {
namespace {

constexpr const char* kAbout =
    "Copies files and directories. A file appears under its name only when it is whole, with its\n"
    "attributes; a file that cannot be copied is named, and the rest goes on.";

constexpr const char* kFooter = R"(
SRC and DST:
  PATH               here; one with a ':' in its first name is written ./NAME
  [USER@]HOST:PATH   on another machine, where ssh starts rdcp; IPv6 addresses in brackets. A SRC that
                     is not there as it stands is a pattern. Data go over RDMA, shared memory or TCP,
                     whichever is the best that works, and through ssh if nothing else does, or
                     until something else has answered.
  rdfs://HOST[:PORT]/EXPORT[/PATH]
                     on an export of a running rdfsd, without a mount. --key-file names the key. A SRC
                     may be a pattern, as of another machine.

What DST means, as for cp and scp:
  DST is a directory: each SRC goes into it under its last name ("dir/." and "..": what is in it).
  DST is no directory: the one SRC gets that name.

Patterns:
  The first --exclude or --include that matches decides; what none matches is copied. A pattern with a
  slash in it is matched against the path from SRC on, one without against the name at any depth; a
  slash at its end means directories only. * and ? stop at a slash, unless the pattern has ** in it.

Exit status:
  0   all was copied
  1   some could not be copied; each was named
  2   the command line is wrong
  24  all was copied but what vanished between being found and being read
  127 there is no rdcp on the other machine, or not where --rdcp-path says)";

class WithUsage final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: rdcp [OPTIONS] SRC... DST\n";
  }
};

struct Words {
  std::vector<std::string> operands, excluded, included;
  bool preserve = false, archive = false, partial = false;
  std::string shell, ports, require, limit;
};

int Wrong(const std::string& what) {
  Say("rdcp: {}; see rdcp --help\n", what);
  return 2;
}

struct Patterns {
  const CLI::Option* exclude = nullptr;
  const CLI::Option* include = nullptr;
};

Patterns Declare(CLI::App& app, Words& words, CopyOptions& out) {
  app.add_option("OPERANDS", words.operands)->group("");
  app.add_flag("-r,-R,--recursive", out.recurse, "Directories with all that is in them");
  app.add_flag("-p", words.preserve, "Keep mode, owner (where allowed), times and ACLs");
  app.add_flag("-a,--archive", words.archive,
               "-r and -p, and keep hard links, extended attributes, FIFOs, sockets and devices");
  app.add_flag("-L,--dereference", out.follow, "Copy what symlinks lead to, not them");
  app.add_flag("-x,--one-file-system", out.one_file_system,
               "Leave out what is mounted beneath a SRC");
  app.add_flag("-u,--update", out.policy.update, "Only what is newer than what is there");
  app.add_flag("--sync", out.policy.sync,
               "-r, keep times, and skip files that have the same size and time there");
  app.add_flag("--checksum", out.policy.checksum, "Skip files that have the same content there");
  app.add_flag("--delete", out.remove, "Delete in copied directories what SRC has not");
  app.add_flag("--verify", out.verify, "Read again what was written, and compare");
  app.add_flag(
      "--inplace", out.in_place,
      "Write into existing files: they keep hard links and owner, and are seen unfinished");
  app.add_flag("--resume", out.resume,
               "Go on where a copy with --resume was interrupted; keep times, and skip files that "
               "have the same size and time there");
  app.add_flag("-P", words.partial,
               "--resume, and progress on the terminal also where names are listed (-v)");
  app.add_flag("-n,--dry-run", out.dry_run, "Change nothing; list what would be copied or deleted");
  Patterns patterns;
  patterns.exclude = app.add_option("--exclude", words.excluded, "Leave out what matches")
                         ->allow_extra_args(false);
  patterns.include = app.add_option("--include", words.included, "Copy what matches after all")
                         ->allow_extra_args(false);
  app.add_option(
      "--files-from", out.files_from,
      "With -r: only what this file lists, a path from SRC on in each line; - is standard input");
  app.add_flag("-0,--null", out.nul, "The list's paths end with NUL");
  app.add_option("-l,--bwlimit", words.limit, "At most so many bytes a second: 500K, 20M, 1G")
      ->type_name("RATE")
      ->take_last();
  app.add_flag("-v,--verbose", out.verbosity, "List what is copied, and say how fast that was");
  app.add_flag("-q,--quiet", out.quiet,
               "No progress on the terminal, and no word of a copy that stays on ssh");
  app.add_option("-e,--rsh", words.shell, "What starts ssh, as 'ssh -p 2222'")
      ->type_name("CMD")
      ->take_last();
  app.add_option("--rdcp-path", out.rdcp_path, "Where rdcp is on the other machine")
      ->type_name("PATH")
      ->take_last();
  app.add_flag("--bootstrap", out.bootstrap,
               "Where there is none, send this rdcp there for this copy");
  app.add_option("--port", words.ports, "Ports that the other machine may listen on")
      ->type_name("A-B")
      ->take_last();
  app.add_option("--key-file", out.key_file, "The key of an export's server, as rdfs -o key_file")
      ->type_name("FILE")
      ->take_last();
  app.add_option("--require", words.require, "Only this transport; else fail and say why")
      ->check(CLI::IsMember({"verbs", "shm", "tcp"}));
  app.add_option("--lanes", out.lanes,
                 "How many connections carry the data over TCP, 1 to 8; 4 to another host, else 1")
      ->check(CLI::Range(1, 8))
      ->type_name("N")
      ->take_last();
  app.add_flag("--plaintext", out.plaintext, "No TLS over TCP to another host");
  app.add_flag("--require-encryption", out.require_encryption,
               "Nothing leaves this host that is not encrypted: no verbs");
  return patterns;
}

// What concerns other machines.
std::optional<int> TakeRemote(const Words& words, CopyOptions& out) {
  if (!words.shell.empty()) {
    auto command = transport::ssh::SplitWords(words.shell);
    if (!command.ok()) return Wrong("-e: " + command.status().message());
    if (command->empty()) return Wrong("-e wants a command");
    out.ssh_command = *std::move(command);
  }
  if (!words.ports.empty()) {
    const auto ports = PortRange::Parse(words.ports);
    if (!ports.ok()) return Wrong(ports.status().message());
    out.ports = *ports;
  }
  if (out.rdcp_path.empty()) return Wrong("--rdcp-path wants a path");
  if (out.plaintext && out.require_encryption) {
    return Wrong("--plaintext and --require-encryption exclude each other");
  }
  if (!words.require.empty()) out.require = transport::KindFromName(words.require);
  if (out.require_encryption && out.require == transport::Kind::kVerbs) {
    return Wrong(
        "--require-encryption and --require verbs exclude each other: RDMA is not encrypted on the "
        "wire; leave one of them out");
  }
  return std::nullopt;
}

// CLI11 collects each option by itself; their order among each other is in parse_order.
Rules RulesOf(const CLI::App& app, const Patterns& patterns, const Words& words) {
  Rules out;
  std::size_t excluded = 0;
  std::size_t included = 0;
  for (const CLI::Option* option : app.parse_order()) {
    if (option == patterns.exclude) out.Add(false, words.excluded[excluded++]);
    if (option == patterns.include) out.Add(true, words.included[included++]);
  }
  return out;
}

std::optional<int> TakeOperands(const std::vector<std::string>& words, CopyOptions& out) {
  if (words.size() < 2) return Wrong(words.empty() ? "give SRC and DST" : "give a DST, too");
  for (const std::string& word : words) {
    if (word.empty()) return Wrong("SRC and DST cannot be empty words");
    auto operand = ParseOperand(word);
    if (!operand.ok()) return Wrong(operand.status().message());
    out.sources.push_back(*std::move(operand));
  }
  out.destination = std::move(out.sources.back());
  out.sources.pop_back();
  return std::nullopt;
}

std::optional<int> Combine(const Words& words, CopyOptions& out) {
  if (!words.limit.empty()) {
    const auto limit = Pace::Parse(words.limit);
    if (!limit.ok()) return Wrong(limit.status().message());
    out.limit = *limit;
  }
  if (words.preserve) out.keep = Keep::Attributes();
  if (words.archive) out.keep = Keep::All();
  if (words.archive || out.policy.sync) out.recurse = true;
  if (words.partial) out.resume = out.progress = true;
  if (out.resume && out.in_place) {
    return Wrong("--resume finishes a file of its own first, and --inplace has none: give one");
  }
  // What is whole is not copied again.
  if (out.resume) out.policy.sync = true;
  if (out.policy.sync) out.keep.times = true;
  if (out.remove && !out.recurse) return Wrong("--delete wants -r, -a or --sync");
  if (!out.files_from.empty() && !out.recurse) return Wrong("--files-from wants -r, -a or --sync");
  if (!out.files_from.empty() && out.sources.size() != 1) {
    return Wrong("--files-from wants one SRC, the directory that its paths begin at");
  }
  const auto is_export = [](const Operand& each) { return each.where == Operand::Where::kExport; };
  if (!out.key_file.empty() && !is_export(out.destination) &&
      std::ranges::none_of(out.sources, is_export)) {
    return Wrong("--key-file is for rdfs://..., and neither SRC nor DST is that");
  }
  if (out.nul && out.files_from.empty()) return Wrong("-0 belongs to --files-from");
  return std::nullopt;
}

}  // namespace

bool CopyOptions::IsLocal() const {
  const auto is_local = [](const Operand& each) { return each.where != Operand::Where::kHost; };
  return is_local(destination) && std::all_of(sources.begin(), sources.end(), is_local);
}

std::optional<int> ParseCopy(int argc, char** argv, CopyOptions& out) {
  CLI::App app(kAbout);
  app.formatter(std::make_shared<WithUsage>());
  app.footer(kFooter);
  app.set_version_flag("--version", "rdcp " RDFS_VERSION);
  Words words;
  const Patterns patterns = Declare(app, words, out);
  try {
    ParseWords(app, argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return TellAsked(app, done, "rdcp");
  } catch (const CLI::ParseError& error) {
    return Wrong(error.what());
  }
  out.rules = RulesOf(app, patterns, words);
  if (const auto exit = TakeOperands(words.operands, out)) return exit;
  if (const auto exit = TakeRemote(words, out)) return exit;
  return Combine(words, out);
}

}  // namespace rdfs::copy
