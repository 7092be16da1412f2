// How a connection leaves the kernel's road: its attempts to meet the other end, and what comes of
// them.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/io.h"
#include "tools/sock/preload/timeout.h"
#include "tools/sock/preload/undisturbed.h"
#include "tools/sock/preload/uring.h"

namespace rdfs::sock {
namespace {

constexpr std::uint32_t kAttempts = 3;
constexpr std::uint32_t kFirstAttempt = 8;       // calls; each later one at eight times as many
constexpr std::uint64_t kManyBytes = 64 * 1024;  // do for the first one, too
constexpr std::uint32_t kRetries = 32;  // calls while the partner binds, but does not listen
// While it waits for a partner to come: in so many calls, and then more and more seldom. A partner
// that is under rdsock mostly comes at once, another one never.
constexpr std::uint32_t kFirstLooks = 4;
constexpr std::chrono::milliseconds kLeastBetweenLooks{1};
constexpr std::chrono::milliseconds kMostBetweenLooks{32};
constexpr std::uint64_t kFirstRing = 16 * 1024;
// Between hosts a ring is also what may be under way.
constexpr std::uint64_t kFirstFarRing = 256 * 1024;

const char* Explain(Reason reason) {
  switch (reason) {
    case Reason::kElsewhere:
      return "the other end is on another host, and no carrier of this user's runs here; pair the "
             "hosts: rdsock --pair HOST";
    case Reason::kOnlyHere:
      return "the other end is on another host; give --require=verbs";
    case Reason::kNotPaired:
      return "the other end's address is not paired; rdsock --pair HOST";
    case Reason::kUnreachable:
      return "the other host's carrier does not answer; see that rdsock runs there, and the "
             "firewall";
    case Reason::kNoRdma:
      return "there is no RDMA between the two hosts; rdinfo HOST says more";
    case Reason::kAlone:
      return "the other end did not come to meet; run it under rdsock, too";
    case Reason::kShared:
      return "several processes hold the connection";
    case Reason::kStranger:
      return "the process at the other end is another user's than its socket";
    case Reason::kUring:
      return "the program reads or writes it by io_uring";
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

// Whether a socket's option, a number, is another than usual.
bool IsUnusual(int fd, int level, int name, int usual) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, name, &value, &size) == 0 && value != usual;
}

// Whether it has what only TCP can do since before connect, or from its listener: what setsockopt
// would make it stay for later (descriptors.cc).
bool HasWhatOnlyTcpCan(int fd) {
  struct Option {
    int level, name, usual;
  };
  constexpr std::array<Option, 7> kOptions = {{{SOL_SOCKET, SO_RCVLOWAT, 1},
                                               {SOL_SOCKET, SO_TIMESTAMP, 0},
                                               {SOL_SOCKET, SO_TIMESTAMPNS, 0},
                                               {SOL_SOCKET, SO_TIMESTAMPING, 0},
                                               {SOL_SOCKET, SO_OOBINLINE, 0},
                                               {SOL_SOCKET, SO_PEEK_OFF, -1},
                                               {IPPROTO_TCP, TCP_REPAIR, 0}}};
  for (const Option& option : kOptions) {
    if (IsUnusual(fd, option.level, option.name, option.usual)) return true;
  }
  if (SendsZeroCopy() && IsUnusual(fd, SOL_SOCKET, SO_ZEROCOPY, 0)) return true;
  // These say how much there is.
  std::array<char, 16> text;
  socklen_t size = text.size();
  if (getsockopt(fd, IPPROTO_TCP, TCP_ULP, text.data(), &size) == 0 && size > 0) return true;
  size = text.size();
  if (getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, text.data(), &size) == 0 && size > 0) return true;
  size = 0;
  if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &size) != 0 ? errno == EACCES : size > 0) {
    return true;
  }
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ASYNC) != 0;
}

// One of a socket's timeouts, which was `known` before. The kernel does not tell at once from for
// ever.
std::int64_t TimeoutOf(int fd, int option, std::int64_t known) {
  timeval timeout{};
  socklen_t size = sizeof(timeout);
  if (getsockopt(fd, SOL_SOCKET, option, &timeout, &size) != 0) return 0;
  const std::int64_t told = NanosecondsOf(timeout);
  return told == 0 && known == kAtOnce ? known : told;
}

Loners& TheLoners() {
  static constinit Loners loners;
  return loners;
}

bool IsOver(const Result<std::optional<PeerSocket>>& peer) {
  return peer.ok() && peer->has_value() && (*peer)->over;
}

// Whether standard input, output or error is this connection: streams read and write those without
// a call that this library sees.
bool IsStandard(std::uint32_t index) {
  const Word word(Word::Kind::kConnection, index);
  return Registry().Get(STDIN_FILENO) == word || Registry().Get(STDOUT_FILENO) == word ||
         Registry().Get(STDERR_FILENO) == word;
}

}  // namespace

bool Connection::Due(std::uint32_t calls) const {
  std::uint32_t due = kFirstAttempt;
  for (std::uint32_t i = 0; i < attempts_; ++i) due *= kFirstAttempt;
  return calls >= due || (attempts_ == 0 && bytes_ >= kManyBytes);
}

