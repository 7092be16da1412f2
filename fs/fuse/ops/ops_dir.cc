// Directories: large pages from the server, cut to what the kernel asks for.
#include <dirent.h>

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <utility>

#include "fs/fuse/ops/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::CallContext;
using client::Lane;

// What the kernel is told where nothing follows: shorter than any entry, so that it finds none.
// Nothing at all would tell it that it may keep the whole listing, and for how long it could not
// be told (Linux, fs/fuse/readdir.c; it asks for that by itself where OPENDIR is not answered).
constexpr std::array<std::byte, 8> kEndOfListing{};

// Appends entries to a reply of at most the size that the kernel gave.
class DirReply {
 public:
  // `current`: nothing has changed since the server told their attributes.
  DirReply(fuse_req_t request, std::size_t size, bool plus, bool current)
      : request_(request), bytes_(size), plus_(plus), current_(current) {}

  // False when it does not fit any more.
  bool Add(Filesystem& filesystem, NodeId directory, const DirectoryListing::Entry& entry) {
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
        param = ToEntry(filesystem, directory, entry.name, *entry.file, now_);
        node_ = param.ino;
        const AttrWire& attr = entry.file->attr;
        filesystem.inodes.SetLease(node_, entry.file->attr_expires, attr.change,
                                   client::LeaseLength(attr.lease_ms), now_);
        (void)filesystem.inodes.Tell(node_, attr, now_);
        const bool old = filesystem.inodes.PagesAreOld(node_, attr.change, now_);
        if (old && !filesystem.options.writeback) param.attr_timeout = 0;
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
  // One reading of the clock for all entries: the first of them waits for the last one anyway.
  const TimePoint now_ = BootClock::now();
};

// A request that is about a directory's entries, on their way.
struct Wanted {
  Request request;
  NodeId node;
  bool opens = false;  // OPENDIR: they are for who asks next
  std::uint64_t cookie = 0;
  std::size_t size = 0;
  bool plus = false;
  std::uint64_t changes = 0;  // Filesystem's, when the server was asked
};
using WantedPtr = std::unique_ptr<Wanted>;

void Track(Worker& worker, const Wanted& wanted, client::CallTicket ticket) {
  worker.Track(wanted.request.unique(),
               {.ticket = ticket, .caller = static_cast<pid_t>(wanted.request.context().pid)});
}

void Keep(Worker& worker, const CallContext& user, const std::shared_ptr<fuse::Open>& open,
          TimePoint now) {
  worker.filesystem().kept.Keep(user, open, now);
  worker.KeptOne();
}

// ---- a walk through a tree (open_ahead.h) -------------------------------------------------------

// Tells OpenAhead that the walk may descend into `directory`.
void NoteDirectory(Worker& worker, DirectoryListing& listing, NodeId directory) {
  OpenAhead& ahead = worker.open_ahead();
  const OpenAhead::Listing* walk = listing.walk.get();
  if (walk == nullptr || walk->changes != listing.changes() || walk->owner != &ahead) {
    listing.walk = std::make_shared<OpenAhead::Listing>();
    listing.walk->owner = &ahead;
    listing.walk->changes = listing.changes();
  }
  ahead.Listed(listing.walk, directory);
}

// What a directory is like before the server has answered, and then.
std::shared_ptr<fuse::Open> Unopened(const Filesystem& filesystem, NodeId node) {
  auto open = std::make_shared<fuse::Open>();
  open->node = node;
  const auto lease = static_cast<std::uint32_t>(filesystem.lease.count());
  open->listing = std::make_unique<DirectoryListing>(filesystem.changes.load(),
                                                     client::LeaseEnd(BootClock::now(), lease));
  return open;
}

void Take(const Filesystem& filesystem, fuse::Open& open, client::OpenedDirectory& opened) {
  open.file = opened.open;
  open.listing->TakeFirst(BootClock::now(), opened.first_page);
  if (const auto place = filesystem.inodes.FindPlace(open.node)) {
    open.file->SetHint(place->parent, place->name);
  }
}

// For nobody yet: kept for who comes.
void AskAhead(Worker& worker, const CallContext& caller, NodeId node) {
  const auto handle = worker.filesystem().inodes.Find(node);
  if (!handle || worker.filesystem().kept.Has(node)) return;
  if (!worker.open_ahead().Ask(node, caller.uid, caller.gid)) return;
  const client::CallTicket ticket =
      worker.lane().OpenDir(caller, *handle, client::kFirstPageBytes,
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
                              if (open->listing->IsCurrent(filesystem.changes.load(), now)) {
                                Keep(worker, caller, open, now);
                              } else {
                                worker.ReleaseLater(caller, open->file);
                              }
                              if (waiting) waiting->TakeUpAgain();
                            });
  worker.open_ahead().Asked(node, ticket);
}

