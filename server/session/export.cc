#include "server/session/export.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "fs/protocol.h"
#include "transport/base/local_filesystem.h"
#include "transport/base/parse_number.h"

namespace rdfs::server {
namespace {

std::optional<std::uint32_t> ParseId(std::string_view text) {
  const auto id = ParseNumber<std::uint32_t>(text);
  return id == 0xffffffffU ? std::nullopt : id;
}

// Whether `word` was an option, which is then in `spec`.
bool TakeOption(std::string_view word, ExportSpec& spec) {
  if (word == "ro" || word == "rw") {
    spec.read_only = word == "ro";
    return true;
  }
  if (const auto mode = IdModeFromName(word)) {
    spec.id_mode = *mode;
    spec.id_mode_given = true;
    return true;
  }
  for (const auto& [prefix, field] :
       {std::pair("anonuid=", &spec.anonymous.uid), std::pair("anongid=", &spec.anonymous.gid)}) {
    if (!word.starts_with(prefix)) continue;
    const auto id = ParseId(word.substr(std::string_view(prefix).size()));
    if (!id) return false;
    *field = *id;
    return true;
  }
  return false;
}

bool IsOption(std::string_view word) {
  ExportSpec scratch;
  return TakeOption(word, scratch);
}

std::string NoOption(std::string_view word) {
  return "there is no option " + std::string(word) +
         "; there are ro, rw, root_squash, all_squash, trusted, no_root_squash, as_me, anonuid=N, "
         "anongid=N";
}

std::string_view Trimmed(std::string_view word) {
  const std::size_t begin = word.find_first_not_of(" \t");
  if (begin == word.npos) return {};
  return word.substr(begin, word.find_last_not_of(" \t") + 1 - begin);
}

// What a directory that is not there ends with, where that is an option that is misspelt: there is
// a directory before a comma. Else empty.
std::string_view MisspeltOption(const std::string& directory) {
  const std::size_t last = directory.rfind(',');
  if (last == directory.npos) return {};
  const std::string_view word = Trimmed(std::string_view(directory).substr(last + 1));
  if (IsOption(word)) return {};  // the configuration file's, where a directory has no options
  for (std::size_t comma = last; comma != directory.npos && comma > 0;
       comma = directory.rfind(',', comma - 1)) {
    struct stat info {};
    const std::string before = directory.substr(0, comma);
    if (::stat(before.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return word;
  }
  return {};
}

Status MalformedExport(std::string_view text) {
  return Status(Code::kInvalidArgument,
                "an export is written NAME=DIR[,ro][,root_squash|all_squash|trusted], not \"" +
                    std::string(text) + "\"");
}

// Whether what is on this file system is made up as it is read: its files say that they are empty,
// and reads end where a file says that it does.
bool SaysEmpty(int fd) {
  constexpr std::array<std::uint32_t, 6> kMadeUp{PROC_SUPER_MAGIC,    CGROUP_SUPER_MAGIC,
                                                 CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC,
                                                 TRACEFS_MAGIC,       SECURITYFS_MAGIC};
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return false;
  const auto type = static_cast<std::uint32_t>(info.f_type);
  return std::find(kMadeUp.begin(), kMadeUp.end(), type) != kMadeUp.end();
}

bool IsLocal(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && IsOfThisHost(info);
}

}  // namespace

Result<ExportSpec> ExportSpec::Parse(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos) return MalformedExport(text);
  std::string_view directory = text.substr(equals + 1), words;
  for (std::size_t comma = directory.rfind(','); comma != directory.npos;
       comma = directory.rfind(',')) {
    if (!IsOption(directory.substr(comma + 1))) break;
    directory = directory.substr(0, comma);
    words = text.substr(equals + 1 + comma + 1);
  }
  if (directory.empty()) return MalformedExport(text);
  RDFS_ASSIGN_OR_RETURN(ExportSpec spec, Make(text.substr(0, equals), directory));
  RDFS_RETURN_IF_ERROR(spec.TakeOptions(words));
  return spec;
}

Result<ExportSpec> ExportSpec::Make(std::string_view name, std::string_view directory) {
  ExportSpec spec;
  spec.name = name;
  spec.directory = directory;
  if (name.size() > fs::kMaxExportNameBytes || name.find_first_of("/=") != name.npos) {
    return Status(
        Code::kInvalidArgument,
        "an export's name has at most 255 bytes, and no '/' or '=': \"" + spec.name + "\"");
  }
  return spec;
}

Status ExportSpec::TakeOptions(std::string_view words) {
  std::vector<std::string_view> taken;
  for (std::string_view rest = words; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view word = Trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (word.empty()) continue;
    if (!TakeOption(word, *this)) return {Code::kInvalidArgument, NoOption(word)};
    taken.push_back(word);
  }
  for (auto word = taken.begin(); word != taken.end(); ++word) {
    // A word that still changes something was overruled by a later one.
    ExportSpec again = *this;
    TakeOption(*word, again);
    if (again == *this) continue;
    const auto overrules = [&](std::string_view later) {
      ExportSpec then = again;
      TakeOption(later, then);
      return then != again;
    };
    const auto later = std::find_if(word + 1, taken.end(), overrules);
    const std::string_view other = later != taken.end() ? *later : words;
    return {Code::kInvalidArgument, "export \"" + name + "\": " + std::string(*word) + " and " +
                                        std::string(other) +
                                        " exclude each other; leave one of them out"};
  }
  if (id_mode_given && id_mode == IdMode::kAsMe && ::geteuid() == 0) {
    return {Code::kInvalidArgument,
            "export \"" + name +
                "\": as_me is for an ordinary user's rdfsd: by root's, every user of a client "
                "would be root; leave it out, or say all_squash with anonuid= and anongid="};
  }
  return {};
}

Result<std::shared_ptr<const Export>> Export::Create(const ExportSpec& spec) {
  Fd root(::open(spec.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) {
    const std::string what = "cannot export " + spec.directory + " as \"" + spec.name + "\"";
    if (errno == ENOENT) {
      // Who mounts by ssh gives a directory alone.
      const std::string_view word =
          spec.name == fs::kBootstrapExport ? std::string_view() : MisspeltOption(spec.directory);
      return Status(Code::kNotFound, ENOENT,
                    what + ": there is no such directory; " +
                        (word.empty() ? "make it, or correct the path" : NoOption(word)));
    }
    if (errno == ENOTDIR) {
      return Status(Code::kInvalidArgument, ENOTDIR,
                    what + ": it is not a directory; export the one that holds it");
    }
    // Who comes by ssh has exported nothing, and started no rdfsd.
    if (errno == EACCES && spec.name == fs::kBootstrapExport) {
      return Status(Code::kErrno, EACCES,
                    spec.directory + ": this user may not read it there; log in as one who may");
    }
    if (errno == EACCES) {
      return Status(Code::kErrno, EACCES,
                    what + ": this user may not read it; let it, or start rdfsd as another");
    }
    return Status::FromErrno(errno, what);
  }
  if (SaysEmpty(root.get())) {
    return Status(Code::kInvalidArgument,
                  "cannot export " + spec.directory + " as \"" + spec.name +
                      "\": the kernel says that its files are empty, and so clients would find "
                      "them; copy what they need to a disk, and export that");
  }
  struct statx stat {};
  if (::statx(root.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stat) != 0) {
    return Status::FromErrno(errno, "statx of " + spec.directory);
  }
  const bool is_local = IsLocal(root.get());
  return std::shared_ptr<const Export>(new Export(spec, std::move(root), stat, is_local));
}

Export::Export(ExportSpec spec, Fd root, const struct statx& stat, bool is_local)
    : spec_(std::move(spec)),
      root_(std::move(root)),
      root_device_(DeviceOf(stat)),
      had_links_(stat.stx_nlink != 0),
      is_local_(is_local) {}

bool Export::IsRemoved() const {
  struct statx stat {};
  const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  return had_links_ && ::statx(root_.get(), "", flags, STATX_NLINK, &stat) == 0 &&
         stat.stx_nlink == 0;
}

}  // namespace rdfs::server
