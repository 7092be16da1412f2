// Directories: large pages from the server, cut to what the kernel asks for.
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "fs/fuse/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::CallContext;
using client::Lane;

// Of a listing that comes with the open: enough for most directories, and not dear to make where
// somebody opens one for fsync or fchdir only.
constexpr std::uint32_t kFirstPageBytes = 16 * 1024;

// Entries of one listing, so that what is kept of directories for who opens them next stays small.
constexpr std::size_t kMostGathered = 1024;

// Appends entries to a reply of at most the size that the kernel gave.
class DirReply {
 public:
  // `current`: nothing has changed since the server told their attributes.
  DirReply(fuse_req_t request, std::size_t size, bool plus, bool current)
      : request_(request), bytes_(size), plus_(plus), current_(current) {}

  // False when it does not fit any more.
  bool Add(Filesystem& filesystem, NodeId directory, const PendingEntry& entry) {
    node_ = 0;
    char* const at = reinterpret_cast<char*>(bytes_.data() + used_);
    const std::size_t room = bytes_.size() - used_;
    const auto next = static_cast<off_t>(entry.cookie);
    struct stat st {};
    st.st_ino = entry.ino;
    st.st_mode = static_cast<mode_t>(entry.type) << 12U;  // DT_ and S_IF agree (dirent.h, DTTOIF)
    std::size_t needed = 0;
    if (!plus_) {
      needed = fuse_add_direntry(request_, at, room, entry.name.c_str(), &st, next);
    } else {
      fuse_entry_param param{};
      param.attr = st;
      // An entry without a node, such as ".", must not count as looked up.
      needed = fuse_add_direntry_plus(request_, nullptr, 0, entry.name.c_str(), &param, next);
      if (needed > room) return false;
      if (entry.file && current_) {
        param = ToEntry(filesystem, directory, entry.name, *entry.file);
        node_ = param.ino;
        filesystem.inodes.SetLease(param.ino, entry.file->attr_expires, entry.file->attr.change,
                                   filesystem.lease);
      }
      fuse_add_direntry_plus(request_, at, room, entry.name.c_str(), &param, next);
    }
    if (needed > room) return false;
    used_ += needed;
    return true;
  }
  // Of the last entry, if its attributes were told.
  [[nodiscard]] NodeId node() const { return node_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {bytes_.data(), used_}; }

 private:
  fuse_req_t request_;
  std::vector<std::byte> bytes_;
  std::size_t used_ = 0;
  NodeId node_ = 0;
  bool plus_;
  bool current_;
};

struct Listing {
  Request request;
  std::shared_ptr<fuse::Open> open;
  std::uint64_t cookie;
  std::uint64_t changes;  // before it was asked for
  std::size_t size;
  bool plus;
};

// A walk may go on there.
void NoteDirectory(Worker& worker, fuse::Open& open, NodeId directory) {
  OpenAhead& ahead = worker.open_ahead();
  const OpenAhead::Listing* listing = open.listing.get();
  if (listing == nullptr || listing->changes != open.pending_changes || listing->owner != &ahead) {
    open.listing = std::make_shared<OpenAhead::Listing>();
    open.listing->owner = &ahead;
    open.listing->changes = open.pending_changes;
  }
  ahead.Listed(open.listing, directory);
}

// Answers from what is pending. The caller holds open->mutex.
void AnswerLocked(Listing& listing) {
  fuse::Open& open = *listing.open;
  Filesystem& filesystem = listing.request.worker().filesystem();
  if (listing.cookie == 0) open.listing.reset();
  const auto hold = filesystem.kernel.HoldReplies();
  DirReply reply(listing.request.raw(), listing.size, listing.plus,
                 open.pending_changes == filesystem.changes.load());
  while (open.next_pending < open.pending.size()) {
    const PendingEntry& entry = open.pending[open.next_pending];
    if (!reply.Add(filesystem, open.node, entry)) break;
    if (reply.node() != 0 && entry.type == DT_DIR) {
      NoteDirectory(listing.request.worker(), open, reply.node());
    }
    open.pending_cookie = entry.cookie;
    ++open.next_pending;
  }
  listing.request.Bytes(reply.bytes());
}

void Append(fuse::Open& open, client::DirPage& page) {
  while (auto entry = page.Next()) {
    open.pending.push_back({.ino = entry->ino,
                            .cookie = entry->cookie,
                            .type = entry->type,
                            .name = std::string(entry->name),
                            .file = std::move(entry->file)});
  }
  open.pending_is_last = page.ends_directory();
}