// The kernel lists it: what it will list next.
void GoAhead(Worker& worker, CallContext caller, NodeId node) {
  caller.timeout.reset();  // what this one had left
  const std::uint64_t changes = worker.filesystem().changes.load();
  for (const NodeId next : worker.open_ahead().Opened(node, changes)) {
    AskAhead(worker, caller, next);
  }
}

// ---- listing ------------------------------------------------------------------------------------

// Answers with these entries, of what has come.
void Answer(Wanted& wanted, const std::shared_ptr<fuse::Open>& open,
            std::span<const DirectoryListing::Entry> entries) {
  Worker& worker = wanted.request.worker();
  Filesystem& filesystem = worker.filesystem();
  const CallContext caller = wanted.request.context();
  DirectoryListing& listing = *open->listing;
  if (wanted.cookie == 0) listing.walk.reset();
  bool keeps = false;
  {
    const auto hold = filesystem.kernel.HoldReplies();
    DirReply reply(wanted.request.raw(), wanted.size, wanted.plus,
                   listing.changes() == filesystem.changes.load());
    std::size_t told = 0;
    while (told < entries.size() && reply.Add(filesystem, open->node, entries[told])) {
      if (reply.node() != 0 && entries[told].type == DT_DIR) {
        NoteDirectory(worker, listing, reply.node());
      }
      ++told;
    }
    listing.Told(entries.first(told));
    const TimePoint now = BootClock::now();
    keeps = !entries.empty() || listing.IsCurrent(filesystem.changes.load(), now);
    // Before the answer: who is told asks on at once, and another worker may take that up.
    if (keeps) Keep(worker, caller, open, now);
    if (told > 0) {
      wanted.request.Bytes(reply.bytes());
    } else if (entries.empty()) {
      wanted.request.Bytes(kEndOfListing);
    } else {
      wanted.request.Error(EINVAL);  // as getdents(2): no room for one
    }
  }
  if (!keeps) worker.ReleaseLater(caller, open->file);
  if (wanted.cookie == 0) GoAhead(worker, caller, open->node);
}

// Goes on with a directory that is open at the server, for this request alone.
void Serve(WantedPtr wanted, std::shared_ptr<fuse::Open> open) {
  Worker& worker = wanted->request.worker();
  const CallContext caller = wanted->request.context();
  const TimePoint now = BootClock::now();
  if (wanted->opens) {
    Keep(worker, caller, open, now);
    return wanted->request.Open({});
  }
  wanted->changes = worker.filesystem().changes.load();
  const auto entries = open->listing->Behind(wanted->cookie);
  if (entries && (!entries->empty() || open->listing->TakeEnd(wanted->changes, now))) {
    return Answer(*wanted, open, *entries);
  }
  const Wanted& on_its_way = *wanted;
  const client::CallTicket ticket = worker.lane().ReadDir(
      caller, open->file, on_its_way.cookie, kMaxReaddirBytes, on_its_way.plus,
      [wanted = std::move(wanted), open](Result<client::DirPage>&& page) {
        if (!page.ok()) {
          wanted->request.worker().ReleaseLater(wanted->request.context(), open->file);
          return wanted->request.ErrorOrRecover(open->node, page.status());
        }
        open->listing->Take(wanted->cookie, wanted->changes, BootClock::now(), *page);
        Answer(*wanted, open, *open->listing->Behind(wanted->cookie));
      });
  Track(worker, on_its_way, ticket);
}

// One that is open from before and will do: without a message for who begins while nothing can have
// changed, and for who goes on where one of the listings has come.
std::shared_ptr<fuse::Open> FindKept(const Wanted& wanted) {
  Filesystem& filesystem = wanted.request.worker().filesystem();
  const TimePoint now = BootClock::now();
  const std::uint64_t changes = filesystem.changes.load();
  return filesystem.kept.Take(wanted.node, wanted.request.context(), kOpenRead, now,
                              [&](const fuse::Open& open) {
                                if (open.file->lost_errno() != 0) return false;
                                if (wanted.cookie == 0)
                                  return open.listing->IsCurrent(changes, now);
                                return open.listing->Behind(wanted.cookie).has_value();
                              });
}

// Each listing once: where OPENDIR is answered, what its reader asks behind that is known.
void Note(const Wanted& wanted, bool hit) {
  Filesystem& filesystem = wanted.request.worker().filesystem();
  if (wanted.cookie != 0 || wanted.opens != filesystem.answers_opendir) return;
  filesystem.listings_at_hand.Note(hit);
}

