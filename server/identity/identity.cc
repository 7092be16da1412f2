#include "server/identity/identity.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

bool SetFsIds(Ids ids) {
  // setfsuid(2) has no error: it returns the former id, and -1 changes nothing, so ask again.
  ::syscall(SYS_setfsgid, ids.gid);
  ::syscall(SYS_setfsuid, ids.uid);
  return static_cast<std::uint32_t>(::syscall(SYS_setfsgid, -1)) == ids.gid &&
         static_cast<std::uint32_t>(::syscall(SYS_setfsuid, -1)) == ids.uid;
}

}  // namespace

ThreadIdentity::ThreadIdentity(bool can_switch)
    : can_switch_(can_switch), server_is_root_(::geteuid() == 0) {
  private_fs_context_ = ::unshare(CLONE_FS) == 0;
  if (!private_fs_context_) {
    LogWarn("this thread cannot have a umask of its own ({}); new files may get wrong modes",
            Status::FromErrno(errno, "unshare").message());
  }
}

ThreadIdentity::~ThreadIdentity() {
  if (const Status back = Become(std::nullopt); !back.ok()) LogError("{}", back.message());
}

Status ThreadIdentity::Become(const std::optional<Caller>& caller) {
  if (!can_switch_ || (known_ && !caller && !current_)) return {};
  if (!caller) {
    known_ = SetFsIds({::geteuid(), ::getegid()});
    if (!known_) return Status::FromErrno(EPERM, "setfsuid");
    current_.reset();
    return {};
  }
  if (known_ && current_ == caller) return {};
  // Groups first: setgroups needs CAP_SETGID, which setfsuid leaves alone.
  const bool same_groups =
      groups_ == caller->groups || (groups_ != nullptr && *groups_ == *caller->groups);
  if (!same_groups &&
      ::syscall(SYS_setgroups, caller->groups->size(), caller->groups->data()) != 0) {
    return Status::FromErrno(errno, "setgroups");
  }
  groups_ = caller->groups;
  if (!known_ || !current_ || current_->ids != caller->ids) {
    known_ = SetFsIds(caller->ids);
    if (!known_) {
      groups_.reset();  // set everything again next time
      return Status::FromErrno(EPERM, "setfsuid");
    }
  }
  current_ = caller;
  return {};
}

void ThreadIdentity::SetUmask(mode_t mask) {
  if (umask_known_ && umask_ == mask) return;
  ::umask(mask & 0777U);
  umask_ = mask;
  umask_known_ = true;
}

}  // namespace rdfs::server
