#include "server/identity/group_cache.h"

#include <grp.h>
#include <pwd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// getpwuid_r(3): these say that there is no such user, as success with nothing found does.
bool MeansNobody(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

// A thread begins with the identity of who started it, which may be a caller's.
void ActAsProcess(const std::vector<gid_t>& groups) {
  ::syscall(SYS_setfsgid, ::getegid());
  ::syscall(SYS_setfsuid, ::geteuid());
  if (::geteuid() == 0) ::syscall(SYS_setgroups, groups.size(), groups.data());
}

std::vector<gid_t> GroupsOfProcess() {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  return groups;
}

// Threads that take one task after the other, started when there is more than they can do, and
// gone when there was nothing for a while.
class TaskThreads : public std::enable_shared_from_this<TaskThreads> {
 public:
  void Run(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
    wake_.notify_one();
    if (idle_ >= queue_.size() || count_ >= GroupCache::kMostThreads) return;
    try {
      std::thread([self = shared_from_this()] { self->Work(); }).detach();
      ++count_;
    } catch (const std::system_error& error) {
      LogWarn("no thread to ask the user database with: {}", error.what());
    }
  }

 private:
  static constexpr std::chrono::seconds kIdle{30};

  void Work() {
    ActAsProcess(groups_);
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      const bool any = wake_.wait_for(lock, kIdle, [this] { return !queue_.empty(); });
      --idle_;
      if (!any) break;
      const std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
    --count_;
  }

  const std::vector<gid_t> groups_ = GroupsOfProcess();
  std::mutex mutex_;  // guards the rest
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  std::size_t idle_ = 0, count_ = 0;
};

}  // namespace

GroupCache::Elsewhere GroupCache::Threads() {
  return [threads = std::make_shared<TaskThreads>()](std::function<void()> task) {
    threads->Run(std::move(task));
  };
}

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

struct GroupCache::State {
  struct User {
    Groups groups;  // null until the first answer
    TimePoint until;
    bool asked = false;  // and not answered yet
    bool taken = false;  // its turn has come
    std::uint64_t asker = 0;
    std::vector<std::uint64_t> others;  // who have it in their queues, too
    TimePoint asked_at;
    std::vector<std::function<void()>> waiting;
  };

  State(const Clock& clock_in, Ask ask_in) : clock(clock_in), ask(std::move(ask_in)) {}

  // Whether the user is now being asked for and was not before: AskNext is to be called once more.
  bool Begin(Ids ids, User& user, std::uint64_t asker, TimePoint now) {
    if (user.asked || HasAskedForTooMany(asker)) return false;
    user.asked = true;
    user.taken = false;
    user.others.clear();
    user.asker = asker;
    user.asked_at = now;
    ++asking[asker];
    queues[asker].push_back(ids);
    return true;
  }
  // As Begin, where another one has asked: it is asked for in whoever's turn comes first.
  bool Join(Ids ids, User& user, std::uint64_t asker) {
    if (!user.asked || user.taken || user.asker == asker) return false;
    if (std::find(user.others.begin(), user.others.end(), asker) != user.others.end()) return false;
    user.others.push_back(asker);
    queues[asker].push_back(ids);
    return true;
  }
  [[nodiscard]] bool HasAskedForTooMany(std::uint64_t asker) const {
    const auto found = asking.find(asker);
    return found != asking.end() && found->second >= kMostAsked;
  }
  void NoteAnswered(User& user) {
    user.asked = false;
    const auto found = asking.find(user.asker);
    if (found != asking.end() && --found->second == 0) asking.erase(found);
  }
  // Of each asker one in its turn. Nothing: there are none left.
  std::optional<Ids> TakeNext() {
    while (true) {
      auto turn = queues.upper_bound(last_asker);
      if (turn == queues.end()) turn = queues.begin();
      if (turn == queues.end()) return std::nullopt;
      const std::uint64_t asker = turn->first;
      const Ids ids = turn->second.front();
      turn->second.pop_front();
      if (turn->second.empty()) queues.erase(turn);
      const auto user = users.find(ids);
      if (user == users.end() || !user->second.asked || user->second.taken) continue;
      user->second.taken = true;
      last_asker = asker;
      return ids;
    }
  }

  // Null: the database did not answer.
  void Settle(Ids ids, User& user, Groups told, TimePoint now) {
    if (told) {
      user.groups = std::move(told);
    } else if (!user.groups) {
      user.groups = std::make_shared<const std::vector<gid_t>>(1, ids.gid);
    }
    user.until = now + kKept;
    for (const std::function<void()>& go_on : std::exchange(user.waiting, {})) go_on();
  }

  // Of all users together once in a while.
  void Warn(Ids ids, TimePoint now) {
    if (now < next_warning) return;
    next_warning = now + kKept;
    LogWarn(
        "the user database does not say which groups uid {} is in: what it said before holds, else "
        "group {} alone; see whether `getent initgroups` answers",
        ids.uid, ids.gid);
  }

