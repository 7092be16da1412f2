// What lock_world.cc (clients, connections, what goes wrong) and lock_world_processes.cc share:
// what belongs to a call, a connection, a process and a client.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "tests/coherence/lock_world.h"

namespace rdfs::coherence {

inline constexpr std::size_t kNobody = ~std::size_t{0};  // no process

// Of a file's flocks or ranges, among LockWorld::histories_.
inline std::size_t HistoryOf(std::size_t file, bool flock) { return 2 * file + (flock ? 0 : 1); }
inline std::uint64_t Stamp(VirtualTime::Time at) { return static_cast<std::uint64_t>(at.count()); }

struct LockWorld::Call {
  LockMessage message;
  std::size_t process = kNobody;
  std::uint64_t owner = 0;  // who asks, in histories
  Time begin{};
  server::SessionPtr sent_to;  // the last session, and when first there
  Time first_sent{};
  Time sent{};              // on the connection that is there
  bool on_the_way = false;  // back: others wait until it is answered
};

struct LockWorld::Connection {
  server::SessionPtr session;
  server::LanePtr lane;  // null: the server knows that it has ended
  bool ready = false;    // the client has back what it had
  Time up_free{}, down_free{};
  std::deque<std::pair<std::uint64_t, fs::WireError>>
      inbox;  // answers that the client has not read
};

struct LockWorld::Process {
  std::uint64_t owner = 0;
  std::vector<fs::client::OpenPtr> opens;  // of the files
  std::vector<bool> fresh;                 // nobody has answered anything about them
  std::vector<std::optional<Time>> lost;   // since when a file's locks may be somebody else's
  unsigned left = 0;
  CallPtr call;           // a lock or an unlock
  bool dying = false;     // it ends as soon as it can
  bool ended = false;     // and nobody takes its place
  unsigned releases = 0;  // that are still to be answered, of one that has ended
  Time exited{};
};

struct LockWorld::Client {
  std::uint64_t session = 0;
  double rate = 1;  // of its clock
  Time frozen_until{};
  Time heard{};  // when what was answered last, and not on the way back, had been sent
  std::uint64_t epoch = 0, has_back = 0;  // of the server, and whose it has its locks back from
  std::uint64_t next_sequence = 1;
  std::vector<std::shared_ptr<fs::client::InodeState>> inodes;
  std::vector<Process> processes;
  std::map<std::uint64_t, CallPtr> calls;  // without an answer
  std::size_t reclaims = 0;                // of them
  std::shared_ptr<Connection> connection;
  server::SessionPtr known;  // at the server, the last time
};

struct LockWorld::Death {
  Time heard{}, full{}, half{};
  std::size_t history = 0;
  std::uint64_t owner = 0;
};

}  // namespace rdfs::coherence