void Keep(fuse::Open& open, std::uint64_t cookie, std::uint64_t changes, client::DirPage& page) {
  open.pending.clear();
  open.pending_changes = changes;
  open.next_pending = 0;
  open.pending_cookie = cookie;
  Append(open, page);
}

// A page that goes on where what is pending ends, and under the same lease, makes one listing with
// it, which the next one who opens the directory can have.
void KeepOrGather(fuse::Open& open, std::uint64_t cookie, std::uint64_t changes,
                  client::DirPage& page) {
  const bool goes_on = cookie != 0 && cookie == open.pending_cookie &&
                       open.next_pending == open.pending.size() &&
                       open.pending.size() < kMostGathered && changes == open.pending_changes &&
                       BootClock::now() < open.gathered_until;
  if (goes_on) {
    Append(open, page);
  } else {
    Keep(open, cookie, changes, page);
    open.gathered_until = {};
  }
  open.whole_until = open.pending_is_last ? open.gathered_until : TimePoint{};
}

// Whether what came with the open is what the server would say now: the lease that it came under
// holds, nothing has been recalled, and this mount has changed nothing since. The caller holds
// open->mutex.
bool TakeFirstPage(fuse::Open& open, const Filesystem& filesystem) {
  const auto until = std::exchange(open.first_page, std::nullopt);
  return until && open.pending_changes == filesystem.changes.load() && BootClock::now() < *until;
}

// What an open directory is like before the server has answered, and then.
std::shared_ptr<fuse::Open> Unopened(const Filesystem& filesystem, NodeId node) {
  auto open = std::make_shared<fuse::Open>();
  open->node = node;
  open->pending_changes = filesystem.changes.load();
  open->first_page =
      client::LeaseEnd(BootClock::now(), static_cast<std::uint32_t>(filesystem.lease.count()));
  return open;
}

void Take(const Filesystem& filesystem, fuse::Open& open, client::OpenedDirectory& opened) {
  open.file = opened.open;
  Keep(open, 0, open.pending_changes, opened.first_page);
  if (open.pending.empty()) open.first_page.reset();
  if (open.first_page) open.gathered_until = *open.first_page;
  if (open.pending_is_last) open.whole_until = open.gathered_until;
  if (const auto place = filesystem.inodes.FindPlace(open.node)) {
    open.file->SetHint(place->parent, place->name);
  }
}

void AnswerOpened(Request& request, std::shared_ptr<fuse::Open> open) {
  fuse_file_info info{};
  info.fh = request.worker().filesystem().opens.Add(std::move(open));
  request.Open(info);
}

void AskAhead(Worker& worker, const CallContext& caller, NodeId node);

// The kernel opens it: what it will open next.
void GoAhead(Worker& worker, CallContext caller, NodeId node) {
  caller.timeout.reset();  // what this one had left
  const std::uint64_t changes = worker.filesystem().changes.load();
  for (const NodeId next : worker.open_ahead().Opened(node, changes)) {
    AskAhead(worker, caller, next);
  }
}

// For nobody yet: kept for who comes.
void AskAhead(Worker& worker, const CallContext& caller, NodeId node) {
  const auto handle = worker.filesystem().inodes.Find(node);
  if (!handle || worker.filesystem().kept.Has(node)) return;
  if (!worker.open_ahead().Ask(node, caller.uid, caller.gid)) return;
  const client::CallTicket ticket =
      worker.lane().OpenDir(caller, *handle, kFirstPageBytes,
                            [&worker, caller, open = Unopened(worker.filesystem(), node)](
                                Result<client::OpenedDirectory>&& opened) {
                              std::optional<Request> waiting = worker.open_ahead().Came(open->node);
                              if (!opened.ok()) {
                                if (waiting) waiting->ErrorOrRecover(open->node, opened.status());
                                return;
                              }
                              Filesystem& filesystem = worker.filesystem();
                              Take(filesystem, *open, *opened);
                              const TimePoint now = BootClock::now();
                              if (waiting) {
                                AnswerOpened(*waiting, open);
                                GoAhead(worker, caller, open->node);
                              } else if (open->IsFresh(filesystem.changes.load(), now)) {
                                filesystem.kept.Keep(caller, open, now);
                              } else {
                                worker.ReleaseLater(caller, open->file);
                              }
                            });
  worker.open_ahead().Asked(node, ticket);
}

