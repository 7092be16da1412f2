#include "tools/sock/preload/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/handover.h"
#include "tools/sock/preload/keeper.h"

namespace rdfs::sock {
namespace {

constexpr std::uint32_t kAttempts = 3;
constexpr std::uint32_t kFirstAttempt = 8;       // calls; each later one at eight times as many
constexpr std::uint64_t kManyBytes = 64 * 1024;  // do for the first one, too
constexpr std::uint32_t kRetries = 32;  // calls while the partner binds, but does not listen
constexpr std::uint32_t kLargestRing = 1024 * 1024;
constexpr std::uint64_t kFirstRing = 16 * 1024;

constinit std::atomic<Connection*> g_connections{nullptr};
constinit std::atomic<pid_t> g_pid{0};
constinit std::atomic<bool> g_aside{false};

Connection* Connections() {
  Connection* connections = g_connections.load(std::memory_order_acquire);
  if (connections != nullptr) return connections;
  auto* const made =
      static_cast<Connection*>(MapZeros(SlotArena::kMost * sizeof(Connection), false));
  if (made == nullptr || g_connections.compare_exchange_strong(connections, made)) return made;
  return connections;  // another thread's; ours stays mapped and untouched
}

// No handler of the program's runs meanwhile, and errno is as before afterwards.
class Undisturbed {
 public:
  Undisturbed() : errno_(errno) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
  }
  ~Undisturbed() {
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    errno = errno_;
  }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  int errno_;
  sigset_t mask_;
};

const char* Explain(Reason reason) {
  switch (reason) {
    case Reason::kElsewhere:
      return "the other end is not on this host, or in another network namespace";
    case Reason::kAlone:
      return "the other end did not come to meet; run it under rdsock, too";
    case Reason::kShared:
      return "several processes hold the connection";
    case Reason::kStranger:
      return "the process at the other end is another user's than its socket";
    case Reason::kNoRoom:
      return "no descriptors or no memory are left; raise `ulimit -n`";
    default:
      return "the program does with it what only TCP can";
  }
}

// --require: better no connection than one over TCP.
void Refuse(int fd, Reason reason) {
  std::array<char, 160> line;
  const int length = snprintf(line.data(), line.size(), "rdsock: a connection stays on TCP: %s\n",
                              Explain(reason));
  (void)!write(STDERR_FILENO, line.data(), static_cast<std::size_t>(length));
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  (void)connect(fd, &none, sizeof(none));
}

bool Filtered(int fd) {
  const Settings& settings = TheSettings();
  if (settings.only.empty() && settings.except.empty()) return false;
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size = sizeof(here);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return true;
  size = sizeof(there);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return true;
  return settings.except.Matches(here, there) ||
         (!settings.only.empty() && !settings.only.Matches(here, there));
}

std::int64_t TimeoutOf(int fd, int option) {
  timeval timeout{};
  socklen_t size = sizeof(timeout);
  if (getsockopt(fd, SOL_SOCKET, option, &timeout, &size) != 0) return 0;
  return std::int64_t{timeout.tv_sec} * 1'000'000'000 + std::int64_t{timeout.tv_usec} * 1000;
}

template <typename Do>
void ForEachConnection(Do act) {
  const int end = Registry().end();
  for (int fd = 0; fd < end; ++fd) {
    const Word word = Registry().Get(fd);
    if (word.kind() == Word::Kind::kConnection) act(fd, Connections()[word.index()]);
  }
}

// Whether standard input, output or error is this connection: streams read and write those without
// a call that this library sees.
bool IsStandard(std::uint32_t index) {
  const Word word(Word::Kind::kConnection, index);
  return Registry().Get(STDIN_FILENO) == word || Registry().Get(STDOUT_FILENO) == word ||
         Registry().Get(STDERR_FILENO) == word;
}

// Whether exec leaves it open.
bool StaysOpen(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

void BeforeFork() {
  ForEachConnection([](int, Connection& connection) { connection.BeforeFork(); });
}
void AfterForkInParent() {
  ForEachConnection([](int, Connection& connection) { connection.AfterForkInParent(); });
}
void AfterForkInChild() {
  g_pid = getpid();
  ForEachConnection([](int, Connection& connection) { connection.AfterForkInChild(); });
  EpollAfterForkInChild();
}

__attribute__((constructor)) void FollowForks() {
  g_pid = getpid();
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  TakeHeld();
}

// exit(3) closes without a call of close.
__attribute__((destructor)) void CloseAll() {
  if (!StandsAside()) {
    ForEachConnection([](int fd, Connection& connection) { connection.BeforeClose(fd); });
  }
}

}  // namespace

bool IsThisProcess() { return g_aside || getpid() == g_pid; }
bool StandsAside() { return g_aside; }

// --- references

bool Connection::AddUser() {
  std::uint64_t references = references_;
  do {
    if (references >> 32U == 0) return false;
  } while (!references_.compare_exchange_weak(references, references + 1));
  return true;
}
void Connection::DropUser() {
  if (references_.fetch_sub(1) == 1) TearDown();
}
void Connection::AddDescriptor() { references_.fetch_add(std::uint64_t{1} << 32U); }
void Connection::DropDescriptor() {
  constexpr std::uint64_t kOne = std::uint64_t{1} << 32U;
  if (references_.fetch_sub(kOne) == kOne) TearDown();
}

void Connection::Open(std::uint32_t index, bool opened) {
  index_ = index;
  slot().opened = opened;
  slot().Join(g_pid);
  AddDescriptor();
}

void Connection::TearDown() {
  const Undisturbed undisturbed;
  end_.reset();
  met_.reset();
  meeting_.reset();
  if (!slot().Leave(g_pid)) return;
  if (mode_ == Mode::kUndecided) ++TheCounts().stayed[static_cast<std::size_t>(Reason::kEnded)];
  Slots().Give(index_);
}

Use::Use(int fd) {
  for (;;) {
    const Word word = Registry().Get(fd);
    if (word.kind() != Word::Kind::kConnection) return;
    Connection& connection = Connections()[word.index()];
    if (connection.mode() == Connection::Mode::kTcp) return;
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
  Registry().Set(fd, Word(Word::Kind::kConnection, index));
}

void NoteDuplicate(int fd, int copy) {
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
  if (was_.kind() == Word::Kind::kConnection) Connections()[was_.index()].BeforeClose(fd);
  EpollForget(fd);
  was_ = Registry().Set(fd, Word());
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

void ForEachHeld(void (*act)(void* argument, int fd, std::uint32_t index), void* argument) {
  ForEachConnection([&](int fd, Connection& connection) {
    if (connection.mode() == Connection::Mode::kUndecided && StaysOpen(fd)) {
      act(argument, fd, connection.index());
    }
  });
}

void BeforeExec(std::span<const std::uint32_t> taken) {
  const int saved = errno;
  ForEachConnection([&](int fd, Connection& connection) {
    const bool known = std::find(taken.begin(), taken.end(), connection.index()) != taken.end();
    if (StaysOpen(fd) && !known) connection.NeedTcp(fd, Reason::kShared);
  });
  errno = saved;
}

void StandAside() {
  const int saved = errno;
  g_aside = true;
  // Nothing is left to be done at close, either. What is plain goes on so; this process remains one
  // of its holders, so that no other can move it.
  ForEachConnection([](int fd, Connection& connection) {
    const bool plain = connection.mode() == Connection::Mode::kUndecided;
    if (!plain) connection.NeedTcp(fd, Reason::kNeedsTcp);
    if (plain) ++TheCounts().stayed[static_cast<std::size_t>(Reason::kNeedsTcp)];
    Registry().Forget(fd);
    if (!plain) connection.DropDescriptor();
  });
  errno = saved;
}

void NeedTcp(int fd, Reason reason) {
  const Use use(fd);
  if (use) use->NeedTcp(fd, reason);
}

// --- fork

void Connection::BeforeFork() {
  if (forking_) return;
  forking_ = true;
  ++slot().forks;
  // Who attaches has seen no other holder; the child must be found an end, or none.
  while (mode_ == Mode::kAttaching) sched_yield();
}
void Connection::AfterForkInParent() { forking_ = false; }
void Connection::AfterForkInChild() {
  if (!forking_) return;
  forking_ = false;
  slot().Join(g_pid);
  --slot().forks;
  // The other threads are not here.
  references_ &= ~std::uint64_t{0xffffffff};
  in_kernel_ = 0;
  working_.clear();
  pending_ = false;
  if (mode_ == Mode::kAttached) return;
  meeting_.reset();
  met_.reset();
}

// --- calls

bool Connection::Due(std::uint32_t calls) const {
  std::uint32_t due = kFirstAttempt;
  for (std::uint32_t i = 0; i < attempts_; ++i) due *= kFirstAttempt;
  return calls >= due || (attempts_ == 0 && bytes_ >= kManyBytes);
}

Connection::Road Connection::Enter(int fd, bool counts) {
  for (;;) {
    switch (mode_) {
      case Mode::kAttached:
        return Road::kEnd;
      case Mode::kTcp:
        return Road::kTcp;
      case Mode::kAttaching:
        sched_yield();
        continue;
      case Mode::kUndecided:
        break;
    }
    const std::uint32_t calls = counts ? ++calls_ : 0;
    if (counts && (pending_ || Due(calls)) && !working_.test_and_set()) {
      Work(fd);
      working_.clear();
    }
    ++in_kernel_;
    if (mode_ == Mode::kUndecided) return Road::kCounted;
    --in_kernel_;
    counts = false;
  }
}

void Connection::Leave(ssize_t moved) {
  --in_kernel_;
  if (moved > 0) bytes_ += static_cast<std::uint64_t>(moved);
}

// --- to another road

void Connection::Work(int fd) {
  const Undisturbed undisturbed;
  if (mode_ == Mode::kUndecided) Attempt(fd);
}

void Connection::Attempt(int fd) {
  if (slot().stays) return Stay(fd, Reason::kShared);
  if (meeting_ == nullptr && !met_ && !Begin(fd)) return;
  if (meeting_ != nullptr) {
    const Meeting::State state = meeting_->Go(BootClock::now());
    if (state == Meeting::State::kWaiting) return;
    if (state == Meeting::State::kMet) met_ = meeting_->Take();
    meeting_.reset();
  }
  pending_ = met_.has_value();
  if (met_) Attach(fd);
  if (!met_ && attempts_ == kAttempts) Stay(fd, Reason::kAlone);
}

// An attempt, or once more the one where the partner was not yet ready.
bool Connection::Begin(int fd) {
  if (!pending_) {
    ++attempts_;
    retries_ = 0;
  }
  pending_ = false;
  const bool last = attempts_ == kAttempts;
  const auto stay = [&](Reason reason) {
    Stay(fd, reason);
    return false;
  };
  if (Filtered(fd)) return stay(Reason::kFiltered);
  if (IsStandard(index_)) return last && stay(Reason::kNeedsTcp);
  if (slot().handed != 0 || !slot().OnlyHolderIs(g_pid)) return last && stay(Reason::kShared);
  const auto mine = CookieOf(fd);
  const auto peer = FindPeerSocket(fd);
  if (!mine.ok() || !peer.ok()) return last && stay(Reason::kElsewhere);
  if (!peer->has_value()) return stay(Reason::kElsewhere);
  auto begun = Meeting::Begin(*mine, **peer, slot().opened ? Opened::kHere : Opened::kThere,
                              kLargestRing, BootClock::now());
  if (begun.ok()) {
    meeting_ = *std::move(begun);
    return pending_ = true;
  }
  switch (begun.status().code()) {
    case Code::kNotFound:
      pending_ = ++retries_ < kRetries;
      return !pending_ && last && stay(Reason::kAlone);
    case Code::kAuthenticationFailed:
      return stay(Reason::kStranger);
    default:
      return stay(Reason::kNoRoom);
  }
}

void Connection::Attach(int fd) {
  Mode undecided = Mode::kUndecided;
  if (!mode_.compare_exchange_strong(undecided, Mode::kAttaching)) return;
  if (in_kernel_ != 0) {  // later
    mode_ = Mode::kUndecided;
    return;
  }
  if (IsStandard(index_) || slot().handed != 0 || !slot().OnlyHolderIs(g_pid)) {
    met_.reset();
    pending_ = false;
    mode_ = Mode::kUndecided;
    return;
  }
  const auto memory = EndMemory::Create(slot().end.data(), fd, met_->opened, kLargestRing);
  if (!memory.ok()) {
    mode_ = Mode::kUndecided;
    return Stay(fd, Reason::kNeedsTcp);
  }
  ReadOptions(fd);
  end_.emplace(**memory, met_->channel.Outgoing(met_->role), met_->channel.Incoming(met_->role),
               End::Sockets{{met_->data.get(), met_->room.get()}, met_->opened});
  end_->prefer_ring(true, kFirstRing);
  (void)end_->Receive(fd, {}, {.wait = false});  // the other end may use its ring
  ++TheCounts().upgraded;
  mode_ = Mode::kAttached;
  EpollAttached(*this);
}

void Connection::ReadOptions(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  slot().nonblocking = flags >= 0 && (flags & O_NONBLOCK) != 0;
  slot().receive_timeout_ns = TimeoutOf(fd, SO_RCVTIMEO);
  slot().send_timeout_ns = TimeoutOf(fd, SO_SNDTIMEO);
}

void Connection::Stay(int fd, Reason reason) {
  slot().stays = true;
  mode_ = Mode::kTcp;
  pending_ = false;
  meeting_.reset();
  met_.reset();
  ++TheCounts().stayed[static_cast<std::size_t>(reason)];
  const bool mine = reason != Reason::kFiltered && reason != Reason::kEnded;
  if (TheSettings().require && mine) Refuse(fd, reason);
}

void Connection::NeedTcp(int fd, Reason reason) {
  const Undisturbed undisturbed;
  for (;;) {
    switch (mode_) {
      case Mode::kTcp:
        return;
      case Mode::kAttached:
        slot().stays = true;
        if (end_->Leave(fd) == End::Departure::kOwed && !StartKeeper(fd, *end_)) End::Reset(fd);
        mode_ = Mode::kTcp;
        ++TheCounts().left;
        EpollDetached(*this);
        return;
      default:
        break;
    }
    if (!working_.test_and_set()) {
      if (mode_ == Mode::kUndecided) Stay(fd, reason);
      working_.clear();
    }
    sched_yield();
  }
}

void Connection::BeforeClose(int fd) {
  if (!attached() || !IsThisProcess()) return;
  const int saved = errno;
  end_->BeforeClose(fd);
  if (descriptors() == 1 && slot().OnlyHolderIs(g_pid) && end_->UnreadInRing() > 0) {
    // As TCP has it for a socket that is closed with unread bytes in its queue (RFC 2525, 2.17).
    const linger reset{.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  errno = saved;
}

}  // namespace rdfs::sock
