// What world.cc (clients, kernels) and world_server.cc share: the facts of the simulated file
// system, and what belongs to an operation, a client, a life of the server.
#pragma once

#include "fs/protocol.h"
#include "tests/coherence/world.h"

namespace rdfs::coherence {

// Two directories of three names and three files. Facts: attributes of each node, then the names,
// then the contents.
inline constexpr std::size_t kDirectories = 2, kNames = 3, kFiles = 3;
inline constexpr std::size_t kNodes = kDirectories + kFiles;
inline constexpr std::size_t kFirstName = kNodes;
inline constexpr std::size_t kFirstContent = kFirstName + kDirectories * kNames;
inline constexpr std::size_t kFacts = kFirstContent + kFiles;

inline constexpr std::chrono::milliseconds kLease{100};
inline constexpr std::chrono::milliseconds kTravel{60};  // LeaseTable::Options::write_travel
inline constexpr std::chrono::nanoseconds kResend = std::chrono::milliseconds(15);
// Longer than any lease as the server counts it.
inline constexpr std::chrono::nanoseconds kQuiet = std::chrono::milliseconds(170);

inline std::size_t NodeOf(std::size_t fact) {
  if (fact < kFirstName) return fact;
  if (fact < kFirstContent) return (fact - kFirstName) / kNames;
  return kDirectories + (fact - kFirstContent);
}
inline bool IsFile(std::size_t node) { return node >= kDirectories; }
inline bool IsName(std::size_t fact) { return fact >= kFirstName && fact < kFirstContent; }
inline std::size_t NameFact(std::size_t directory, std::size_t name) {
  return kFirstName + directory * kNames + name;
}
inline std::uint32_t PartOf(std::size_t fact) {
  if (fact < kFirstName) return fs::kRecallAttributes;
  return IsName(fact) ? fs::kRecallName : fs::kRecallContent;
}
inline server::InodeKey KeyOf(std::size_t node) { return {.device = 1, .inode = node + 1}; }

struct World::Op {
  std::uint64_t number = 0;
  unsigned process = 0;
  std::uint64_t begin = 0;
  bool change = false;
  std::vector<Fact> facts;
  bool answered = false;
  // A question's, from before it was first sent.
  fs::client::Recalls::Stamp asked_stamp = 0;
  TimePoint asked{};
  std::uint64_t own_changes = 0;
  std::size_t client = 0;
  std::uint64_t session = 0;
  // A write whose process was told that it is done, and until when that was allowed.
  std::optional<std::uint64_t> early_end{};
  TimePoint early_until{};
  server::LeaseTable::Stamp since = 0;  // the server's, when it came
};

struct World::Client {
  std::size_t index = 0;
  std::uint64_t session = 0;
  double rate = 1;  // of its clock
  Time frozen_until{};
  std::unique_ptr<fs::client::Recalls> recalls;
  struct Cached {
    std::uint64_t value = 0;
    TimePoint until{};
  };
  std::map<Fact, Cached> cache;               // the kernel's
  std::map<Fact, unsigned> own_busy;          // our own changes under way, by what they touch
  std::map<Fact, std::uint64_t> own_changed;  // when the last one began or ended
  std::map<Fact, unsigned> asking;            // questions under way
  std::uint64_t own_changes = 0;
  std::vector<unsigned> left;  // operations of each process
  std::vector<bool> ended;     // processes
  std::set<std::shared_ptr<Op>> open;
  std::map<std::size_t, TimePoint> write_leases;  // by node
  std::optional<std::size_t> written;             // the file, last
  std::map<std::size_t, unsigned> behind;         // writes that ended early, by node
  std::vector<std::shared_ptr<Op>> parked;        // behind those
  std::map<std::uint64_t, std::size_t> recalled;  // the node of each recall
  std::vector<std::uint64_t> held;                // acknowledgements

  [[nodiscard]] TimePoint Local(Time now) const {
    return TimePoint(Time(static_cast<std::int64_t>(static_cast<double>(now.count()) * rate)));
  }
};

struct World::Server {
  explicit Server(const server::LeaseTable::Options& options) : table(options) {}
  server::LeaseTable table;
  double rate = 1;
  std::map<std::uint64_t, std::shared_ptr<Op>> waiting;  // by change
  std::set<std::uint64_t> begun;                         // requests
  std::set<std::uint64_t> looking;                       // questions that wait
  std::map<std::uint64_t, fs::client::Recalls::Recall> recalls;
  std::optional<Time> watch;
  [[nodiscard]] TimePoint Local(Time now) const {
    return TimePoint(Time(static_cast<std::int64_t>(static_cast<double>(now.count()) * rate)));
  }
};

}  // namespace rdfs::coherence
