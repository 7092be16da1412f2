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

#include <optional>

#include "server/identity/group_cache.h"
#include "server/identity/idmap.h"
#include "transport/base/status.h"

namespace rdfs::server {

class ThreadIdentity {
 public:
  struct Caller {
    Ids ids;
    GroupCache::Groups groups;  // not null
    friend bool operator==(const Caller&, const Caller&) = default;
  };
  // `can_switch`: the process is root and may.
  explicit ThreadIdentity(bool can_switch);
  ~ThreadIdentity();
  ThreadIdentity(const ThreadIdentity&) = delete;
  ThreadIdentity& operator=(const ThreadIdentity&) = delete;

  // Acts as `caller` from now on, or as the server itself. kErrno EPERM when the kernel refuses:
  // the request must fail then.
  Status Become(const std::optional<Caller>& caller);
  // Whose files this thread touches; the server's own ids after Become(nullopt).
  [[nodiscard]] bool is_root() const {
    return known_ && (!current_ ? server_is_root_ : current_->ids.uid == 0);
  }
  [[nodiscard]] const std::optional<Caller>& current() const { return current_; }
  void SetUmask(mode_t mask);

 private:
  bool can_switch_;
  bool server_is_root_;
  bool private_fs_context_ = false;
  std::optional<Caller> current_;
  bool known_ = true;          // false: a change failed, and what is set now is not current_
  GroupCache::Groups groups_;  // that the thread is in, also when it acts as the server
  mode_t umask_ = 0;
  bool umask_known_ = false;
};

}  // namespace rdfs::server
