// Scenarios of epoll sets in which more is ready than the program has room for: each thing in them
// has its turn.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tests/tools/sock/calls.h"
#include "tools/sock/ring.h"

namespace rdfs::sock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLong{5};  // only a failure takes so long
constexpr int kLongMs = 5000;             // ... or so long

void Add(Party& party, int set, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = static_cast<std::uint64_t>(fd)}};
  party.Say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

// Waits again and again, with room for one, until `events` of `fd` are told.
void AwaitTurn(Party& party, int set, int fd, std::uint32_t events, const char* what) {
  const auto deadline = Clock::now() + kLong;
  epoll_event event{};
  do {
    if (epoll_wait(set, &event, 1, -1) != 1) break;
    if (event.data.u64 != static_cast<std::uint64_t>(fd)) continue;
    if ((event.events & events) == events) return party.Say(what, 1);
  } while (Clock::now() < deadline);
  party.Say(what, 0);
}

// A listener, and a connection to it that nobody has accepted yet.
struct Waiting {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int comes = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};

  Waiting() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, any, size) != 0 || listen(listener, 1) != 0) _exit(3);
    if (getsockname(listener, any, &size) != 0) _exit(3);
  }
  ~Waiting() {
    close(listener);
    close(comes);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void Come() const {
    const auto* const any = reinterpret_cast<const sockaddr*>(&address);
    if (connect(comes, any, sizeof(address)) != 0) _exit(3);
  }
};

// The connection always has room.
void IsAlwaysReady(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  Add(party, set, party.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  const itimerspec soon{.it_interval = {}, .it_value = {0, 10'000'000}};
  Add(party, set, timer, EPOLLIN);
  party.Say("timer", timerfd_settime(timer, 0, &soon, nullptr));
  AwaitTurn(party, set, timer, EPOLLIN, "the timer");
  close(timer);
  {
    const Waiting waiting;
    Add(party, set, waiting.listener, EPOLLIN);
    waiting.Come();
    AwaitTurn(party, set, waiting.listener, EPOLLIN, "the listener");
    AwaitTurn(party, set, party.fd, EPOLLOUT, "and room");
  }
  party.Meet();
  AwaitTurn(party, set, party.fd, EPOLLIN | EPOLLRDHUP, "the end");
  close(set);
  party.Meet();
}
void Ends(Party& party) {
  party.Meet();
  party.Say("shutdown", shutdown(party.fd, SHUT_WR));
  party.Meet();
}

// Two connections more than there is room for, and a pipe.
constexpr std::size_t kMany = 3;
template <int (*join)(int beside, void (*prepare)(int fd)), bool kFirst>
std::array<int, kMany> Join(Party& party) {
  std::array<int, kMany> fds{};
  for (int& fd : fds) {
    fd = join(party.beside(), nullptr);
    WarmUp(fd, kFirst);
  }
  return fds;
}
void HasMany(Party& party) {
  const std::array<int, kMany> fds = Join<Connect, true>(party);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : fds) Add(party, set, fd, EPOLLIN | EPOLLOUT);
  int ends[2];
  if (pipe(ends) != 0) _exit(3);
  Add(party, set, ends[0], EPOLLIN);
  party.Say("write", write(ends[1], "x", 1));
  std::array<int, kMany + 1> told{};
  bool twice = false;
  for (int i = 0; i < 200; ++i) {
    std::array<epoll_event, 2> events{};
    const int count = epoll_wait(set, events.data(), 2, -1);
    for (int at = 0; at < count; ++at) {
      const auto fd = static_cast<int>(events[static_cast<std::size_t>(at)].data.u64);
      ++told[static_cast<std::size_t>(std::find(fds.begin(), fds.end(), fd) - fds.begin())];
    }
    twice = twice || (count == 2 && events[0].data.u64 == events[1].data.u64);
  }
  for (const int times : told) party.Say("had its turn", times >= 20 ? 1 : 0);
  party.Say("told twice in one answer", twice ? 1 : 0);
  for (const int fd : {set, ends[0], ends[1], fds[0], fds[1], fds[2]}) close(fd);
  party.Meet();
}
void AreMany(Party& party) {
  const std::array<int, kMany> fds = Join<Accept, false>(party);
  party.Meet();
  for (const int fd : fds) close(fd);
}

