// InodeTable: what the kernel's node numbers mean. Knows no FUSE types.
//
// A node number stands for a server handle while the kernel holds look-ups of it (nlookup); the
// same handle always has the same number meanwhile. Numbers are never reused, so that a late one is
// recognised as unknown rather than taken for another file. Each node keeps where it was seen
// (parents and names): the ways to find its file again when a restarted server does not know the
// handle. Another client may have taken a name away since.
//
// Any thread; one short lock. Memory: about 250 bytes a node and its name.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fs/client/types.h"
#include "fs/protocol.h"
#include "transport/base/clock.h"

namespace rdfs::fs::fuse {

using NodeId = std::uint64_t;
inline constexpr NodeId kRootNode = 1;  // FUSE_ROOT_ID

class InodeTable {
 public:
  // How long a program may take to run again that has been answered, and the kernel with it to know
  // what it was answered.
  static constexpr std::chrono::milliseconds kAnswerTravel{50};

  explicit InodeTable(const Handle& root);

  // The kernel is about to learn of `handle` under `name` in `parent`: counts one look-up. An empty
  // name (O_TMPFILE) leaves its place alone.
  NodeId Remember(const Handle& handle, NodeId parent, std::string_view name);
  void Forget(NodeId node, std::uint64_t lookups);

  [[nodiscard]] std::optional<Handle> Find(NodeId node) const;
  // None when the kernel does not know it.
  [[nodiscard]] std::optional<NodeId> FindNode(const Handle& handle) const;

  struct Place {
    Handle parent;
    std::string name;
  };
  // Where the node was last seen; none for the root and for what has lost its name.
  [[nodiscard]] std::optional<Place> FindPlace(NodeId node) const;
  // After a rename: whatever was at (parent, name) is now at the new place; with `exchange` the
  // other way round as well.
  void Renamed(NodeId parent, std::string_view name, NodeId new_parent, std::string_view new_name,
               bool exchange);
  void Removed(NodeId parent, std::string_view name);

  // The steps from the root to the file, for looking it up again: each the handle that is expected
  // behind one more name. By each place of the file, last seen first; where directories on the way
  // are known and the chain reaches the root.
  using Step = client::PathStep;
  using Path = client::Path;
  [[nodiscard]] std::vector<Path> WaysTo(const Handle& handle) const;
  // The first of them.
  [[nodiscard]] std::optional<Path> PathTo(NodeId node) const;

  // An open was answered with this change cookie: whether the pages that the kernel has from before
  // are still good. If not, it drops them when the program runs again, and until then another open
  // does not keep them either, if it was another client who has changed them.
  bool Opened(NodeId node, std::uint64_t change, TimePoint now);
  // Once for each Opened. The write lease is over as well: the server takes it back.
  void Closed(NodeId node);
  // The change cookie with which the kernel's pages were good last; 0: none.
  [[nodiscard]] std::uint64_t pages_change(NodeId node) const;

  // What the server says of the node, now with this change cookie, stays true until then: unless it
  // is recalled (EndLease), or this mount changes it itself. An answer that was asked for, `lease`
  // before `until`, before such a change does not count. False for that one.
  // `now`: when the answer is here, if that matters to PagesHold and PagesDropped.
  bool SetLease(NodeId node, TimePoint until, std::uint64_t change, std::chrono::nanoseconds lease,
                TimePoint now = {});
  void EndLease(NodeId node);
  // `content`: the file's bytes or size are among it.
  void OwnChange(NodeId node, TimePoint now, bool content);
  // Whether this mount has within kLately.
  static constexpr std::chrono::seconds kLately{1};
  [[nodiscard]] bool ChangedLately(NodeId node, TimePoint now) const;
  [[nodiscard]] TimePoint lease_until(NodeId node) const;
  // Until then writes to the file may be answered before the server has them (writes_behind.h);
  // EndLease ends that as well. Nobody else writes to it without a recall so long: pages that were
  // good at `now` are.
  void SetWriteLease(NodeId node, TimePoint until, TimePoint now);
  [[nodiscard]] TimePoint write_lease_until(NodeId node) const;
  // Whether what the kernel has of the file's bytes is what the server has: the lease holds, with
  // the change cookie with which they were good last.
  [[nodiscard]] bool PagesAreCurrent(NodeId node, TimePoint now) const;
  // The same, also where this mount has changed the file meanwhile, pages and all: no lease has
  // ended unseen since they were good.
  [[nodiscard]] bool PagesHold(NodeId node, TimePoint now) const;
  // Somebody has the file open, and by this change cookie it has another content than the kernel's
  // pages may have; where this mount has written itself, and a lease has ended unseen since they
  // were good, nobody can say. (Who opens it later is told not to keep them.)
  [[nodiscard]] bool PagesAreOld(NodeId node, std::uint64_t change, TimePoint now) const;
  // The kernel has dropped them, which began at `started`; by then this change cookie was known (0:
  // none).
  void PagesDropped(NodeId node, std::uint64_t change, TimePoint started, TimePoint now);
  // How often they have gone: dropped, or told to go by an open.
  [[nodiscard]] std::uint64_t pages_gone(NodeId node) const;