// Without a message, where the directory is still open from before and nothing can have changed.
bool OpenKept(Request& request, NodeId node) {
  Filesystem& filesystem = request.worker().filesystem();
  const TimePoint now = BootClock::now();
  const auto open = filesystem.kept.Take(node, request.context(), kOpenRead, now);
  if (open == nullptr) return false;
  {
    const std::lock_guard lock(open->mutex);
    const std::uint64_t changes = filesystem.changes.load();
    if (open->ListedWhole(changes, now)) {
      open->next_pending = 0;
      open->pending_cookie = 0;
      open->pending_is_last = true;
      open->first_page = open->whole_until;
    } else if (!open->IsFresh(changes, now)) {
      request.worker().ReleaseLater(request.context(), open->file);
      return false;
    }
  }
  fuse_file_info info{};
  info.fh = filesystem.opens.Add(open);
  request.Open(info);
  return true;
}

void List(fuse_req_t raw, std::size_t size, off_t offset, fuse_file_info* file, bool plus) {
  Request request = Begin(raw);
  auto open = FindOpen(request, file);
  if (open == nullptr) return;
  const auto cookie = static_cast<std::uint64_t>(offset);
  const Filesystem& filesystem = request.worker().filesystem();
  auto listing = std::make_unique<Listing>(
      Listing{std::move(request), std::move(open), cookie, filesystem.changes.load(), size, plus});
  fuse::Open& directory = *listing->open;
  {
    const std::lock_guard lock(directory.mutex);
    if (cookie == 0 && TakeFirstPage(directory, filesystem)) return AnswerLocked(*listing);
    // What was fetched goes on exactly where the kernel is. A rewind fetches anew, as it must.
    if (cookie != 0 && cookie == directory.pending_cookie) {
      if (directory.next_pending < directory.pending.size()) return AnswerLocked(*listing);
      // Who asks once more wants to see what has come meanwhile.
      if (std::exchange(directory.pending_is_last, false)) return listing->request.Bytes({});
    }
  }
  Worker& worker = listing->request.worker();
  const std::uint64_t unique = listing->request.unique();
  const CallContext caller = listing->request.context();
  const client::OpenPtr opened = directory.file;
  const client::CallTicket ticket = worker.lane().ReadDir(
      caller, opened, cookie, kMaxReaddirBytes, plus,
      [listing = std::move(listing)](Result<client::DirPage>&& page) {
        if (!page.ok()) {
          return listing->request.ErrorOrRecover(listing->open->node, page.status());
        }
        const std::lock_guard lock(listing->open->mutex);
        KeepOrGather(*listing->open, listing->cookie, listing->changes, *page);
        AnswerLocked(*listing);
      });
  worker.Track(unique, {.ticket = ticket, .caller = static_cast<pid_t>(caller.pid)});
}

}  // namespace

void OpenDir(fuse_req_t raw, fuse_ino_t node, fuse_file_info*) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Worker& worker = request.worker();
  const CallContext caller = request.context();
  if (OpenKept(request, node)) return GoAhead(worker, caller, node);
  const std::uint64_t unique = request.unique();
  if (const auto ticket = worker.open_ahead().Wait(node, request)) {
    return worker.Track(unique, {.ticket = *ticket, .caller = static_cast<pid_t>(caller.pid)});
  }
  auto open = Unopened(worker.filesystem(), node);
  Start(std::move(request), [&](Lane& lane, const CallContext&, Request&& pending) {
    return lane.OpenDir(caller, *handle, kFirstPageBytes,
                        [pending = std::move(pending),
                         open = std::move(open)](Result<client::OpenedDirectory>&& opened) mutable {
                          if (!opened.ok())
                            return pending.ErrorOrRecover(open->node, opened.status());
                          Take(pending.worker().filesystem(), *open, *opened);
                          const CallContext opener = pending.context();
                          AnswerOpened(pending, open);
                          GoAhead(pending.worker(), opener, open->node);
                        });
  });
}

void ReadDir(fuse_req_t raw, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* file) {
  List(raw, size, offset, file, false);
}

void ReadDirPlus(fuse_req_t raw, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* file) {
  List(raw, size, offset, file, true);
}

void ReleaseDir(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file) { Release(raw, node, file); }

void FsyncDir(fuse_req_t raw, fuse_ino_t node, int data_only, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.FsyncDir(caller, open->file, data_only != 0,
                         [pending = std::move(pending), node](Status&& status) mutable {
                           AnswerDone(pending, node, status);
                         });
  });
}

}  // namespace rdfs::fs::fuse::ops