// As many threads as connections sleep, with room for one event each, and all connections are
// ready at once: nobody comes back for a second one before everybody has one.
constexpr std::size_t kPool = 1 + kMany;
constexpr int kTimes = 10;
struct Pool {
  int set = epoll_create1(EPOLL_CLOEXEC);
  int over = eventfd(0, EFD_CLOEXEC);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t told = 0, awaited = 0;

  // With the lock held: whether as many were told as are awaited.
  bool Await(std::unique_lock<std::mutex>& lock) {
    changed.notify_all();
    return changed.wait_for(lock, kLong, [&] { return told >= awaited; });
  }
  void Work() {
    epoll_event event{};
    while (epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 != static_cast<unsigned>(over)) {
      std::unique_lock lock(mutex);
      ++told;
      (void)Await(lock);
    }
  }
};
void HasThreads(Party& party) {
  std::vector<int> fds = {party.fd};
  for (const int fd : Join<Connect, true>(party)) fds.push_back(fd);
  Pool pool;
  for (const int fd : fds) Add(party, pool.set, fd, EPOLLONESHOT);
  std::array<std::thread, kPool> threads;
  for (std::thread& thread : threads) thread = std::thread([&] { pool.Work(); });
  bool all = true;
  for (int i = 0; i < kTimes && all; ++i) {
    usleep(20'000);  // they sleep, most likely
    std::unique_lock lock(pool.mutex);
    pool.awaited += kPool;
    for (const int fd : fds) {
      epoll_event event{.events = EPOLLOUT | EPOLLONESHOT,
                        .data = {.u64 = static_cast<std::uint64_t>(fd)}};
      if (epoll_ctl(pool.set, EPOLL_CTL_MOD, fd, &event) != 0) _exit(3);
    }
    all = pool.Await(lock);
  }
  party.Say("all were told at once", all ? 1 : 0);
  Add(party, pool.set, pool.over, EPOLLIN);
  party.Say("over", eventfd_write(pool.over, 1));
  for (std::thread& thread : threads) thread.join();
  for (const int fd : {pool.set, pool.over, fds[1], fds[2], fds[3]}) close(fd);
  party.Meet();
}

// One connection's answers come so fast that a wait for them spins; another one's bell, meanwhile.
constexpr int kRounds = 4000;
constexpr int kRingsAt = 1000;  // the other has been looked at in vain for long, and is quiet
void ExpectsTwo(Party& party) {
  const int rare = Connect(party.beside(), nullptr);
  WarmUp(rare, true);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {party.fd, rare}) Add(party, set, fd, EPOLLIN);
  int told_at = kRounds;
  for (int round = 0; round < kRounds;) {
    if (send(party.fd, "x", 1, MSG_NOSIGNAL) != 1) break;
    for (bool answered = false; !answered;) {
      epoll_event event{};
      if (epoll_wait(set, &event, 1, 10'000) != 1) return party.Say("an answer", 0);
      char byte = 0;
      const auto fd = static_cast<int>(event.data.u64);
      if (recv(fd, &byte, 1, 0) != 1) return party.Say("an answer", 0);
      answered = fd == party.fd;
      if (!answered) told_at = round;
    }
    ++round;
  }
  party.Say("not before it came", told_at >= kRingsAt ? 1 : 0);
  party.Say("had its turn", told_at < kRingsAt + 200 ? 1 : 0);
  close(set);
  close(rare);
  party.Meet();
}
// Answers so many times, and speaks on the other one in round `rings_at` of each `of`.
void AnswerOne(Party& party, int rounds, int rings_at, int of) {
  const int rare = Accept(party.beside(), nullptr);
  WarmUp(rare, false);
  for (int round = 0; round < rounds; ++round) {
    char byte = 0;
    if (recv(party.fd, &byte, 1, MSG_WAITALL) != 1) break;
    if (round % of == rings_at && send(rare, "x", 1, MSG_NOSIGNAL) != 1) break;
    if (send(party.fd, "x", 1, MSG_NOSIGNAL) != 1) break;
  }
  party.Meet();
  close(rare);
}
void AnswersOne(Party& party) { AnswerOne(party, kRounds, kRingsAt, kRounds); }

// As before, by a program that takes its time for each answer, which so lies there before its wait.
constexpr int kSlowRounds = 12;
constexpr int kRingsAtSlow = 2;
constexpr int kSlowTimes = 3;
void TakesItsTime(Party& party) {
  const int rare = Connect(party.beside(), nullptr);
  WarmUp(rare, true);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {party.fd, rare}) Add(party, set, fd, EPOLLIN);
  for (int time = 0; time < kSlowTimes; ++time) {
    std::array<epoll_event, 2> events{};
    party.Say("both are quiet", epoll_wait(set, events.data(), 2, 20));
    int told_at = kSlowRounds;
    for (int round = 0; round < kSlowRounds; ++round) {
      if (send(party.fd, "x", 1, MSG_NOSIGNAL) != 1) break;
      usleep(12'000);
      for (bool answered = false; !answered;) {
        const int count = epoll_wait(set, events.data(), 2, 10'000);
        if (count < 1) return party.Say("an answer", 0);
        for (int i = 0; i < count; ++i) {
          char byte = 0;
          const auto fd = static_cast<int>(events[static_cast<std::size_t>(i)].data.u64);
          if (recv(fd, &byte, 1, 0) != 1) return party.Say("an answer", 0);
          answered = answered || fd == party.fd;
          if (fd == rare) told_at = round;
        }
      }
    }
    party.Say("not before it came", told_at >= kRingsAtSlow ? 1 : 0);
    party.Say("had its turn", told_at <= kRingsAtSlow + 3 ? 1 : 0);
  }
  close(set);
  close(rare);
  party.Meet();
}
void AnswersSlow(Party& party) {
  AnswerOne(party, kSlowTimes * kSlowRounds, kRingsAtSlow, kSlowRounds);
}

// More connections than bells are heard at once have bytes that the program leaves unread; then one
// more.
constexpr int kUnread = 66;
void LeavesThemUnread(Party& party) {
  std::vector<int> fds;
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < kUnread; ++i) {
    fds.push_back(Connect(party.beside(), nullptr));
    WarmUp(fds.back(), true);
  }
  fds.push_back(party.fd);
  for (const int fd : fds) Add(party, set, fd, EPOLLIN);
  std::array<epoll_event, kUnread + 1> events{};
  party.Say("all are quiet", epoll_wait(set, events.data(), kUnread + 1, 1));
  party.Meet();
  for (const auto deadline = Clock::now() + kLong; Clock::now() < deadline;) {
    if (epoll_wait(set, events.data(), kUnread + 1, 10'000) == kUnread) break;
  }
  party.Meet();
  party.Meet();  // it is there
  int waits = 1;
  while (waits < 100 && epoll_wait(set, events.data(), kUnread + 1, 10'000) == kUnread) ++waits;
  party.Say("had its turn", waits <= 12 ? 1 : 0);
  for (const int fd : fds) {
    if (fd != party.fd) close(fd);
  }
  close(set);
  party.Meet();
}
void SendsEachOne(Party& party) {
  std::vector<int> fds;
  for (int i = 0; i < kUnread; ++i) {
    fds.push_back(Accept(party.beside(), nullptr));
    WarmUp(fds.back(), false);
  }
  party.Meet();
  int sent = 0;
  for (const int fd : fds) sent += send(fd, "x", 1, MSG_NOSIGNAL) == 1 ? 1 : 0;
  party.Say("sent", sent);
  party.Meet();
  party.Say("one more", send(party.fd, "x", 1, MSG_NOSIGNAL));
  party.Meet();
  party.Meet();
  for (const int fd : fds) close(fd);
}

// Times shorter than a millisecond, in a set without the connection and with it.
void WaitsShortly(Party& party) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (const char* const what : {"an empty set", "a connection in it"}) {
    auto shortest = Clock::duration::max();
    for (int i = 0; i < 50; ++i) {
      epoll_event event{};
      const timespec wait{0, 100'000};
      const auto before = Clock::now();
      if (epoll_pwait2(set, &event, 1, &wait, nullptr) != 0) party.Say("something", 1);
      shortest = std::min(shortest, Clock::now() - before);
    }
    party.Say(what, shortest >= std::chrono::microseconds(100) ? 1 : 0);
    party.Say("no longer", shortest < std::chrono::microseconds(900) ? 1 : 0);
    Add(party, set, party.fd, EPOLLIN);
  }
  const timespec wrong{0, 1'000'000'000};
  epoll_event event{};
  party.Say("no such time", epoll_pwait2(set, &event, 1, &wrong, nullptr));
  party.Meet();
  party.Meet();
  const timespec long_wait{10, 0};
  party.Say("bytes", epoll_pwait2(set, &event, 1, &long_wait, nullptr));
  party.Say("bytes, without end", epoll_pwait2(set, &event, 1, nullptr, nullptr));
  close(set);
  party.Meet();
}
void SendsOne(Party& party) {
  party.Meet();
  party.Say("send", send(party.fd, "x", 1, 0));
  party.Meet();
  party.Meet();
}

// The end that is asleep seems to be inside a read of the kernel's socket, to whoever shares memory
// with it (PROTOCOL.md, tcp_reads), and so to ourselves; over TCP there is none.
class InsideACall {
 public:
  InsideACall() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" rw-s ") == std::string::npos) continue;
      if (line.find("/memfd:rdsock") == std::string::npos) continue;
      auto* const channel = reinterpret_cast<char*>(std::stoul(line, nullptr, 16));
      if (memcmp(channel, "rdsock1", 8) != 0) continue;
      for (const std::size_t direction : {0U, 1U}) {
        char* const words = channel + kCacheLine + direction * sizeof(DirectionWords);
        words_.push_back(
            reinterpret_cast<std::uint64_t*>(words + offsetof(DirectionWords, tcp_reads)));
      }
    }
    for (std::uint64_t* const word : words_) __atomic_fetch_or(word, 1, __ATOMIC_SEQ_CST);
  }
  [[nodiscard]] bool found() const { return !words_.empty(); }
  void End() {
    for (std::uint64_t* const word : words_) __atomic_fetch_and(word, ~1UL, __ATOMIC_SEQ_CST);
  }

 private:
  std::vector<std::uint64_t*> words_;
};

// Whether both ends are under rdsock; for both of them to ask.
bool BothMove(Party& party) {
  const char* const preloaded = getenv("LD_PRELOAD");
  const bool here = preloaded != nullptr && strstr(preloaded, "rdsock") != nullptr;
  party.Tell(here ? 1 : 0);
  return party.Hear() != 0 && here;
}

// Whether anything has gone of the next `most` bytes.
bool SendSome(int fd, std::size_t& sent, std::size_t most) {
  const std::vector<char> bytes = Bytes(sent, most);
  const ssize_t went = send(fd, bytes.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (went > 0) sent += static_cast<std::size_t>(went);
  return went > 0;
}

// Sends until there is no room, or so much: how often it is refused. That is so often that it asks
// for a larger ring, and never over TCP.
constexpr std::size_t kSome = 40'000;
int SendUntilRefused(int fd, std::size_t& sent, const InsideACall& other, bool both_move) {
  int refused = 0;
  while (refused < 12 && sent < kSome) refused += SendSome(fd, sent, 16'384) ? 0 : 1;
  if (both_move && (!other.found() || refused == 0)) _exit(3);  // nothing would be tried
  return refused;
}

// Ways to ask a connection for room: what there is within a time in ms.
int ByPoll(int fd, int /*set*/, int timeout) {
  pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&room, 1, timeout) > 0 ? room.revents : 0;
}
int BySelect(int fd, int /*set*/, int timeout) {
  fd_set room;
  FD_ZERO(&room);
  FD_SET(fd, &room);
  timeval wait{.tv_sec = timeout / 1000, .tv_usec = 0};
  return select(fd + 1, nullptr, &room, nullptr, &wait) > 0 ? POLLOUT : 0;
}
int BySet(int /*fd*/, int set, int timeout) {
  epoll_event event{};
  return epoll_wait(set, &event, 1, timeout) > 0 ? static_cast<int>(event.events) : 0;
}
int ByOneShots(int fd, int set, int timeout) {
  epoll_event event{.events = EPOLLOUT | EPOLLONESHOT, .data = {}};
  if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) != 0) _exit(3);
  return BySet(fd, set, timeout);
}
int ByPolledSet(int fd, int set, int timeout) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout);
  int told = 0;
  do {
    if (ByPoll(set, -1, 0) == 0) {
      pollfd any{.fd = set, .events = POLLIN, .revents = 0};
      (void)poll(&any, 1, timeout);
    }
    told = BySet(fd, set, 0);
  } while (told == 0 && Clock::now() < deadline);
  return told;
}

