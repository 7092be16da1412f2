#include "fs/library/walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace rdfs::fs::library {
namespace {

constexpr int kMostSymlinks = 40;

bool Is(const client::NamedFile& file, std::uint32_t type) {
  return (file.attr.mode & S_IFMT) == type;
}

}  // namespace

void Walk::Start(client::Lane& lane, const client::CallContext& caller,
                 const client::NamedFile& root, std::string_view path, LastName last, Done done) {
  auto walk = std::make_shared<Walk>(lane, caller, root, last, std::move(done));
  if (path.empty()) return walk->Fail(ENOENT);
  if (path.size() >= kMaxPathBytes) return walk->Fail(ENAMETOOLONG);
  walk->Prepend(path);
  walk->Step();
}

void Walk::Fail(int errno_value) { done_(Status(Code::kErrno, errno_value, {})); }

// A target that ends in '/' says so of the last name only; elsewhere a name follows anyway.
void Walk::Prepend(std::string_view path) {
  if (rest_.empty()) must_be_directory_ = must_be_directory_ || path.ends_with('/');
  if (path.starts_with('/')) above_.resize(1, above_.front());
  std::deque<std::string> names;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    if (!name.empty()) names.emplace_back(name);
    path.remove_prefix(std::min(path.size(), name.size() + 1));
  }
  rest_.insert(rest_.begin(), names.begin(), names.end());
}

void Walk::Step() {
  // What a "." stands behind is a directory, and followed: it is not the last name.
  while (!rest_.empty() && (rest_.front() == ".." || rest_.front() == ".")) {
    if (last_ == LastName::kNotLooked && rest_.size() == 1) return Fail(EINVAL);
    if (rest_.front() == ".." && above_.size() > 1) above_.pop_back();
    rest_.pop_front();
  }
  if (rest_.empty()) {
    if (last_ == LastName::kNotLooked) return Fail(EINVAL);
    return done_(Place{.parent = {}, .name = {}, .file = above_.back()});
  }
  if (last_ == LastName::kNotLooked && rest_.size() == 1) {
    return done_(
        Place{.parent = above_.back().handle, .name = rest_.front(), .file = std::nullopt});
  }
  lane_.Lookup(caller_, above_.back().handle, rest_.front(),
               [self = shared_from_this()](Result<client::NamedFile>&& found) {
                 self->OnFound(std::move(found));
               });
}

void Walk::OnFound(Result<client::NamedFile>&& found) {
  const bool last = rest_.size() == 1;
  if (!found.ok()) {
    if (!last || found.status().errno_value() != ENOENT) return done_(found.status());
    return done_(
        Place{.parent = above_.back().handle, .name = rest_.front(), .file = std::nullopt});
  }
  const bool follow = !last || last_ == LastName::kFollowed || must_be_directory_;
  if (Is(*found, S_IFLNK) && follow) {
    if (++symlinks_ > kMostSymlinks) return Fail(ELOOP);
    lane_.Readlink(caller_, found->handle,
                   [self = shared_from_this()](Result<std::string_view>&& target) {
                     self->OnTarget(std::move(target));
                   });
    return;
  }
  const bool directory = Is(*found, S_IFDIR);
  if (!directory && (!last || must_be_directory_)) return Fail(ENOTDIR);
  if (last) {
    return done_(
        Place{.parent = above_.back().handle, .name = rest_.front(), .file = *std::move(found)});
  }
  above_.push_back(*std::move(found));
  rest_.pop_front();
  Step();
}

void Walk::OnTarget(Result<std::string_view>&& target) {
  if (!target.ok()) return done_(target.status());
  if (target->empty()) return Fail(ENOENT);
  rest_.pop_front();
  Prepend(*target);
  Step();
}

}  // namespace rdfs::fs::library
