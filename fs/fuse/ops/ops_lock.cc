// Locks. fcntl(2) and OFD locks come as getlk and setlk, flock(2) as flock; the server keeps them.
#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <limits>
#include <optional>

#include "fs/fuse/ops/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::CallContext;
using client::Lane;

constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::int64_t>::max();

LockType ToLockType(short type) {
  if (type == F_RDLCK) return LockType::kRead;
  return type == F_WRLCK ? LockType::kWrite : LockType::kUnlock;
}

// libfuse hands the range on as start and length, length 0 meaning to the end (fcntl(2)).
client::Lock ToLock(const struct flock& lock, std::uint64_t owner) {
  const auto start = static_cast<std::uint64_t>(lock.l_start);
  return {.owner = owner,
          .start = start,
          .end = lock.l_len == 0 ? kToTheEnd : start + static_cast<std::uint64_t>(lock.l_len) - 1,
          .type = ToLockType(lock.l_type),
          .pid = static_cast<std::uint32_t>(lock.l_pid)};
}

struct flock FromLock(const client::Lock& lock) {
  struct flock out {};
  out.l_whence = SEEK_SET;
  out.l_type = lock.type == LockType::kRead    ? F_RDLCK
               : lock.type == LockType::kWrite ? F_WRLCK
                                               : F_UNLCK;
  if (lock.type == LockType::kUnlock) return out;
  out.l_start = static_cast<off_t>(lock.start);
  out.l_len = lock.end >= kToTheEnd ? 0 : static_cast<off_t>(lock.end - lock.start + 1);
  out.l_pid = static_cast<pid_t>(lock.pid);
  return out;
}

// Whether a lock in the way may be one whose file has been closed before this request was made: who
// finds one is to wait for that and ask once more (unlocks.h).
bool AsksOnceMore(const Request& request, NodeId node) {
  const Worker& worker = request.worker();
  return !worker.IsInOrder(node) && !worker.WaitsOf(request.unique()).in_order;
}

struct Locking {
  Request request;
  NodeId node;
  std::shared_ptr<fuse::Open> open;
  bool locks;  // and does not unlock
  bool once_more;
  TimePoint asked{};  // where the file ends

  static void Answered(std::unique_ptr<Locking> self, const Status& status) {
    if (self->once_more && status.errno_value() == EAGAIN) {
      return self->request.WaitForOrder(self->node);
    }
    if (!status.ok() || !self->locks) return AnswerDone(self->request, self->node, status);
    Locked(std::move(self));
  }

 private:
  // A program that has locked a file reads what another one, on another client, had written when it
  // unlocked it: pages from before are dropped, where no lease says that they are right, and the
  // kernel hears where the file ends now, which it goes by without pages, too.
  static void Locked(std::unique_ptr<Locking> self) {
    const Filesystem& filesystem = self->request.worker().filesystem();
    const auto handle = filesystem.inodes.Find(self->node);
    if (!handle || filesystem.options.writeback || self->Holds()) return self->request.Ok();
    self->request.AsksNow();
    self->asked = BootClock::now();
    Start(std::move(self->request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
      auto looking = std::make_unique<Locking>(Locking{std::move(pending), self->node, self->open,
                                                       self->locks, self->once_more, self->asked});
      return lane.GetAttr(caller, *handle, self->open->file,
                          [looking = std::move(looking)](Result<client::Attributes>&& now) {
                            looking->Looked(now);
                          });
    });
  }
  void Looked(const Result<client::Attributes>& now) {
    const InodeTable& inodes = request.worker().filesystem().inodes;
    const bool has_pages = inodes.may_have_pages(node);
    // Without pages another lock goes by the lease alone (Holds): not before the kernel has heard
    // where the file ends.
    const auto known = now.ok() ? std::optional(*now) : std::nullopt;
    const auto believe = [node = node, known](Request& pending) {
      if (known) (void)pending.Believe(node, known->expires, known->attr);
    };
    if (has_pages) believe(request);
    const std::uint64_t change = known ? std::uint64_t{known->attr.change} : 0;
    const InodeTable::End end{.at = known ? std::uint64_t{known->attr.size} : 0, .asked = asked};
    if (has_pages ? PagesHold() : !inodes.MayEndBefore(node, end)) {
      if (!has_pages) believe(request);
      return request.Ok();
    }
    // A read of the file that does not end holds its pages: better an error than old bytes under a
    // lock. It is not given back: its owner may have had it, or another part of it, before.
    const auto then = [has_pages, believe](Request& pending, bool dropped) {
      if (dropped && !has_pages) believe(pending);
      dropped ? pending.Ok() : pending.Error(ETIMEDOUT);
    };
    request.ForgetGrants(node, change);
    request.DropPages(node, change, then, end);
  }
  // Whether a lease says that what the kernel has of the file is right.
  [[nodiscard]] bool Holds() const {
    const InodeTable& inodes = request.worker().filesystem().inodes;
    if (inodes.may_have_pages(node)) return PagesHold();
    return inodes.FindStanding(node, BootClock::now()).has_value();
  }
  [[nodiscard]] bool PagesHold() const {
    return request.worker().filesystem().inodes.PagesHold(node, BootClock::now());
  }
};

void Set(Request request, NodeId node, const std::shared_ptr<fuse::Open>& open,
         const client::Lock& lock, bool flock, bool wait) {
  const bool locks = lock.type != LockType::kUnlock;
  if (locks) request.worker().filesystem().inodes.SetMayBeLocked(node);
  const bool once_more = AsksOnceMore(request, node);
  Start(
      std::move(request),
      [&](Lane& lane, const CallContext& caller, Request&& pending) {
        auto locking =
            std::make_unique<Locking>(Locking{std::move(pending), node, open, locks, once_more});
        return lane.SetLock(caller, open->file, lock, flock, wait,
                            [locking = std::move(locking)](Status&& status) mutable {
                              Locking::Answered(std::move(locking), status);
                            });
      },
      wait);
}

}  // namespace

void GetLock(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file, struct flock* lock) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  const bool once_more = AsksOnceMore(request, node);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.GetLock(
        caller, open->file, ToLock(*lock, file->lock_owner), false,
        [pending = std::move(pending), node, once_more](Result<client::Lock>&& found) mutable {
          if (once_more && found.ok() && found->type != LockType::kUnlock) {
            return pending.WaitForOrder(node);
          }
          if (!found.ok()) return pending.ErrorOrRecover(node, found.status());
          pending.Lock(FromLock(*found));
        });
  });
}

void SetLock(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file, struct flock* lock, int sleep) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  Set(std::move(request), node, open, ToLock(*lock, file->lock_owner), false, sleep != 0);
}

void Flock(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file, int operation) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  client::Lock lock{.owner = file->lock_owner, .start = 0, .end = kToTheEnd};
  switch (operation & ~LOCK_NB) {
    case LOCK_SH:
      lock.type = LockType::kRead;
      break;
    case LOCK_EX:
      lock.type = LockType::kWrite;
      break;
    case LOCK_UN:
      lock.type = LockType::kUnlock;
      break;
    default:
      return request.Error(EINVAL);
  }
  lock.pid = request.context().pid;
  Set(std::move(request), node, open, lock, true, (operation & LOCK_NB) == 0);
}

}  // namespace rdfs::fs::fuse::ops
