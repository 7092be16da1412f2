#include "server/identity.h"

#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

constexpr auto kGroupsKept = std::chrono::minutes(1);
constexpr std::size_t kMaxUsersKept = 4096;

// getpwuid_r(3): these say that there is no such user, as success with nothing found does.
bool MeansNobody(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

bool SetFsIds(Ids ids) {
  // setfsuid(2) has no error: it returns the former id, and -1 changes nothing, so ask again.
  ::syscall(SYS_setfsgid, ids.gid);
  ::syscall(SYS_setfsuid, ids.uid);
  return static_cast<std::uint32_t>(::syscall(SYS_setfsgid, -1)) == ids.gid &&
         static_cast<std::uint32_t>(::syscall(SYS_setfsuid, -1)) == ids.uid;
}

}  // namespace

std::optional<std::vector<gid_t>> GroupCache::AskUserDatabase(Ids ids) {
  std::vector<char> buffer(16 * 1024);
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwuid_r(ids.uid, &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr && !MeansNobody(error)) return std::nullopt;
  if (found == nullptr) return {{ids.gid}};
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (::getgrouplist(found->pw_name, ids.gid, groups.data(), &count) < 0) {
    // A list that grows while it is asked for ends at the kernel's own bound.
    if (groups.size() >= 65536) return {{ids.gid}};
    groups.resize(static_cast<std::size_t>(count) + 64);
    count = static_cast<int>(groups.size());
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

GroupCache::Groups GroupCache::Of(Ids ids) {
  const std::uint64_t key = (std::uint64_t{ids.uid} << 32U) | ids.gid;
  const TimePoint now = clock_.Now();
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    if (it != entries_.end() && now < it->second.until) return it->second.groups;
  }
  std::optional<std::vector<gid_t>> told = ask_(ids);
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(key);
  Groups groups;
  if (!told && known != entries_.end()) {
    groups = known->second.groups;
  } else {
    groups = std::make_shared<const std::vector<gid_t>>(told ? *std::move(told)
                                                             : std::vector<gid_t>{ids.gid});
  }
  if (known == entries_.end()) MakeRoom(now);
  entries_[key] = {groups, now + kGroupsKept};
  return groups;
}

// Who asks for very many users does not make everybody else's be asked for again.
void GroupCache::MakeRoom(TimePoint now) {
  if (entries_.size() < kMaxUsersKept) return;
  std::erase_if(entries_, [now](const auto& entry) { return entry.second.until <= now; });
  if (entries_.size() >= kMaxUsersKept) entries_.erase(entries_.begin());
}

ThreadIdentity::ThreadIdentity(bool can_switch, GroupCache& groups)
    : can_switch_(can_switch), server_is_root_(::geteuid() == 0), groups_(groups) {
  private_fs_context_ = ::unshare(CLONE_FS) == 0;
  if (!private_fs_context_) {
    LogWarn("this thread cannot have a umask of its own ({}); new files may get wrong modes",
            Status::FromErrno(errno, "unshare").message());
  }
}

ThreadIdentity::~ThreadIdentity() {
  if (const Status back = Become(std::nullopt); !back.ok()) LogError("{}", back.message());
}

Status ThreadIdentity::Become(const std::optional<Ids>& caller) {
  if (!can_switch_ || (!caller && !current_)) return {};
  if (!caller) {
    if (!SetFsIds({::geteuid(), ::getegid()})) return Status::FromErrno(EPERM, "setfsuid");
    current_.reset();
    return {};
  }
  const GroupCache::Groups groups = groups_.Of(*caller);
  if (current_ == caller && current_groups_ == groups) return {};
  // Groups first: setgroups needs CAP_SETGID, which setfsuid leaves alone.
  if (current_groups_ != groups && ::syscall(SYS_setgroups, groups->size(), groups->data()) != 0) {
    return Status::FromErrno(errno, "setgroups");
  }
  current_groups_ = groups;
  if (current_ != caller && !SetFsIds(*caller)) {
    current_groups_.reset();  // set everything again next time
    current_ = Ids{0xffffffffU, 0xffffffffU};
    return Status::FromErrno(EPERM, "setfsuid");
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