  // What the kernel is told while it drops pages, it disregards: who has dropped them for an answer
  // must know that it tells nothing new but to the program. Size, mode and owner are what it goes
  // by (reads past the end, lseek(2), mmap(2), permissions).
  //
  // It is told these attributes, at `now`; without a time it takes them whatever comes in between
  // (it has made or changed the file with them). Whether it has had just these for long enough.
  bool Tell(NodeId node, const AttrWire& attr, std::optional<TimePoint> now);
  // Where the file ended at the server, which was asked then.
  struct End {
    std::uint64_t at = 0;
    TimePoint asked{};
  };
  // Whether it may take the file for shorter than it is: not where this mount has cut it since.
  [[nodiscard]] bool MayEndBefore(NodeId node, const End& end) const;
  // This mount has, or may have.
  void Cut(NodeId node, TimePoint now);
  // It has put bytes there itself, or found the end there.
  void Written(NodeId node, std::uint64_t end);
  void EndsAt(NodeId node, std::uint64_t end);
  // What it has may be anything.
  void ForgetTold(NodeId node);
  // Whether the kernel may have pages of the file at all.
  [[nodiscard]] bool may_have_pages(NodeId node) const;
  void SetMayHavePages(NodeId node);
  // What is asked for now is true until then, as long as the number stays what it is: another one
  // says that the lease was recalled, or that this mount has changed the file. None without a
  // lease.
  struct Standing {
    std::uint64_t number = 0;
    TimePoint until{};
  };
  [[nodiscard]] std::optional<Standing> FindStanding(NodeId node, TimePoint now) const;
  // What has been asked for until now may be of another content than the pages are to have.
  void EndStanding(NodeId node);
  // Xattrs, a bit each, that the file has not: as long as the lease lasts that it has now.
  void SetWithoutXattr(NodeId node, std::uint8_t xattrs, TimePoint asked);
  [[nodiscard]] bool KnownWithoutXattr(NodeId node, std::uint8_t xattrs, TimePoint now) const;
  // This mount sets or removes one, or what is one in truth.
  void ForgetXattrs(NodeId node);
  // A directory that this mount has removed: what it is like for who has it open, since the server
  // cannot be asked any more.
  void SetRemovedDirectory(NodeId node, const AttrWire& attr);
  [[nodiscard]] std::optional<AttrWire> removed_directory(NodeId node) const;
  // What is known under that name.
  [[nodiscard]] std::optional<NodeId> FindChild(NodeId parent, std::string_view name) const;

  // The kernel asks for security.capability before a chown, and often before a write; that there is
  // none may be kept for a lease.
  [[nodiscard]] bool KnownWithoutCapability(NodeId node, TimePoint now) const;
  // `asked`: as for SetWithoutXattr.
  void SetWithoutCapability(NodeId node, TimePoint asked, TimePoint until);
  void ForgetCapability(NodeId node);

  // Whether a lock has been asked for through this mount since the kernel knows the node: then a
  // close may have locks to drop.
  [[nodiscard]] bool may_be_locked(NodeId node) const;
  void SetMayBeLocked(NodeId node);

  // Nothing that was said of any node is believed any more; returns all that the kernel knows.
  [[nodiscard]] std::vector<NodeId> EndAllLeases();
  // All that the kernel knows.
  [[nodiscard]] std::vector<NodeId> All() const;

  [[nodiscard]] std::size_t size() const;

 private:
  struct PlaceKey {
    NodeId parent;
    std::string name;
    friend bool operator==(const PlaceKey&, const PlaceKey&) = default;
  };
  struct Node {
    Handle handle;
    std::uint64_t lookups = 0;       // 0: only the way to others
    std::uint64_t children = 0;      // places in it
    std::vector<PlaceKey> places;    // last seen last
    std::uint64_t pages_change = 0;  // 0: not known
    TimePoint pages_go_until{};      // an open has said that they are to be dropped
    std::uint64_t pages_gone = 0;
    bool changed_since = false;  // by this mount, since `pages_change`
    bool lease_covers = false;   // the pages: they were good when it began
    bool may_have_pages = false;
    std::uint32_t opens = 0;
    struct {
      bool known = false;
      std::uint32_t mode = 0, uid = 0, gid = 0;
      std::uint64_t size = 0;
      TimePoint since{};
    } told{};
    TimePoint lease_began{};   // when this mount knew of it
    TimePoint covers_until{};  // by write leases without a gap; see lease_covers
    [[nodiscard]] TimePoint covered_until() const { return std::max(lease_until, covers_until); }
    TimePoint no_capability_until{};
    TimePoint lease_until{};
    TimePoint write_lease_until{};
    TimePoint changed_at{};           // by this mount, last
    TimePoint cut_at{};               // the same
    std::uint64_t leased_change = 0;  // 0: not known
    std::uint64_t standing = 0;
    TimePoint without_until{};
    std::uint8_t without_xattrs = 0;
    bool may_be_locked = false;
    std::unique_ptr<AttrWire> removed{};
  };
  const Node* FindLocked(NodeId node) const;
  Node* FindLocked(NodeId node);
  static void EndLease(Node& node);
  // by_place_ and the places in the nodes say the same, always.
  void AddPlaceLocked(NodeId node, PlaceKey place);
  void RemovePlaceLocked(const PlaceKey& place);
  [[nodiscard]] std::optional<Path> PathLocked(const PlaceKey& place) const;
  // Nobody needs it any more: neither the kernel nor a node below.
  void EraseIfUnusedLocked(NodeId node);

  struct PlaceHash {
    std::size_t operator()(const PlaceKey& key) const noexcept {
      return std::hash<std::string_view>()(key.name) * 31 + key.parent;
    }
  };

  // Of one file: of more names the ones seen last are enough.
  static constexpr std::size_t kMostPlaces = 8;

  mutable std::mutex mutex_;
  std::unordered_map<NodeId, Node> nodes_;
  std::unordered_map<Handle, NodeId, HandleHash> by_handle_;
  std::unordered_map<PlaceKey, NodeId, PlaceHash> by_place_;
  NodeId next_ = kRootNode + 1;
};

}  // namespace rdfs::fs::fuse