  void AskNext() {
    std::optional<Ids> next;
    {
      const std::lock_guard lock(mutex);
      next = TakeNext();
    }
    if (!next) return;
    const Ids ids = *next;
    std::optional<std::vector<gid_t>> told = ask(ids);
    const std::lock_guard lock(mutex);
    const auto found = users.find(ids);
    if (found == users.end() || stopped) return;
    NoteAnswered(found->second);
    const TimePoint now = clock.Now();
    if (!told) Warn(ids, now);
    Settle(ids, found->second,
           told ? std::make_shared<const std::vector<gid_t>>(*std::move(told)) : nullptr, now);
  }

  void GiveUp(Ids ids, TimePoint asked_at) {
    const std::lock_guard lock(mutex);
    const auto found = users.find(ids);
    if (found == users.end() || stopped) return;
    User& user = found->second;
    if (!user.asked || user.asked_at != asked_at) return;
    const TimePoint now = clock.Now();
    Warn(ids, now);
    Settle(ids, user, nullptr, now);
  }

  // Who asks for very many users does not make everybody else's be asked for again.
  void MakeRoom(TimePoint now) {
    if (users.size() < kMostUsers) return;
    const auto idle = [](const User& user) { return !user.asked && user.waiting.empty(); };
    std::erase_if(users, [&](const auto& entry) {
      return idle(entry.second) && entry.second.until + kUsedMeanwhile <= now;
    });
    if (users.size() < kMostUsers) return;
    const auto some = std::find_if(users.begin(), users.end(),
                                   [&](const auto& entry) { return idle(entry.second); });
    if (some != users.end()) users.erase(some);
  }

  struct Hash {
    std::size_t operator()(Ids ids) const {
      return std::hash<std::uint64_t>()((std::uint64_t{ids.uid} << 32U) | ids.gid);
    }
  };
  const Clock& clock;
  const Ask ask;
  std::mutex mutex;  // guards the rest
  std::unordered_map<Ids, User, Hash> users;
  std::unordered_map<std::uint64_t, std::size_t> asking;  // users by asker, never 0
  std::map<std::uint64_t, std::deque<Ids>> queues;  // those whose turn is to come, never empty
  std::uint64_t last_asker = 0;
  TimePoint next_warning{};
  bool stopped = false;
};

GroupCache::GroupCache(const Clock& clock, Scheduler& scheduler, Ask ask, Elsewhere elsewhere)
    : scheduler_(scheduler),
      elsewhere_(std::move(elsewhere)),
      state_(std::make_shared<State>(clock, std::move(ask))) {}

GroupCache::~GroupCache() {
  Stop();
  std::unordered_map<Ids, State::User, State::Hash>
      users;  // what waits is not ended under the lock
  const std::lock_guard lock(state_->mutex);
  users.swap(state_->users);
}

void GroupCache::Stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
}

GroupCache::Groups GroupCache::Known(Ids ids, std::uint64_t asker) {
  Groups groups;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->users.find(ids);
    if (found == state_->users.end()) return nullptr;
    State::User& user = found->second;
    const TimePoint now = state_->clock.Now();
    if (!user.groups || now < user.until) return user.groups;
    if (user.asked && now - user.asked_at >= kPatience) {
      state_->Warn(ids, now);
      state_->Settle(ids, user, nullptr, now);
      return user.groups;
    }
    if (now >= user.until + kUsedMeanwhile) return nullptr;
    groups = user.groups;
    if (!state_->Begin(ids, user, asker, now)) return groups;
  }
  elsewhere_([state = state_] { state->AskNext(); });
  return groups;
}

bool GroupCache::WhenKnown(Ids ids, std::function<void()> go_on, std::uint64_t asker) {
  TimePoint asked_at;
  bool begun = false, first = false;
  {
    const std::lock_guard lock(state_->mutex);
    const TimePoint now = state_->clock.Now();
    const auto known = state_->users.find(ids);
    const bool is_known = known != state_->users.end();
    if (is_known && known->second.groups && now < known->second.until) {
      go_on();
      return true;
    }
    const bool is_asked = is_known && known->second.asked;
    if (!is_asked && state_->HasAskedForTooMany(asker)) return false;
    if (!is_known) state_->MakeRoom(now);
    State::User& user = state_->users[ids];
    user.waiting.push_back(std::move(go_on));
    begun = state_->Begin(ids, user, asker, now) || state_->Join(ids, user, asker);
    asked_at = user.asked_at;
    first = user.waiting.size() == 1;
  }
  if (first) {
    scheduler_.After(kPatience, [weak = std::weak_ptr(state_), ids, asked_at] {
      if (const auto state = weak.lock()) state->GiveUp(ids, asked_at);
    });
  }
  if (begun) elsewhere_([state = state_] { state->AskNext(); });
  return true;
}

}  // namespace rdfs::server
