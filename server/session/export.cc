#include "server/session/export.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

#include "fs/protocol.h"

namespace rdfs::server {
namespace {

std::optional<std::uint32_t> ParseId(std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id == 0xffffffffU) {
    return std::nullopt;
  }
  return id;
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
  constexpr std::uint32_t kZfs = 0x2fc12fc1, kBcachefs = 0xca451a4e, kXfs = 0x58465342,
                          kRamfs = 0x858458f6;
  constexpr std::array<std::uint32_t, 8> kLocal{
      EXT4_SUPER_MAGIC, kXfs, BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
      F2FS_SUPER_MAGIC, kZfs, kBcachefs,         kRamfs};
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return false;
  const auto type = static_cast<std::uint32_t>(info.f_type);
  return std::find(kLocal.begin(), kLocal.end(), type) != kLocal.end();
}

}  // namespace

Result<ExportSpec> ExportSpec::Parse(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos) return MalformedExport(text);
  ExportSpec spec;
  spec.name = text.substr(0, equals);
  std::string_view rest = text.substr(equals + 1);
  for (std::size_t comma = rest.rfind(','); comma != rest.npos; comma = rest.rfind(',')) {
    if (!TakeOption(rest.substr(comma + 1), spec)) break;
    rest = rest.substr(0, comma);
  }
  spec.directory = rest;
  if (spec.directory.empty()) return MalformedExport(text);
  if (spec.name.size() > fs::kMaxExportNameBytes || spec.name.find('/') != spec.name.npos) {
    return Status(Code::kInvalidArgument,
                  "an export's name has at most 255 bytes and no '/': \"" + spec.name + "\"");
  }
  if (spec.id_mode_given && spec.id_mode == IdMode::kAsMe && ::geteuid() == 0) {
    return Status(
        Code::kInvalidArgument,
        "export \"" + spec.name +
            "\": as_me is for an ordinary user's rdfsd: by root's, every user of a client "
            "would be root; leave it out, or say all_squash with anonuid= and anongid=");
  }
  return spec;
}

Result<std::shared_ptr<const Export>> Export::Create(const ExportSpec& spec) {
  Fd root(::open(spec.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) {
    const std::string what = "cannot export " + spec.directory + " as \"" + spec.name + "\"";
    if (errno == ENOENT) {
      return Status(Code::kNotFound, ENOENT,
                    what + ": there is no such directory; make it, or correct the path");
    }
    if (errno == ENOTDIR) {
      return Status(Code::kInvalidArgument, ENOTDIR,
                    what + ": it is not a directory; export the one that holds it");
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