struct Way {
  const char* name;
  int (*ask)(int fd, int set, int timeout);
  std::uint32_t events;
};
constexpr std::array<Way, 6> kWays = {{{"poll", ByPoll, EPOLLOUT},
                                       {"select", BySelect, EPOLLOUT},
                                       {"level", BySet, EPOLLOUT},
                                       {"one shot", ByOneShots, EPOLLOUT | EPOLLONESHOT},
                                       {"edge", BySet, EPOLLOUT | EPOLLET},
                                       {"a set that is polled", ByPolledSet, EPOLLOUT}}};

void AsksForRoom(Party& party) {
  const bool both_move = BothMove(party);
  for (const Way& way : kWays) {
    const int fd = Connect(party.beside(), nullptr);
    WarmUp(fd, true);
    party.Meet();
    const int set = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{.events = way.events, .data = {}};
    party.Say(way.name, epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    std::size_t sent = 0;
    InsideACall other;
    const int refused = SendUntilRefused(fd, sent, other, both_move);
    int in_vain = 0;
    for (int i = 0; i < 100; ++i) {
      if ((way.ask(fd, set, 0) & POLLOUT) != 0 && !SendSome(fd, sent, 1)) ++in_vain;
    }
    party.Say("told of room in vain, often", in_vain > 5 ? 1 : 0);
    std::thread ends([&other] {
      usleep(20'000);
      other.End();
    });
    // By an edge nobody is told twice who was refused nothing.
    party.Say("room", refused == 0 ? POLLOUT : way.ask(fd, set, kLongMs) & POLLOUT);
    ends.join();
    party.Say("sent", SendSome(fd, sent, 1) ? 1 : 0);
    party.Tell(static_cast<long>(sent));
    party.Meet();
    close(set);
    close(fd);
  }
}
void TakesWhatWasSent(Party& party, const char* what) {
  const int fd = Accept(party.beside(), nullptr);
  WarmUp(fd, false);
  party.Meet();
  const auto count = static_cast<std::size_t>(party.Hear());
  std::vector<char> bytes(count);
  const ssize_t got = recv(fd, bytes.data(), count, MSG_WAITALL);
  party.Say(what, got == static_cast<ssize_t>(count) && bytes == Bytes(0, count) ? 1 : 0);
  party.Meet();
  close(fd);
}
void IsAskedForRoom(Party& party) {
  (void)BothMove(party);
  for (const Way& way : kWays) TakesWhatWasSent(party, way.name);
}

// Two threads sleep in one set. One of them looks for room every now and then, until it is told of
// something else, which takes it long: the other one is told of the room.
constexpr int kHandOns = 4;
struct TwoThreads {
  int set = epoll_create1(EPOLL_CLOEXEC);
  int work = eventfd(0, EFD_CLOEXEC);
  int over = eventfd(0, EFD_CLOEXEC);
  std::mutex mutex;
  std::condition_variable changed;
  bool works = false, room = false, ends = false;

  void Work(int connection) {
    epoll_event event{};
    while (epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 != static_cast<unsigned>(over)) {
      std::unique_lock lock(mutex);
      const bool has_room = event.data.u64 == static_cast<unsigned>(connection);
      (has_room ? room : works) = true;
      changed.notify_all();
      if (!has_room) changed.wait(lock, [&] { return ends; });
    }
  }
  bool Await(const bool& what) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, [&] { return what; });
  }
  void End() {
    const std::unique_lock lock(mutex);
    ends = true;
    changed.notify_all();
  }
};
void HandsOnALook(Party& party) {
  const bool both_move = BothMove(party);
  for (int i = 0; i < kHandOns; ++i) {
    const int fd = Connect(party.beside(), nullptr);
    WarmUp(fd, true);
    party.Meet();
    TwoThreads two;
    Add(party, two.set, fd, EPOLLONESHOT);
    Add(party, two.set, two.work, EPOLLIN | EPOLLONESHOT);
    Add(party, two.set, two.over, EPOLLIN);
    InsideACall other;
    std::size_t sent = 0;
    (void)SendUntilRefused(fd, sent, other, both_move);
    std::array<std::thread, 2> threads;
    for (std::thread& thread : threads) thread = std::thread([&] { two.Work(fd); });
    usleep(20'000);  // they sleep, most likely
    epoll_event event{.events = EPOLLOUT | EPOLLONESHOT,
                      .data = {.u64 = static_cast<std::uint64_t>(fd)}};
    party.Say("ask for room", epoll_ctl(two.set, EPOLL_CTL_MOD, fd, &event));
    usleep(20'000);
    party.Say("work", eventfd_write(two.work, 1));
    party.Say("one works", two.Await(two.works) ? 1 : 0);
    other.End();
    party.Say("one is told of room", two.Await(two.room) ? 1 : 0);
    two.End();
    party.Say("over", eventfd_write(two.over, 1));
    for (std::thread& thread : threads) thread.join();
    party.Tell(static_cast<long>(sent));
    party.Meet();
    for (const int one : {two.set, two.work, two.over, fd}) close(one);
  }
}
void TakesInTurn(Party& party) {
  (void)BothMove(party);
  for (int i = 0; i < kHandOns; ++i) TakesWhatWasSent(party, "what was sent");
}

}  // namespace

const std::vector<Scenario> kTurnScenarios = {
    {"epoll, always ready", IsAlwaysReady, Ends},
    {"epoll, always ready, the other way", Ends, IsAlwaysReady},
    {"epoll_pwait2", WaitsShortly, SendsOne},
    {"epoll, more than there is room for", HasMany, AreMany, 1 + kMany},
    {"epoll, threads and as many that are ready", HasThreads, AreMany, 1 + kMany},
    {"epoll, one that always answers", ExpectsTwo, AnswersOne, 2},
    {"epoll, one that always answers, slowly", TakesItsTime, AnswersSlow, 2},
    {"told of room", AsksForRoom, IsAskedForRoom, 1 + kWays.size()},
    {"told of room, two threads", HandsOnALook, TakesInTurn, 1 + kHandOns},
    {"epoll, many that are left unread", LeavesThemUnread, SendsEachOne, 1 + kUnread},
};

}  // namespace rdfs::sock
