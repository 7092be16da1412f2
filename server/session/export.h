// Export: one directory of this machine under the name that clients ask for.
//
// Made from an ExportSpec (command line or configuration file) before the first connection;
// immutable and shared afterwards. Any thread. What lies below the directory is reached through
// beneath.h only. Exports do not watch their directory: what was mounted over it when the server
// started is what they show.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/identity/idmap.h"
#include "server/inode/handle.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

struct ExportSpec {
  std::string name;
  std::string directory;
  bool read_only = false;
  IdMode id_mode = IdMode::kRootSquash;
  bool id_mode_given = false;  // else: as the server's own rights suggest
  Ids anonymous = kNobody;

  // "NAME=DIR[,OPTION...]". Options are taken from the end while they are known words (ro, rw,
  // root_squash, all_squash, trusted, no_root_squash, as_me, anonuid=N, anongid=N), so that a
  // directory may contain commas. Errors: kInvalidArgument, one sentence.
  static Result<ExportSpec> Parse(std::string_view text);
  // Without options. Errors: kInvalidArgument, one sentence.
  static Result<ExportSpec> Make(std::string_view name, std::string_view directory);
  // "OPTION,OPTION...", with spaces around them or none. Errors: kInvalidArgument, one sentence,
  // for a word that is none, for two that contradict each other, and for as_me where this process
  // is root: all users of a client would be.
  Status TakeOptions(std::string_view words);
  friend bool operator==(const ExportSpec&, const ExportSpec&) = default;
};

class Export {
 public:
  // Errors: kNotFound (no such directory), kInvalidArgument (not a directory, or one like /proc,
  // whose files say that they are empty), kErrno.
  static Result<std::shared_ptr<const Export>> Create(const ExportSpec& spec);

  [[nodiscard]] const ExportSpec& spec() const { return spec_; }
  [[nodiscard]] const std::string& name() const { return spec_.name; }
  [[nodiscard]] bool read_only() const { return spec_.read_only; }
  // A readable descriptor of the root directory (open_by_handle_at(2) refuses O_PATH ones).
  [[nodiscard]] int root() const { return root_.get(); }
  [[nodiscard]] std::uint64_t root_device() const { return root_device_; }
  // Whether the root has been removed since. Does not ask a server of NFS; false where the file
  // system does not count a directory's links.
  [[nodiscard]] bool IsRemoved() const;
  // Whether the root's file system is one that this host alone changes: what the kernel knows of it
  // is always the truth.
  [[nodiscard]] bool is_local() const { return is_local_; }

 private:
  Export(ExportSpec spec, Fd root, const struct statx& stat, bool is_local);
  ExportSpec spec_;
  Fd root_;
  std::uint64_t root_device_;
  bool had_links_;
  bool is_local_;
};

}  // namespace rdfs::server
