// LeaseTable: which client may believe what it was told of which inode, and whom a change has to
// ask first. Pure: events and the time go in, recalls and what may go on come out.
//
// A lease is on an inode (attributes, xattrs, names in it, content) and belongs to a session. The
// client counts it from before it asked and takes 1 % off; here it counts from the answer, with 1 %
// on top, so the client's always ends first. A change happens in this order:
//
//   Begin --nobody else has a lease--------------------------> applied --> End
//     \--recalls sent--> waiting --acknowledged or run out--/
//
// From Begin to End the inode is *changing*: answers about it to other sessions carry no lease, so
// that who is recalled is answered at once and nobody gets a lease on what is about to change. What
// is in an answer was gathered some time before the lease is asked for; Grant refuses when another
// session's change has begun since (`since`). The session that changes is not recalled: its own
// kernel knows what it did. Changes may be applied in another order than they began, and who was
// recalled for one that is still to come is not recalled for it again: what a client's kernel makes
// of its own change it may believe only where the answer brings a lease (as ops::Rename sees to).
//
// A recall takes what changes; the rest of the lease stays, unless it says `whole`. A table that
// follows another one (the server has restarted) does not know who has leases: until the last of
// those has run out, a change waits (Options::quiet_until), unless each of the other clients of
// that time, where they are known, is gone or has said that it believes nothing any more
// (ForgetsEarlier).
//
// Leases that have run out are taken from memory by later ones, a few in each Grant however many
// there are: all others wait meanwhile. Each new lease looks at a few of all in turn, so that
// memory holds about twice what was believed at one time, and a thousand more. Where its session
// has half of what it may have, it looks at some of that one's own besides: who is full of what
// has run out gets leases again.
//
// One user at a time; LeaseService has the lock. Times are CLOCK_BOOTTIME.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/inode/handle.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class LeaseTable {
 public:
  using Session = std::uint64_t;       // never 0
  using Stamp = std::uint64_t;         // counts beginnings and ends of changes
  using ChangeNumber = std::uint64_t;  // never 0
  using RecallNumber = std::uint64_t;

  struct Options {
    std::size_t session_leases = 131072;  // of one session; what goes beyond gets no lease
    std::uint64_t first_number = 1;  // of changes and recalls: tells one server's from another's
    // How long a write may be on its way that its program was told of at the end of the lease.
    std::chrono::nanoseconds write_travel{};
    TimePoint quiet_until{};
    std::optional<std::set<Session>> earlier{};  // who an earlier server knew; none: nobody knows
  };
  struct Recall {
    RecallNumber number = 0;
    Session session = 0;
    std::size_t target = 0;  // which of the change's inodes
  };
  struct Target {
    InodeKey inode;
    bool whole = false;  // the holder keeps nothing of its lease
  };
  struct Begun {
    ChangeNumber change = 0;
    bool ready = false;  // nothing to wait for
    std::vector<Recall> recalls{};
  };

  explicit LeaseTable(const Options& options)
      : options_(options), next_(options.first_number), earlier_writers_(options.earlier) {}

  // What is gathered from now on is as new as this.
  [[nodiscard]] Stamp stamp() const { return stamp_; }
  // Facts about `inode`, gathered behind `since`, go to `session`: true when it may believe them
  // for `lease` (as the client counts it).
  bool Grant(const InodeKey& inode, Session session, Stamp since, TimePoint now,
             std::chrono::nanoseconds lease);

  // As Grant, where no other session has a lease: from now on, and for as long as writes travel
  // behind the lease, the inode may have been written by `session` without a word to us yet. Not
  // for a session that was not heard of lately when somebody waited for it.
  bool GrantWrites(const InodeKey& inode, Session session, Stamp since, TimePoint now,
                   std::chrono::nanoseconds lease);
  // The session has closed it, and all that it wrote is here: its lease is one to read. One that
  // was granted at `before` or later holds.
  void EndWrites(const InodeKey& inode, Session session, Stamp before);
  // Whether another session than `session` may have: what is told about it has to be asked for, by
  // a change of nothing (Begin).
  [[nodiscard]] bool WrittenByAnother(const InodeKey& inode, Session session, TimePoint now) const;
  // All of which any session may have.
  [[nodiscard]] std::vector<InodeKey> Written(TimePoint now) const;
  // Whether that may be so of any inode.
  [[nodiscard]] bool AnyWrittenByAnother(Session session, TimePoint now) const {
    return now < writers_.UntilWithout(session);
  }
  // Whether another may have done so under a lease of an earlier server's, of whatever inode.
  [[nodiscard]] bool WrittenEarlierByAnother(Session session, TimePoint now) const {
    return now < options_.quiet_until && HasOther(earlier_writers_, session);
  }

  // Whether the session has less than half of what it may have.
  [[nodiscard]] bool HasPlenty(Session session) const;

  // See above; at the start, before the first change.
  void BeQuietUntil(TimePoint until, std::optional<std::set<Session>> earlier) {
    options_.quiet_until = until;
    earlier_writers_ = earlier;
    options_.earlier = std::move(earlier);
  }
  // Whether somebody else may have a lease of an earlier server's.
  [[nodiscard]] bool IsQuietFor(Session by, TimePoint now) const;
  // What the session has written under leases of an earlier server is here.
  std::vector<ChangeNumber> WroteEarlier(Session session, TimePoint now);
  // That, and it believes nothing that an earlier server has told it; or it is over.
  std::vector<ChangeNumber> ForgetsEarlier(Session session, TimePoint now);
  enum class Purpose : std::uint8_t {
    kChange,
    kLeasedWrite,  // under a lease of its session alone (GrantWrites), maybe an earlier server's
    kLook,         // changes nothing: what others have written is to be here
  };
  // `by` is about to change these; none: anything, where nobody else can have a lease yet. Applied
  // once ready: see Begun, and what the next three return.
  Begun Begin(Session by, std::span<const Target> targets, TimePoint now,
              Purpose purpose = Purpose::kChange);
  // An unknown number, or another session's, is ignored: it has run out, or is a repetition.
  std::vector<ChangeNumber> Acknowledge(Session session, RecallNumber number, TimePoint now);
  std::vector<ChangeNumber> Expire(TimePoint now);
  // It believes nothing any more.
  std::vector<ChangeNumber> SessionEnded(Session session);
  // When Expire may have something next.
  [[nodiscard]] std::optional<TimePoint> NextExpiry() const;
  // Applied, or given up, ready or not.
  void End(ChangeNumber change);

  // Recalls of this session that are not acknowledged.
  [[nodiscard]] std::vector<RecallNumber> Outstanding(Session session) const;
  [[nodiscard]] bool IsOutstanding(RecallNumber recall) const { return recalls_.contains(recall); }
  [[nodiscard]] bool IsWaiting(ChangeNumber change) const;
  [[nodiscard]] std::size_t leases() const { return leases_; }
  [[nodiscard]] std::size_t inodes() const { return inodes_.size(); }
  // How often a lease was looked at for whether it has run out, and how often in one Grant at most.
  static constexpr std::size_t kMaxLooks = 36;
  [[nodiscard]] std::uint64_t looks() const { return looks_; }
  // Waits that ended because a lease ran out, and not just before an acknowledgement came.
  static constexpr std::chrono::milliseconds kSoon{10};
  [[nodiscard]] std::uint64_t expired_waits() const { return expired_waits_; }

 private:
  struct Holder {
    Session session = 0;
    TimePoint until{};
    Stamp granted = 0;  // the last time
    TimePoint writes_until{};
    std::size_t place = 0;  // in the session's Held
  };
  // What a session has a lease on, kept beside its Holder: one that ends is looked for nowhere
  // else, and all others wait for less.
  struct Held {
    struct Lease {
      InodeKey inode;
      TimePoint until{};  // the Holder's, or earlier
    };
    std::deque<Lease> leases;  // never empty; the last one takes the place of one that goes
    std::size_t next = 0;      // what is in front of it is looked at next, so that none is left out
  };
  using HeldOf = std::map<Session, Held>;
  // The last change, and the last one by anybody else.
  struct Changed {
    Session by = 0;
    Stamp last = 0, before = 0;
    void Note(Session session, Stamp stamp);
    [[nodiscard]] Stamp ByOthers(Session than) const { return by == than ? before : last; }
    void Merge(const Changed& other);
  };
  struct Inode {
    std::vector<Holder> holders;
    std::vector<Session> changing;  // once for each change
    Changed changed;
  };
  static bool MayGrant(const Inode& inode, Session session, Stamp since);
  static bool IsWrittenByOther(const Inode& inode, Session than, TimePoint now);
  using Sessions = std::optional<std::set<Session>>;  // none: nobody knows whose
  static bool HasOther(const Sessions& sessions, Session than);
  std::vector<ChangeNumber> SettleEarlier(TimePoint now);
  [[nodiscard]] bool WaitsForEarlier(Session by, Purpose purpose, TimePoint now) const;
  struct Change {
    Session by = 0;
    Purpose purpose = Purpose::kChange;
    std::vector<InodeKey> inodes;
    std::size_t waits_for = 0;  // recalls
  };
  struct Outgoing {
    Session session = 0;  // 0: the leases of an earlier server
    Target target;
    ChangeNumber change = 0;
    Stamp begun = 0;  // the change
    TimePoint asked{};
    TimePoint until{};
  };
  using Inodes = std::unordered_map<InodeKey, Inode, InodeKeyHash>;
  using Outstandings = std::unordered_map<RecallNumber, Outgoing>;

  void AddRecall(Begun& begun, Change& change, const Outgoing& recall, std::size_t target);
  // Returns the change that is ready by it, or 0.
  ChangeNumber Settle(Outstandings::iterator recall);
  // But for what it was granted at `before` or later.
  void DropHolder(const InodeKey& key, Session session, Stamp before);
  Inode& Entry(const InodeKey& key);
  [[nodiscard]] bool HasRoom(Session session) const;
  void EndOf(Inode& inode, Session by);
  // Of what has run out, a few.
  void Sweep(Session session, TimePoint now);
  void SweepOwn(Session session, TimePoint now);
  void SweepAll(TimePoint now);
  // Takes that lease from memory where it has run out. False: it was the session's last.
  bool Look(HeldOf::iterator held, std::size_t place, TimePoint now);
  void EraseIfIdle(Inodes::iterator inode);
  static std::vector<Holder>::iterator HolderOf(Inode& inode, Session session);
  void EraseHolder(Inodes::iterator inode, std::vector<Holder>::iterator holder);

  Options options_;
  std::uint64_t next_;
  Stamp stamp_ = 1;
  Inodes inodes_;
  Changed forgotten_;  // changes of inodes that have no entry any more
  Inode anything_;     // changes that name no inode
  HeldOf held_;
  std::unordered_map<ChangeNumber, Change> changes_;
  Outstandings recalls_;
  std::set<std::pair<TimePoint, RecallNumber>> due_;
  std::size_t leases_ = 0;
  Session sweeps_ = 0;           // whose leases are looked at in turn
  std::size_t sweeps_next_ = 0;  // as Held::next
  std::uint64_t looks_ = 0;
  // Until when anybody may write so; by two sessions or more it may say too much.
  struct Writers {
    void Note(Session session, TimePoint until);
    [[nodiscard]] TimePoint UntilWithout(Session session) const;
    Session last = 0;
    TimePoint last_until{}, others_until{};
  };
  Writers writers_;
  Sessions earlier_writers_;  // of Options::earlier, whose writes may not be here
  std::unordered_map<Session, TimePoint> silent_;  // no lease to write until then
  std::uint64_t expired_waits_ = 0;
};

}  // namespace rdfs::server
