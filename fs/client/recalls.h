// Recalls: what a client does when the server takes back what it may believe. Pure: events go in,
// actions come out.
//
//   Arrived --> kInvalidate --Invalidated--> kAcknowledge
//         \--a change of our own is under way in that directory--> kNewEpoch, kAcknowledge
//         \--a write of our own is under way to that file--> kAcknowledge
//
// The rules:
// - A reply that was asked for before a recall arrived is not believed: it may have overtaken the
//   recall, or been overtaken by it. (MayBelieve says so to the simulated world of tests/coherence;
//   a mount's workers compare KernelCache::stamp, which needs no lock.)
// - Invalidating a name waits, in the kernel, for every change of ours in its directory, and such a
//   change may wait at the server for the acknowledgement of another client that is in the same
//   place. So where one is under way, or begins while the kernel is at it, the epoch of all names
//   goes up instead, which never waits, and the recall is acknowledged at once. A kernel without
//   epochs (before Linux 6.16) has no such way out: its lease runs out then.
// - Letting go of pages waits likewise for writes of ours to a part of one, and those may wait for
//   another client's. Where one is under way, or begins, the recall is acknowledged at once: of two
//   that write to a file at the same time, each may for that long read what it had.
// - What is recalled again before it was acknowledged is acknowledged once; behind that, again.
//
// What invalidates must not be what receives: a page is only let go of when reads under way have
// been answered. One user at a time; whoever owns it has the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace rdfs::fs::client {

class Recalls {
 public:
  using Stamp = std::uint64_t;
  using Node = std::uint64_t;
  struct Recall {
    std::uint64_t number = 0;
    Node node = 0;
    // kRecall... of the protocol; kRecallAttributes where the kernel did not know the file yet: as
    // with a name, it has to look it up again.
    std::uint32_t parts = 0;
    std::string name{};  // with kRecallName
  };
  enum class Act : std::uint8_t { kInvalidate, kNewEpoch, kAcknowledge };
  struct Action {
    Act act;
    std::uint64_t number;  // of the recall
  };
  using Actions = std::vector<Action>;

  // `epochs`: the kernel has them.
  explicit Recalls(bool epochs) : epochs_(epochs) {}

  // Taken before a question is sent.
  [[nodiscard]] Stamp stamp() const { return stamp_; }
  [[nodiscard]] bool MayBelieve(Stamp asked) const { return asked == stamp_; }

  [[nodiscard]] Actions Arrived(const Recall& recall);
  // Nobody is free to make the kernel let go of it: another way, where there is one.
  [[nodiscard]] Actions GiveWay(std::uint64_t number);
  // The kernel has let go of it. `number` may have been acknowledged already.
  [[nodiscard]] Actions Invalidated(std::uint64_t number);
  // A change of our own to the names in a directory, or to a file's bytes, from before it is sent
  // until it is answered.
  [[nodiscard]] Actions ChangeBegins(Node node);
  void ChangeEnds(Node node);

  // What is to be invalidated for this number; null when that is over.
  [[nodiscard]] const Recall* Find(std::uint64_t number) const;
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }

 private:
  const bool epochs_;
  Stamp stamp_ = 0;
  struct Pending {
    Recall recall;
    bool acknowledged = false;
  };
  void GiveWay(Pending& pending, Actions& actions, bool nobody_free = false) const;

  std::unordered_map<std::uint64_t, Pending> pending_;
  std::unordered_map<Node, std::size_t> changing_;
};

}  // namespace rdfs::fs::client