bool Connection::LooksTooOften() const {
  const TimePoint until = quiet_until_.load(std::memory_order_relaxed);
  return until != TimePoint() && BootClock::now() < until;
}

// Nobody has come yet.
void Connection::SpaceLooks() {
  quiet_until_ = TimePoint();
  if (meeting_ != nullptr && meeting_->has_partner()) return;
  if (looks_ <= kFirstLooks) {
    ++looks_;
    between_looks_ = kLeastBetweenLooks;
    return;
  }
  quiet_until_ = BootClock::now() + between_looks_;
  between_looks_ = std::min(2 * between_looks_, kMostBetweenLooks);
}

void Connection::Work(int fd) {
  // First: a signal handler that comes as this ends may need `working_` itself.
  const Undisturbed undisturbed;
  if (working_.test_and_set()) return;
  if (mode_ == Mode::kUndecided) Attempt(fd);
  working_.clear();
}

void Connection::Attempt(int fd) {
  if (slot().stays) return Stay(fd, Reason::kShared);
  if (meeting_ == nullptr && asking_ == nullptr && !met_ && !Begin(fd)) return;
  if (!GoOn(fd)) return;
  pending_ = met_.has_value();
  if (met_) Attach(fd);
  if (!met_ && attempts_ == kAttempts) Stay(fd, Reason::kAlone);
}

// False when there is nothing more to be done now.
bool Connection::GoOn(int fd) {
  using State = Meeting::State;
  const State state = meeting_ != nullptr  ? meeting_->Go(BootClock::now())
                      : asking_ != nullptr ? asking_->Go(BootClock::now())
                                           : State::kMet;
  if (state == State::kWaiting) {
    SpaceLooks();
    return false;
  }
  quiet_until_ = TimePoint();
  if (state == State::kMet && !met_) {
    met_ = meeting_ != nullptr ? meeting_->Take() : asking_->Take();
    TheLoners().Met(place_);
  }
  const bool refused = asking_ != nullptr && state == State::kOver;
  const std::optional<far::Refusal> refusal = refused ? asking_->refusal() : std::nullopt;
  DropMeeting();
  asking_.reset();
  if (refused) Refused(fd, refusal);
  return mode_ == Mode::kUndecided;
}

// Why it stays on TCP, where nothing else is known than that it is over.
Reason Connection::WhyOver() const {
  const bool waits = meeting_ != nullptr && !meeting_->has_partner() && !met_;
  return waits ? Reason::kAlone : before_;
}

// What the carrier has said; those that may be otherwise at the next attempt are not for good.
void Connection::Refused(int fd, std::optional<far::Refusal> refusal) {
  switch (refusal.value_or(far::Refusal::kAlone)) {
    case far::Refusal::kNotPaired:
      return Stay(fd, Reason::kNotPaired);
    case far::Refusal::kNoRdma:
      return Stay(fd, Reason::kNoRdma);
    case far::Refusal::kNotYours:
      return Stay(fd, Reason::kStranger);
    case far::Refusal::kDisagree:
    case far::Refusal::kAnotherVersion:
    case far::Refusal::kNonsense:
      return Stay(fd, Reason::kAlone);
    case far::Refusal::kUnreachable:
      before_ = Reason::kUnreachable;
      break;
    case far::Refusal::kNoRoom:
      before_ = Reason::kNoRoom;
      break;
    default:
      before_ = Reason::kAlone;
      break;
  }
  if (attempts_ == kAttempts) Stay(fd, before_);
}

// An attempt, or once more the one where the partner was not yet ready.
bool Connection::Begin(int fd) {
  if (!pending_) {
    ++attempts_;
    retries_ = looks_ = 0;
    if (attempts_ == 1 && !IsWorthLooking(fd)) {
      if (!TheLoners().WasElsewhere(place_) && !Filtered(fd)) before_ = Reason::kAlone;
      return false;
    }
  }
  pending_ = false;
  const bool last = attempts_ == kAttempts;
  const auto stay = [&](Reason reason) {
    Stay(fd, reason);
    return false;
  };
  if (Filtered(fd)) return stay(Reason::kFiltered);
  // Early: connections that end like that are many, and short.
  const auto peer = FindPeerSocket(fd);
  if (IsOver(peer)) return stay(Reason::kEnded);
  if (StandsAside()) return stay(Reason::kNeedsTcp);  // noted when another thread had begun to
  if (GivesConnectionsToUring()) return stay(Reason::kUring);
  if (HasWhatOnlyTcpCan(fd)) return stay(Reason::kNeedsTcp);
  if (IsStandard(index_)) return last && stay(Reason::kNeedsTcp);
  if (slot().handed != 0 || !slot().OnlyHolderIs(ThisProcess()))
    return last && stay(Reason::kShared);
  const auto mine = CookieOf(fd);
  if (!mine.ok() || !peer.ok()) return last && stay(Reason::kElsewhere);
  if (!peer->has_value()) {
    return TheSettings().require_here ? stay(Reason::kOnlyHere) : BeginAsking(fd, *mine);
  }
  auto begun = Meeting::Begin(*mine, **peer, slot().opened ? Opened::kHere : Opened::kThere,
                              kLargestRing, BootClock::now());
  if (begun.ok()) {
    meeting_ = *std::move(begun);
    return pending_ = true;
  }
  switch (begun.status().code()) {
    case Code::kDisconnected:  // by a partner that gives up, or whose connection is over
      if (IsOver(FindPeerSocket(fd))) return stay(Reason::kEnded);
      [[fallthrough]];
    case Code::kNotFound:
      pending_ = ++retries_ < kRetries;
      return !pending_ && last && stay(Reason::kAlone);
    case Code::kAuthenticationFailed:
      // Whose socket it was cannot be told any more when it is closed.
      return stay(IsOver(FindPeerSocket(fd)) ? Reason::kEnded : Reason::kStranger);
    default:
      return stay(Reason::kNoRoom);
  }
}