void List(WantedPtr wanted) {
  Worker& worker = wanted->request.worker();
  if (auto open = FindKept(*wanted)) {
    Note(*wanted, true);
    return Serve(std::move(wanted), std::move(open));
  }
  const auto handle = FindHandle(wanted->request, wanted->node);
  if (!handle) return;
  const CallContext caller = wanted->request.context();
  const std::uint64_t unique = wanted->request.unique();
  const bool begins = wanted->cookie == 0;
  if (begins) {
    if (const auto ticket = worker.open_ahead().Wait(wanted->node, wanted->request)) {
      return worker.Track(unique, {.ticket = *ticket, .caller = static_cast<pid_t>(caller.pid)});
    }
  }
  Note(*wanted, false);
  const Wanted& on_its_way = *wanted;
  const client::CallTicket ticket = worker.lane().OpenDir(
      caller, *handle, begins ? client::kFirstPageBytes : 0,
      [wanted = std::move(wanted), open = Unopened(worker.filesystem(), on_its_way.node)](
          Result<client::OpenedDirectory>&& opened) mutable {
        if (!opened.ok()) return wanted->request.ErrorOrRecover(open->node, opened.status());
        Take(wanted->request.worker().filesystem(), *open, *opened);
        Serve(std::move(wanted), std::move(open));
      });
  Track(worker, on_its_way, ticket);
}

void List(fuse_req_t raw, NodeId node, std::size_t size, off_t offset, bool plus) {
  List(std::make_unique<Wanted>(Wanted{.request = Begin(raw),
                                       .node = node,
                                       .cookie = static_cast<std::uint64_t>(offset),
                                       .size = size,
                                       .plus = plus}));
}

// ---- fsync --------------------------------------------------------------------------------------

struct Syncing {
  Request request;
  NodeId node;
  bool data_only;
  client::OpenPtr file;
};

void Sync(std::unique_ptr<Syncing> syncing) {
  Worker& worker = syncing->request.worker();
  const CallContext caller = syncing->request.context();
  const std::uint64_t unique = syncing->request.unique();
  const Syncing& on_its_way = *syncing;
  const client::CallTicket ticket =
      worker.lane().FsyncDir(caller, on_its_way.file, on_its_way.data_only,
                             [syncing = std::move(syncing), caller](Status&& status) {
                               syncing->request.worker().ReleaseLater(caller, syncing->file);
                               AnswerDone(syncing->request, syncing->node, status);
                             });
  worker.Track(unique, {.ticket = ticket, .caller = static_cast<pid_t>(caller.pid)});
}

}  // namespace

// Most kernels ask this once and are told that nobody answers it (Filesystem::answers_opendir).
void OpenDir(fuse_req_t raw, fuse_ino_t node, fuse_file_info*) {
  Request request = Begin(raw);
  if (!request.worker().filesystem().answers_opendir) return request.Error(ENOSYS);
  List(
      std::make_unique<Wanted>(Wanted{.request = std::move(request), .node = node, .opens = true}));
}

void ReadDir(fuse_req_t raw, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  List(raw, node, size, offset, false);
}

void ReadDirPlus(fuse_req_t raw, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  List(raw, node, size, offset, true);
}

// What is open is kept by its node and not by who opened it.
void ReleaseDir(fuse_req_t raw, fuse_ino_t, fuse_file_info*) { Begin(raw).Ok(); }

void FsyncDir(fuse_req_t raw, fuse_ino_t node, int data_only, fuse_file_info*) {
  auto syncing = std::make_unique<Syncing>(Syncing{Begin(raw), node, data_only != 0, {}});
  const auto handle = FindHandle(syncing->request, node);
  if (!handle) return;
  Worker& worker = syncing->request.worker();
  // Nothing of it is to be kept, and the server knows it no more.
  if (worker.filesystem().inodes.removed_directory(node)) return syncing->request.Ok();
  const CallContext caller = syncing->request.context();
  const std::uint64_t unique = syncing->request.unique();
  const client::CallTicket ticket = worker.lane().OpenDir(
      caller, *handle, 0,
      [syncing = std::move(syncing)](Result<client::OpenedDirectory>&& opened) mutable {
        if (!opened.ok()) return syncing->request.ErrorOrRecover(syncing->node, opened.status());
        syncing->file = opened->open;
        Sync(std::move(syncing));
      });
  worker.Track(unique, {.ticket = ticket, .caller = static_cast<pid_t>(caller.pid)});
}

}  // namespace rdfs::fs::fuse::ops
