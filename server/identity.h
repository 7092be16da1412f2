// ThreadIdentity: as whom the calling thread touches files.
//
// When the server is root, each request runs with the file-system uid, gid and groups of its
// caller: setfsuid(2), setfsgid(2) and setgroups as raw system calls, which change one thread only
// (glibc's setgroups would change all). setfsuid away from root takes the file-system capabilities
// out of the effective set (capabilities(7)), so that permission checks, the sticky bit, and the
// clearing of setuid and setgid bits are the kernel's own; coming back restores them. The umask is
// per thread too once the thread has left the process's file-system context (unshare CLONE_FS).
//
// One a thread, made on that thread, used by it only. Remembers what is set and makes no system
// call when nothing changes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/idmap.h"
#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs::server {

// Supplementary groups as the server's own user database has them (getgrouplist(3)), as NFS with
// --manage-gids: a client's list is neither carried nor believed. Any thread; an answer is kept for
// a minute, and for longer where the database does not answer then. The first question about a user
// may block in the name service.
class GroupCache {
 public:
  // Nothing: the database did not answer.
  using Ask = std::function<std::optional<std::vector<gid_t>>(Ids)>;
  static std::optional<std::vector<gid_t>> AskUserDatabase(Ids ids);
  explicit GroupCache(const Clock& clock, Ask ask = AskUserDatabase)
      : clock_(clock), ask_(std::move(ask)) {}
  using Groups = std::shared_ptr<const std::vector<gid_t>>;
  [[nodiscard]] Groups Of(Ids ids);

 private:
  struct Entry {
    Groups groups;
    TimePoint until;
  };
  void MakeRoom(TimePoint now);
  const Clock& clock_;
  const Ask ask_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

class ThreadIdentity {
 public:
  // `can_switch`: the process is root and may. The groups must outlive this.
  ThreadIdentity(bool can_switch, GroupCache& groups);
  ~ThreadIdentity();
  ThreadIdentity(const ThreadIdentity&) = delete;
  ThreadIdentity& operator=(const ThreadIdentity&) = delete;

  // Acts as `caller` from now on, or as the server itself. kErrno EPERM when the kernel refuses:
  // the request must fail then.
  Status Become(const std::optional<Ids>& caller);
  // Whose files this thread touches; the server's own ids after Become(nullopt).
  [[nodiscard]] bool is_root() const { return !current_ ? server_is_root_ : current_->uid == 0; }
  [[nodiscard]] const std::optional<Ids>& current() const { return current_; }
  void SetUmask(mode_t mask);

 private:
  bool can_switch_;
  bool server_is_root_;
  bool private_fs_context_ = false;
  GroupCache& groups_;
  std::optional<Ids> current_;
  GroupCache::Groups current_groups_;
  mode_t umask_ = 0;
  bool umask_known_ = false;
};

}  // namespace rdfs::server