// The first attempt: later ones are made by who has many calls.
bool Connection::IsWorthLooking(int fd) {
  const auto places = PlacesOf(fd);
  if (!places.ok() || TheSettings().require) return true;
  place_ =
      slot().opened ? Loners::PlaceOf(places->there, false) : Loners::PlaceOf(places->here, true);
  return TheLoners().IsWorthLooking(place_, *places);
}

// It is over, or the connection is.
void Connection::DropMeeting() {
  if (meeting_ != nullptr && !meeting_->has_partner() && !met_) {
    TheLoners().MetNobody(place_);
    before_ = Reason::kAlone;
  }
  meeting_.reset();
}

// Of the carrier, for an end on another host.
bool Connection::BeginAsking(int fd, std::uint64_t cookie) {
  const auto places = PlacesOf(fd);
  if (!places.ok()) {
    Stay(fd, Reason::kElsewhere);
    return false;
  }
  const uid_t user = geteuid();
  const far::Ask ask{.cookie = cookie, .flags = slot().opened ? kFlagOpened : 0, .places = *places};
  auto begun = Asking::Begin(far::CarrierName(user), user, ask, BootClock::now());
  if (begun.ok()) {
    asking_ = *std::move(begun);
    return pending_ = true;
  }
  const bool later = begun.status().code() == Code::kBusy && attempts_ < kAttempts;
  if (!later) {
    Stay(fd, begun.status().code() == Code::kNotFound ? Reason::kElsewhere : Reason::kNoRoom);
  }
  return false;
}

void Connection::Attach(int fd) {
  Mode undecided = Mode::kUndecided;
  if (!mode_.compare_exchange_strong(undecided, Mode::kAttaching)) return;
  if (in_kernel_ != 0) {  // later
    mode_ = Mode::kUndecided;
    return;
  }
  if (IsStandard(index_) || slot().handed != 0 || !slot().OnlyHolderIs(ThisProcess())) {
    mode_ = Mode::kUndecided;  // first: who forks waits for it, and may hold the allocator's locks
    met_.reset();
    pending_ = false;
    return;
  }
  const auto memory = EndMemory::Create(slot().end.data(), fd, met_->opened,
                                        met_->channel.largest_ring(), met_->far);
  if (!memory.ok()) {
    mode_ = Mode::kUndecided;
    return Stay(fd, Reason::kNeedsTcp);
  }
  ReadOptions(fd);
  end_.emplace(**memory, met_->channel.Outgoing(met_->role), met_->channel.Incoming(met_->role),
               End::Sockets{{met_->data.get(), met_->room.get()}, met_->opened, met_->far});
  end_->prefer_ring(true, met_->far == Far::kEnd ? kFirstRing : kFirstFarRing);
  (void)end_->Receive(fd, {}, {.wait = false});  // the other end may use its ring
  ++TheCounts().upgraded;
  if (met_->far == Far::kCarrier) ++TheCounts().far;
  mode_ = Mode::kAttached;
  EpollAttached(*this);
}

void Connection::ReadOptions(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  slot().nonblocking = flags >= 0 && (flags & O_NONBLOCK) != 0;
  slot().receive_timeout_ns = TimeoutOf(fd, SO_RCVTIMEO, slot().receive_timeout_ns);
  slot().send_timeout_ns = TimeoutOf(fd, SO_SNDTIMEO, slot().send_timeout_ns);
  slot().tells_unread = IsUnusual(fd, IPPROTO_TCP, TCP_INQ, 0);
}

void Connection::Stay(int fd, Reason reason) {
  // Servers with clients on other hosts only, or clients of such a server: as with those that do
  // not come. (With --require nobody asks the loners.)
  if (reason == Reason::kElsewhere || reason == Reason::kNotPaired) {
    TheLoners().MetNobody(place_, true);
  }
  const Reason told = reason == Reason::kEnded ? WhyOver() : reason;
  slot().stays = true;
  mode_ = Mode::kTcp;
  pending_ = false;
  meeting_.reset();
  asking_.reset();
  met_.reset();
  ++TheCounts().stayed[static_cast<std::size_t>(told)];
  const bool mine = reason != Reason::kFiltered && reason != Reason::kEnded;
  if (TheSettings().require && mine) Refuse(fd, reason);
}

}  // namespace rdfs::sock
