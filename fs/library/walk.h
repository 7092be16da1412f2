// Walk: from the root of an export along a path, a lookup for each name.
//
// Resolves as if the export's root were "/" (chroot(2)): ".." stops there, and a symlink with an
// absolute target begins there. At most 40 symlinks (ELOOP), as the kernel has it. Keeps itself
// alive until `done` has been called, once; runs where the lane's callbacks run. It believes no
// name for longer than the walk.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/client/client.h"

namespace rdfs::fs::library {

enum class LastName {
  kFollowed,   // a symlink there is followed; the name may be missing
  kItself,     // it is not; the name may be missing
  kNotLooked,  // whoever asked for the walk changes that name: nobody looks
};

// Where a path leads.
struct Place {
  Handle parent;
  // Empty: the root of the export, or what ".." or "." led to; then `file` is there.
  std::string name;
  std::optional<client::NamedFile> file;  // not there: no such name, or nobody looked
};

class Walk : public std::enable_shared_from_this<Walk> {
 public:
  using Done = std::function<void(Result<Place>)>;
  // `root` is a directory. Errors: the server's, ENOTDIR, ELOOP, EINVAL (an empty path, or one
  // whose last name cannot be changed), ENAMETOOLONG.
  static void Start(client::Lane& lane, const client::CallContext& caller,
                    const client::NamedFile& root, std::string_view path, LastName last, Done done);

  Walk(client::Lane& lane, const client::CallContext& caller, const client::NamedFile& root,
       LastName last, Done done)
      : lane_(lane), caller_(caller), last_(last), done_(std::move(done)), above_{root} {}

 private:
  void Prepend(std::string_view path);
  void Step();
  void OnFound(Result<client::NamedFile>&& found);
  void OnTarget(Result<std::string_view>&& target);
  void Fail(int errno_value);

  client::Lane& lane_;
  const client::CallContext caller_;
  const LastName last_;
  Done done_;
  std::vector<client::NamedFile> above_;  // from the root to where we are
  std::deque<std::string> rest_;          // names that are still to be gone
  bool must_be_directory_ = false;        // the path ends in '/'
  int symlinks_ = 0;
};

}  // namespace rdfs::fs::library
