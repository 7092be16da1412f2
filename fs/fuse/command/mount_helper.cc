#include "fs/fuse/command/mount_helper.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace rdfs::fs::fuse {
namespace {

constexpr std::string_view kName = "mount.rdfs";
constexpr std::string_view kHelp =
    R"(Mounts a directory of another machine, for mount(8), fstab(5) and systemd; see rdfs(1).
Usage: mount.rdfs SOURCE MNT [OPTIONS]

Options:
  -o OPTION,...               Mount options: those of rdfs, and mount(8)'s
  -s                          Leave out options that rdfs does not know
  -f                          Check the command line, and mount nothing
  -v                          Say more
  -n                          Taken and ignored: there is no /etc/mtab to write
  -t TYPE                     Taken and ignored: it is rdfs
  -h,--help                   Print this and exit
  -V,--version                Display program version information and exit

In /etc/fstab:
  rdfs://node/data  /mnt  rdfs  key_file=/etc/rdfs/key,allow_other,_netdev,nofail  0 0

Exit status: 0 mounted, 1 wrong usage, 32 failed, with the reason.)";

struct Words {
  std::vector<std::string> operands;
  std::string options;
  bool sloppy = false, fake = false;
  int verbosity = 0;
};

Answer Refuse(std::string_view sentence) {
  return {kHelperUsage, fmt::format("{}: {}; see {} --help", kName, sentence, kName)};
}

// One argument that begins with '-', letters bundled as mount(8) may do: -sfnv. `next` is the value
// of -o and -t.
std::optional<Answer> TakeFlags(const std::string& flags, const std::string* next, bool& took_next,
                                Words& words) {
  for (const char flag : std::string_view(flags).substr(1)) {
    switch (flag) {
      case 's':
        words.sloppy = true;
        break;
      case 'f':
        words.fake = true;
        break;
      case 'v':
        ++words.verbosity;
        break;
      case 'n':
        break;
      case 'h':
        return Answer{0, std::string(kHelp)};
      case 'V':
        return Answer{0, fmt::format("{} " RDFS_VERSION, kName)};
      case 'o':
      case 't':
        if (next == nullptr) return Refuse(fmt::format("-{} needs a value", flag));
        if (took_next) return Refuse(fmt::format("'{}' has two options with a value", flags));
        took_next = true;
        if (flag == 'o') words.options += (words.options.empty() ? "" : ",") + *next;
        break;
      case 'N':
        return Refuse("-N: another mount namespace is entered with nsenter(1) instead");
      default:
        return Refuse(fmt::format("there is no option -{}", flag));
    }
  }
  return std::nullopt;
}

std::optional<Answer> Take(const std::vector<std::string>& arguments, Words& words) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help") return Answer{0, std::string(kHelp)};
    if (argument == "--version") return Answer{0, fmt::format("{} " RDFS_VERSION, kName)};
    if (argument.size() < 2 || argument.front() != '-') {
      words.operands.push_back(argument);
      continue;
    }
    if (argument.starts_with("--")) return Refuse(fmt::format("there is no option {}", argument));
    const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
    bool took_next = false;
    if (auto answer = TakeFlags(argument, next, took_next, words)) return answer;
    if (took_next) ++i;
  }
  if (words.operands.size() != 2) return Refuse("give SOURCE and MNT");
  return std::nullopt;
}

// Of a word with a value: mount(8) says who mounts, fstab(5) may hold remarks.
bool OnlyForTheSystem(std::string_view name) { return name == "user" || name == "comment"; }

// The list without what is not for rdfs. Words keep their backslashes.
std::string Filter(std::string_view list, bool sloppy) {
  std::string out;
  for (const std::string_view word : SplitMountOptions(list)) {
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (equals != word.npos && OnlyForTheSystem(name)) continue;
    if (sloppy && !KnowsMountOption(name)) continue;
    if (!out.empty()) out += ',';
    out += word;
  }
  return out;
}

}  // namespace

bool IsMountHelper(std::string_view program) {
  return program.substr(program.rfind('/') + 1) == kName;
}

int HelperExitCode(int exit_code) {
  if (exit_code == 0) return 0;
  return exit_code == kExitUsage ? kHelperUsage : kHelperFailure;
}

std::variant<Options, Answer> ParseHelperCommandLine(const std::vector<std::string>& arguments) {
  Words words;
  if (auto answer = Take(arguments, words)) return *std::move(answer);
  std::vector<std::string> ours(static_cast<std::size_t>(words.verbosity), "-v");
  if (const std::string list = Filter(words.options, words.sloppy); !list.empty()) {
    ours.insert(ours.end(), {"-o", list});
  }
  ours.insert(ours.end(), {"--", words.operands[0], words.operands[1]});
  std::variant<Options, Answer> parsed = ParseCommandLine(ours);
  if (auto* answer = std::get_if<Answer>(&parsed)) {
    constexpr std::string_view kOther = "rdfs: ";
    if (answer->text.starts_with(kOther)) answer->text.erase(0, kOther.size());
    return Answer{HelperExitCode(answer->exit_code), fmt::format("{}: {}", kName, answer->text)};
  }
  if (words.fake) return Answer{0, {}};
  return parsed;
}

}  // namespace rdfs::fs::fuse
