// GroupCache: which supplementary groups users have, as the server's own user database says it
// (getgrouplist(3)), as NFS with --manage-gids: a client's list is neither carried nor believed.
//
// The database may be a directory service at the other end of a network, so no loop asks it: a few
// threads do (kMostThreads), and requests of a user of whom nothing is known wait for them. What is
// known holds for a minute; then it is asked for anew, and meanwhile used for another minute.
// Where the database does not answer, or not within kPatience, what it said before holds on, or
// the caller's own group alone. Askers, which are sessions, take turns, and each has a bound: one
// that asks for very many users keeps nobody else waiting.
//
//         Known, WhenKnown         answered                  a minute
//   none ------------------> asked ---------> known --------------------------> asked anew
//                              | kPatience      ^  ^ answered, or kPatience         |
//                              +----------------+  +--------------------------------+
//
// Any thread; one mutex, which is not held while the database is asked.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/identity/idmap.h"
#include "server/loop/scheduler.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class GroupCache {
 public:
  using Groups = std::shared_ptr<const std::vector<gid_t>>;
  // May block. Nothing: the database did not answer.
  using Ask = std::function<std::optional<std::vector<gid_t>>(Ids)>;
  static std::optional<std::vector<gid_t>> AskUserDatabase(Ids ids);
  // Runs what may block without blocking.
  using Elsewhere = std::function<void(std::function<void()>)>;
  // On threads of the process's own identity, whoever the caller acts as. The threads end by
  // themselves; one that hangs does not keep the process.
  static Elsewhere Threads();

  static constexpr std::chrono::minutes kKept{1}, kUsedMeanwhile{1};
  static constexpr std::chrono::seconds kPatience{10};
  static constexpr std::size_t kMostThreads = 4;
  static constexpr std::size_t kMostUsers = 4096;
  // Of one asker, that are not answered yet.
  static constexpr std::size_t kMostAsked = 512;

  // Clock and scheduler outlive this.
  GroupCache(const Clock& clock, Scheduler& scheduler, Ask ask = AskUserDatabase,
             Elsewhere elsewhere = Threads());
  ~GroupCache();
  GroupCache(const GroupCache&) = delete;
  GroupCache& operator=(const GroupCache&) = delete;

  // Null: nothing is known, see WhenKnown.
  [[nodiscard]] Groups Known(Ids ids, std::uint64_t asker = 0);
  // Asks, and calls `go_on` once when Known tells something, after kPatience at the latest; at once
  // if that is so by now. On any thread, with a lock held: it must neither block nor ask here.
  // False, and it is not called: this asker has kMostAsked.
  bool WhenKnown(Ids ids, std::function<void()> go_on, std::uint64_t asker = 0);
  // Nobody who waits is called from now on.
  void Stop();

 private:
  struct State;
  Scheduler& scheduler_;
  const Elsewhere elsewhere_;
  const std::shared_ptr<State> state_;  // asks that hang have it, too
};

}  // namespace rdfs::server
