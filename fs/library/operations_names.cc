// What is done to names.
#include <sys/stat.h>

#include <cerrno>

#include "fs/library/operations.h"
#include "fs/library/walk.h"

namespace rdfs::fs::library {
namespace {

// A server that never comes to an end of a directory is not believed.
constexpr std::size_t kMostEntries = 50'000'000;

Status Errno(int errno_value) { return {Code::kErrno, errno_value, {}}; }

// Goes along `path`; `then` is called where it led somewhere, else the operation ends.
void Go(rdfs_queue& queue, const OperationPtr& operation, const std::string& path, LastName last,
        std::function<void(Place)> then) {
  Walk::Start(queue.lane(), queue.owner().caller, queue.owner().mount->info().root, path, last,
              [&queue, operation, then = std::move(then)](Result<Place> place) {
                if (!place.ok()) return queue.End(operation, place.status());
                then(*std::move(place));
              });
}

// The same for what has to be there.
void GoTo(rdfs_queue& queue, const OperationPtr& operation, const std::string& path, LastName last,
          std::function<void(const client::NamedFile&)> then) {
  Go(queue, operation, path, last, [&queue, operation, then = std::move(then)](const Place& place) {
    if (!place.file) return queue.End(operation, Errno(ENOENT));
    then(*place.file);
  });
}

// A path that ends in '/' means a directory; whether it is one is asked of the name before it.
bool MeansDirectory(const std::string& path) { return path.ends_with('/'); }
std::string WithoutSlash(const std::string& path) {
  const std::size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path : path.substr(0, last + 1);
}
bool IsDirectory(const client::NamedFile& file) { return (file.attr.mode & S_IFMT) == S_IFDIR; }

auto Ends(rdfs_queue& queue, const OperationPtr& operation) {
  return [&queue, operation](Status&& done) { queue.End(operation, std::move(done)); };
}
auto EndsMade(rdfs_queue& queue, const OperationPtr& operation) {
  return [&queue, operation](Result<client::NamedFile>&& made) {
    queue.End(operation, made.ok() ? Status() : made.status());
  };
}

// ---- Listing ------------------------------------------------------------------------------------

struct Listing {
  rdfs_queue& queue;
  OperationPtr operation;
  client::OpenPtr open;
  std::uint64_t cookie = 0;
  std::size_t seen = 0;          // entries that have come, also "." and ".."
  std::size_t next_unknown = 0;  // entries before it are known, or went
  Status failure;
};
using ListingPtr = std::shared_ptr<Listing>;

void EndListing(const ListingPtr& listing) {
  if (listing->failure.errno_value() == ETIMEDOUT) {  // there is no time left to hear of it
    listing->queue.lane().Release(listing->queue.owner().caller, listing->open, [](Status&&) {});
    listing->operation->listing.reset();
    return listing->queue.End(listing->operation, listing->failure);
  }
  listing->queue.lane().Release(listing->queue.owner().caller, listing->open, [listing](Status&&) {
    if (!listing->failure.ok()) listing->operation->listing.reset();
    listing->queue.End(listing->operation, listing->failure);
  });
}

// It has gone, or is not for us.
bool MayBeLeftOut(const Status& status) {
  const int error = status.errno_value();
  return error == ENOENT || error == ESTALE || error == EACCES || error == EPERM;
}

// A listing does not wait for what others have on their way to a file, and leaves it out.
void LookUpUnknown(const ListingPtr& listing) {
  auto& entries = listing->operation->listing->entries;
  std::size_t& next = listing->next_unknown;
  while (next < entries.size() && entries[next].known) ++next;
  if (next == entries.size() || !listing->failure.ok()) return EndListing(listing);
  listing->queue.lane().Lookup(listing->queue.owner().caller, listing->open->handle(),
                               entries[next].name, [listing](Result<client::NamedFile>&& found) {
                                 rdfs_listing::Entry& entry =
                                     listing->operation->listing->entries[listing->next_unknown++];
                                 entry.known = found.ok();
                                 if (found.ok()) {
                                   entry.attributes = ToAttributes(found->attr);
                                 } else if (!MayBeLeftOut(found.status())) {
                                   listing->failure = found.status();
                                 }
                                 LookUpUnknown(listing);
                               });
}

// Returns whether there may be more.
bool TakePage(Listing& listing, client::DirPage& page, bool first) {
  auto& entries = listing.operation->listing->entries;
  const std::uint64_t behind = listing.cookie;
  bool any = false;
  while (const std::optional<client::DirEntry> entry = page.Next()) {
    any = true;
    ++listing.seen;
    listing.cookie = entry->cookie;
    if (entry->name == "." || entry->name == "..") continue;
    rdfs_listing::Entry& added = entries.emplace_back();
    added.name = entry->name;
    added.known = entry->file.has_value();
    if (added.known) added.attributes = ToAttributes(entry->file->attr);
  }
  if (listing.seen > kMostEntries) {
    listing.failure = Errno(EOVERFLOW);
    return false;
  }
  // The same page would come again and again.
  if (any && !page.ends_directory() && listing.cookie == behind) {
    listing.failure = Errno(EIO);
    return false;
  }
  // The page that comes with the opening may be left out; any other one that is empty is the end.
  return !page.ends_directory() && (any || first);
}

void NextPage(const ListingPtr& listing) {
  listing->queue.lane().ReadDir(listing->queue.owner().caller, listing->open, listing->cookie,
                                kMaxReaddirBytes, true, [listing](Result<client::DirPage>&& page) {
                                  if (!page.ok()) listing->failure = page.status();
                                  if (page.ok() && TakePage(*listing, *page, false)) {
                                    return NextPage(listing);
                                  }
                                  LookUpUnknown(listing);
                                });
}

}  // namespace

void StartList(rdfs_queue& queue, const OperationPtr& operation, const std::string& path) {
  GoTo(queue, operation, path, LastName::kFollowed,
       [&queue, operation](const client::NamedFile& file) {
         if (!IsDirectory(file)) return queue.End(operation, Errno(ENOTDIR));
         operation->listing = std::make_unique<rdfs_listing>();
         queue.lane().OpenDir(queue.owner().caller, file.handle, client::kFirstPageBytes,
                              [&queue, operation](Result<client::OpenedDirectory>&& opened) {
                                if (!opened.ok()) {
                                  operation->listing.reset();
                                  return queue.End(operation, opened.status());
                                }
                                auto listing =
                                    std::make_shared<Listing>(Listing{.queue = queue,
                                                                      .operation = operation,
                                                                      .open = opened->open,
                                                                      .cookie = 0,
                                                                      .seen = 0,
                                                                      .next_unknown = 0,
                                                                      .failure = {}});
                                if (TakePage(*listing, opened->first_page, true)) {
                                  return NextPage(listing);
                                }
                                LookUpUnknown(listing);
                              });
       });
}

void StartStat(rdfs_queue& queue, const OperationPtr& operation, const std::string& path,
               bool follow, rdfs_attributes* out) {
  Go(queue, operation, path, follow ? LastName::kFollowed : LastName::kItself,
     [&queue, operation, out](const Place& place) {
       if (!place.file) return queue.End(operation, Errno(ENOENT));
       if (!place.name.empty()) {
         *out = ToAttributes(place.file->attr);
         return queue.End(operation, Status());
       }
       // A directory on the way, known from before.
       queue.lane().GetAttr(queue.owner().caller, place.file->handle, nullptr,
                            [&queue, operation, out](Result<client::Attributes>&& got) {
                              if (got.ok()) *out = ToAttributes(got->attr);
                              queue.End(operation, got.ok() ? Status() : got.status());
                            });
     });
}

void StartMkdir(rdfs_queue& queue, const OperationPtr& operation, const std::string& path,
                std::uint32_t mode) {
  Go(queue, operation, path, LastName::kNotLooked, [&queue, operation, mode](const Place& place) {
    queue.lane().Mkdir(queue.owner().caller, place.parent, place.name, mode, 0,
                       EndsMade(queue, operation));
  });
}

void StartUnlink(rdfs_queue& queue, const OperationPtr& operation, const std::string& path) {
  if (MeansDirectory(path)) {
    return GoTo(queue, operation, WithoutSlash(path), LastName::kItself,
                [&queue, operation](const client::NamedFile& file) {
                  queue.End(operation, Errno(IsDirectory(file) ? EISDIR : ENOTDIR));
                });
  }
  Go(queue, operation, path, LastName::kNotLooked, [&queue, operation](const Place& place) {
    queue.lane().Unlink(queue.owner().caller, place.parent, place.name, Ends(queue, operation));
  });
}

void StartRmdir(rdfs_queue& queue, const OperationPtr& operation, const std::string& path) {
  Go(queue, operation, path, LastName::kNotLooked, [&queue, operation](const Place& place) {
    queue.lane().Rmdir(queue.owner().caller, place.parent, place.name, Ends(queue, operation));
  });
}

void StartRename(rdfs_queue& queue, const OperationPtr& operation, const std::string& from,
                 const std::string& to, std::uint32_t flags) {
  const bool directory = MeansDirectory(from) || MeansDirectory(to);
  Go(queue, operation, WithoutSlash(from), directory ? LastName::kItself : LastName::kNotLooked,
     [&queue, operation, to, flags, directory](const Place& old_place) {
       if (directory && !old_place.file) return queue.End(operation, Errno(ENOENT));
       if (directory && !IsDirectory(*old_place.file)) {
         return queue.End(operation, Errno(ENOTDIR));
       }
       if (old_place.name.empty()) return queue.End(operation, Errno(EBUSY));
       Go(queue, operation, to, LastName::kNotLooked,
          [&queue, operation, old_place, flags](const Place& place) {
            queue.lane().Rename(queue.owner().caller, old_place.parent, old_place.name,
                                place.parent, place.name, flags, Ends(queue, operation));
          });
     });
}

void StartSymlink(rdfs_queue& queue, const OperationPtr& operation, const std::string& target,
                  const std::string& path) {
  if (MeansDirectory(path)) {
    return Go(queue, operation, WithoutSlash(path), LastName::kItself,
              [&queue, operation](const Place& place) {
                queue.End(operation, Errno(place.file ? EEXIST : ENOENT));
              });
  }
  Go(queue, operation, path, LastName::kNotLooked, [&queue, operation, target](const Place& place) {
    queue.lane().Symlink(queue.owner().caller, place.parent, place.name, target,
                         EndsMade(queue, operation));
  });
}

void StartReadlink(rdfs_queue& queue, const OperationPtr& operation, const std::string& path) {
  GoTo(queue, operation, path, LastName::kItself,
       [&queue, operation](const client::NamedFile& file) {
         if ((file.attr.mode & S_IFMT) != S_IFLNK) return queue.End(operation, Errno(EINVAL));
         queue.lane().Readlink(queue.owner().caller, file.handle,
                               [&queue, operation](Result<std::string_view>&& target) {
                                 if (target.ok()) operation->text = *target;
                                 queue.End(operation, target.ok() ? Status() : target.status());
                               });
       });
}

}  // namespace rdfs::fs::library
