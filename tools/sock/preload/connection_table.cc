// The connections of this process, by descriptor, and what happens to all of them at once: fork,
// exec, exit, and a program that forbids itself system calls.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "tools/sock/preload/calling.h"
#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/handover.h"

namespace rdfs::sock {
namespace {

constinit std::atomic<Connection*> g_connections{nullptr};
constinit std::atomic<pid_t> g_pid{0};
constinit std::atomic<bool> g_aside{false};
constinit std::atomic<bool> g_all_aside{false};  // nothing is on its way back any more

Connection* Connections() {
  Connection* connections = g_connections.load(std::memory_order_acquire);
  if (connections != nullptr) return connections;
  auto* const made =
      static_cast<Connection*>(MapZeros(SlotArena::kMost * sizeof(Connection), false));
  if (made == nullptr || g_connections.compare_exchange_strong(connections, made)) return made;
  return connections;  // another thread's; ours stays mapped and untouched
}

template <typename Do>
void ForEachConnection(Do act) {
  const int end = Registry().end();
  for (int fd = 0; fd < end; ++fd) {
    const Word word = Registry().Get(fd);
    if (word.kind() == Word::Kind::kConnection) act(fd, Connections()[word.index()]);
  }
}

// The same for what takes more than a glance: another thread may close one meanwhile.
template <typename Do>
void ForEachUsed(Use::Of which, Do act) {
  const int end = Registry().end();
  for (int fd = 0; fd < end; ++fd) {
    const Use use(fd, which);
    if (use) act(fd, *use);
  }
}

// Before all that `chosen` says yes to leave one after the other: all their other ends are told
// before the first is waited for. Until when they are, all together.
template <typename Chosen>
Deadline BeginLeaving(Chosen chosen) {
  ForEachUsed(Use::Of::kMovable, [&](int fd, Connection& connection) {
    if (connection.attached() && chosen(fd, connection)) connection.BeginLeaving(fd);
  });
  return DeadlineAfter(kLeaveTimeout);
}

void ShareSocket(int fd) { Registry().Change(fd, kOwnSocket, kSharedSocket); }
void ShareSockets() {
  const int end = Registry().end();
  for (int fd = 0; fd < end; ++fd) ShareSocket(fd);
}

// Whether exec leaves it open.
bool StaysOpen(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

// One thread at a time forks, so that its child knows which connections count on it.
constinit pthread_mutex_t g_fork_lock = PTHREAD_MUTEX_INITIALIZER;
constinit thread_local bool t_forking = false;        // it has the lock
constinit thread_local bool t_tells_failure = false;  // it is in ForkCounted
// Those that it has counted, with the lock: another thread may close one before the fork is over,
// and then no word tells of it.
constinit std::array<std::uint32_t, SlotArena::kMost> g_counted{};
constinit std::size_t g_counted_size = 0;

template <typename Do>
void ForEachCounted(Do act) {
  for (std::size_t i = 0; i < g_counted_size; ++i) act(Connections()[g_counted[i]]);
}

void BeforeFork() {
  if (t_forking) return;  // a signal handler in the middle of a fork
  // Takes the sets' locks, and who holds one may fork in a signal handler: never behind the other.
  EpollBeforeFork();
  pthread_mutex_lock(&g_fork_lock);
  t_forking = true;
  ShareSockets();
  g_counted_size = 0;
  ForEachUsed(Use::Of::kAll, [](int, Connection& connection) {
    if (connection.BeforeFork()) g_counted[g_counted_size++] = connection.index();
  });
}
void EndFork(bool failed) {
  if (!t_forking) return;
  ForEachCounted([&](Connection& connection) { connection.AfterForkInParent(failed); });
  EpollAfterForkInParent();
  t_forking = false;
  pthread_mutex_unlock(&g_fork_lock);
}
void AfterForkInParent() {
  if (!t_tells_failure) EndFork(false);
}
void AfterForkInChild() {
  g_pid = getpid();
  g_fork_lock = PTHREAD_MUTEX_INITIALIZER;
  t_forking = false;
  const bool apart = !g_aside && (g_pid == 1 || getppid() == 0);
  if (apart) Slots().SetApart();
  ForEachConnection([&](int, Connection& connection) { connection.AfterForkInChild(apart); });
  ForEachCounted([](Connection& connection) { connection.NotInherited(); });
  EpollAfterForkInChild();
}

__attribute__((constructor)) void FollowForks() {
  g_pid = getpid();
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  TakeHeld();
}

// exit(3) closes without a call of close.
__attribute__((destructor)) void CloseAll() {
  if (StandsAside()) return;
  ForEachUsed(Use::Of::kMovable, [](int fd, Connection& connection) {
    const Calling calling(connection, fd);
    connection.BeforeClose(fd);
  });
}

}  // namespace

bool InFork() { return t_forking; }

bool IsThisProcess() { return g_aside || getpid() == g_pid; }
pid_t ThisProcess() { return g_pid; }
bool StandsAside() { return g_aside; }

pid_t ForkCounted(pid_t (*call)(), bool runs_handlers) {
  t_tells_failure = true;
  if (!runs_handlers) BeforeFork();
  const pid_t child = call();
  t_tells_failure = false;
  if (child != 0) EndFork(child < 0);
  if (child == 0 && !runs_handlers) AfterForkInChild();
  return child;
}

void BeforeUnseenChild() {
  const int saved = errno;
  ShareSockets();
  const Deadline deadline = BeginLeaving([](int, Connection&) { return true; });
  ForEachUsed(Use::Of::kAll, [&](int fd, Connection& connection) {
    connection.NeedTcp(fd, Reason::kShared, deadline);
    connection.DropIdleKept();
  });
  errno = saved;
}

Use::Use(int fd, Of which) {
  for (;;) {
    const Word word = Registry().Get(fd);
    if (word.kind() != Word::Kind::kConnection) return;
    Connection& connection = Connections()[word.index()];
    if (which == Of::kMovable && connection.mode() == Connection::Mode::kTcp) return;
    if (!connection.AddUser()) continue;
    connection_ = &connection;
    if (Registry().Get(fd) == word) return;
    connection_ = nullptr;
    connection.DropUser();
  }
}

void NoteConnection(int fd, bool opened) {
  Connection* const connections = Connections();
  ++TheCounts().connections;
  if (StandsAside()) {
    ++TheCounts().stayed[static_cast<std::size_t>(Reason::kNeedsTcp)];
    return Registry().Forget(fd);
  }
  const std::uint32_t index = connections == nullptr ? SlotArena::kMost : Slots().Take();
  if (index == SlotArena::kMost) {
    ++TheCounts().stayed[static_cast<std::size_t>(Reason::kNoRoom)];
    Registry().Forget(fd);
    return;
  }
  (new (connections + index) Connection)->Open(index, opened);
  connections[index].in_epoll = EpollHas(fd);
  Registry().Set(fd, Word(Word::Kind::kConnection, index));
}

void NoteDuplicate(int fd, int copy) {
  ShareSocket(fd);
  const Word word = Registry().Get(fd);
  if (word.kind() == Word::Kind::kConnection) Connections()[word.index()].AddDescriptor();
  if (word.kind() == Word::Kind::kEpoll) EpollDuplicated(word.index());
  Registry().Set(copy, word);
  if (copy > STDERR_FILENO || word.kind() != Word::Kind::kConnection) return;
  // Nothing but a fork tells whether the next is exec; what is plain still may wait for that.
  const Use use(copy);
  if (use && use->attached()) use->NeedTcp(copy, Reason::kNeedsTcp);
}

Closing::Closing(int fd) : was_(Registry().Get(fd)) {
  if (was_.kind() == Word::Kind::kNone) return;
  if (was_.kind() == Word::Kind::kConnection) {
    Connection& connection = Connections()[was_.index()];
    // A set goes on to tell of what has another number (epoll(7)), by one that is nobody's: so can
    // the kernel alone.
    if (connection.in_epoll && connection.descriptors() > 1 && EpollHas(fd)) NeedTcp(fd);
    connection.BeforeClose(fd);
  }
  EpollForget(fd);
  was_ = Registry().Set(fd, Word());
  if (was_.kind() != Word::Kind::kConnection) return;
  Connection& connection = Connections()[was_.index()];
  if (connection.attached()) connection.KeepForOthers(fd);  // for who came meanwhile
  connection.AwaitUntouched();
  Calling::ClosedByItself(fd);
}
Closing::~Closing() {
  if (was_.kind() == Word::Kind::kConnection) Connections()[was_.index()].DropDescriptor();
  if (was_.kind() == Word::Kind::kEpoll) EpollClosed(was_.index());
}

void NoteInherited(int fd, std::uint32_t index, bool first) {
  Connection* const connections = Connections();
  if (connections == nullptr) return;
  if (first) (new (connections + index) Connection)->Inherit(index);
  if (first) {
    ++TheCounts().connections;
    --Slots()[index].handed;
  }
  connections[index].AddDescriptor();
  Registry().Set(fd, Word(Word::Kind::kConnection, index));
}

void ForEachHeld(bool stay, void (*act)(void* argument, int fd, std::uint32_t index),
                 void* argument) {
  ForEachConnection([&](int fd, Connection& connection) {
    if (connection.mode() == Connection::Mode::kUndecided && StaysOpen(fd) == stay) {
      act(argument, fd, connection.index());
    }
  });
}

void BeforeExec(std::span<const std::uint32_t> taken) {
  const int saved = errno;
  const int end = Registry().end();
  for (int fd = 0; fd < end; ++fd) {
    if (Registry().Get(fd) == kOwnSocket && StaysOpen(fd)) ShareSocket(fd);
  }
  const auto leaves = [&](int fd, Connection& connection) {
    const bool known = std::find(taken.begin(), taken.end(), connection.index()) != taken.end();
    return StaysOpen(fd) && !known;
  };
  const Deadline deadline = BeginLeaving(leaves);
  ForEachUsed(Use::Of::kMovable, [&](int fd, Connection& connection) {
    if (leaves(fd, connection)) connection.NeedTcp(fd, Reason::kShared, deadline);
  });
  errno = saved;
}

void StandAside() {
  if (g_all_aside) return;
  const int saved = errno;
  g_aside = true;
  // Nothing is left to be done at close, either. What is plain goes on so; this process remains one
  // of its holders, so that no other can move it.
  const Deadline deadline = BeginLeaving([](int, Connection&) { return true; });
  ForEachUsed(Use::Of::kAll, [&](int fd, Connection& connection) {
    const bool plain = connection.mode() == Connection::Mode::kUndecided;
    if (!plain) connection.NeedTcp(fd, Reason::kNeedsTcp, deadline);
    if (plain) ++TheCounts().stayed[static_cast<std::size_t>(Reason::kNeedsTcp)];
    // Else another thread has closed it, and has let go of it.
    const bool open =
        Registry().Set(fd, Word()) == Word(Word::Kind::kConnection, connection.index());
    if (!plain && open) connection.DropDescriptor();
  });
  g_all_aside = true;
  errno = saved;
}

void NeedTcp(int fd, Reason reason) {
  ShareSocket(fd);
  const Use use(fd);
  if (use) use->NeedTcp(fd, reason);
}

}  // namespace rdfs::sock
