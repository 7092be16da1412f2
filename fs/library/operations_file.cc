// Opening and closing, and what an open file is asked.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "fs/library/operations.h"
#include "fs/library/walk.h"

namespace rdfs::fs::library {
namespace {

// Between the program and its own system, or dealt with here.
constexpr int kNotForServer = O_CREAT | O_EXCL | O_NOCTTY | O_DIRECT | O_NOFOLLOW;

Status Errno(int errno_value) { return {Code::kErrno, errno_value, {}}; }

// One open(2): the walk, then the file that is there or one that is made.
struct Opening {
  rdfs_queue& queue;
  OperationPtr operation;
  std::string path;
  int flags;
  std::uint32_t mode;

  void Opened(client::OpenPtr open, const Handle& parent, const std::string& name) {
    // Where a server that was started anew finds it.
    if (!name.empty()) open->SetHint(parent, name);
    operation->file = std::make_unique<rdfs_file>(queue.owner(), std::move(open), path);
    queue.End(operation, Status());
  }
  void Failed(Status why) { queue.End(operation, std::move(why)); }
};
using OpeningPtr = std::shared_ptr<Opening>;

void Make(const OpeningPtr& opening, const Place& place) {
  const std::uint32_t wire =
      OpenFlagsToWire((opening->flags & ~kNotForServer) | O_CREAT | (opening->flags & O_EXCL));
  opening->queue.lane().Create(
      opening->queue.owner().caller, place.parent, place.name, wire, opening->mode, 0,
      [opening, place = std::make_unique<Place>(place)](Result<client::Lane::Created>&& made) {
        if (!made.ok()) return opening->Failed(made.status());
        opening->Opened(std::move(made->open), place->parent, place->name);
      });
}

void OpenWhatIsThere(const OpeningPtr& opening, const Place& place) {
  const std::uint32_t type = place.file->attr.mode & S_IFMT;
  if (type == S_IFDIR) return opening->Failed(Errno(EISDIR));
  if (type == S_IFLNK) return opening->Failed(Errno(ELOOP));  // with O_NOFOLLOW
  if (type != S_IFREG) return opening->Failed(Errno(ENXIO));
  opening->queue.lane().Open(
      opening->queue.owner().caller, place.file->handle,
      OpenFlagsToWire(opening->flags & ~kNotForServer),
      [opening, place = std::make_unique<Place>(place)](Result<client::Lane::Opened>&& opened) {
        if (!opened.ok()) return opening->Failed(opened.status());
        opening->Opened(std::move(opened->open), place->parent, place->name);
      });
}

}  // namespace

void StartOpen(rdfs_queue& queue, const OperationPtr& operation, const std::string& path, int flags,
               std::uint32_t mode) {
  auto opening = std::make_shared<Opening>(
      Opening{.queue = queue, .operation = operation, .path = path, .flags = flags, .mode = mode});
  // No file is made where a directory is meant.
  if ((flags & O_CREAT) != 0 && path.ends_with('/')) return opening->Failed(Errno(EISDIR));
  const bool exclusive = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0;
  const LastName last =
      exclusive || (flags & O_NOFOLLOW) != 0 ? LastName::kItself : LastName::kFollowed;
  Walk::Start(queue.lane(), queue.owner().caller, queue.owner().mount->info().root, path, last,
              [opening, exclusive](Result<Place> place) {
                if (!place.ok()) return opening->Failed(place.status());
                if (place->file && exclusive) return opening->Failed(Errno(EEXIST));
                if (place->file) return OpenWhatIsThere(opening, *place);
                if ((opening->flags & O_CREAT) == 0) return opening->Failed(Errno(ENOENT));
                Make(opening, *place);
              });
}

// The last step of a close; `flushed` is what it tells.
static void Release(rdfs_queue& queue, const OperationPtr& operation, Status flushed) {
  const client::OpenPtr open = operation->file->open;
  operation->file.reset();
  if (flushed.errno_value() == ETIMEDOUT) {  // there is no time left to hear of it
    queue.lane().Release(queue.owner().caller, open, [](Status&&) {});
    return queue.End(operation, flushed);
  }
  operation->status = std::move(flushed);
  queue.lane().Release(queue.owner().caller, open, [&queue, operation](Status&& gone) {
    queue.End(operation, operation->status.ok() ? std::move(gone) : operation->status);
  });
}

void StartClose(rdfs_queue& queue, const OperationPtr& operation, rdfs_file* file) {
  operation->file = queue.owner().Take(file);
  if (operation->file == nullptr) return queue.End(operation, Errno(EBADF));
  const client::OpenPtr& open = operation->file->open;
  if ((open->flags() & kOpenWrite) == 0) return Release(queue, operation, Status());
  // Tells whether something that was written may be lost.
  queue.lane().FlushFile(queue.owner().caller, open, 0, [&queue, operation](Status&& flushed) {
    Release(queue, operation, std::move(flushed));
  });
}

void StartRead(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
               const Transfer& transfer) {
  const auto length = static_cast<std::uint32_t>(transfer.length);
  std::uint32_t ahead = 0;
  {
    const std::lock_guard lock(file.mutex);
    ahead = file.sequential.Next(transfer.offset, length);
  }
  queue.lane().Read(queue.owner().caller, file.open, transfer.offset,
                    transfer.memory->Slice(transfer.at, transfer.length), ahead,
                    [&queue, operation, memory = transfer.memory](Result<client::ReadDone>&& done) {
                      queue.End(operation, done.ok() ? Status() : done.status(),
                                done.ok() ? done->length : 0);
                    });
}

void StartWrite(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
                const Transfer& transfer) {
  const std::uint32_t flags = (file.open->flags() & kOpenAppend) != 0 ? kWriteAppend : 0;
  queue.lane().Write(
      queue.owner().caller, file.open, transfer.offset,
      transfer.memory->Slice(transfer.at, transfer.length), flags,
      [&queue, operation, memory = transfer.memory](Result<client::WriteDone>&& done) {
        queue.End(operation, done.ok() ? Status() : done.status(), done.ok() ? done->written : 0);
      });
}

void StartFsync(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file, bool data_only) {
  queue.lane().Fsync(queue.owner().caller, file.open, data_only,
                     [&queue, operation](Status&& done) { queue.End(operation, std::move(done)); });
}

void StartTruncate(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
                   std::uint64_t size) {
  const client::SetAttributes set{.valid = kSetSize, .size = size};
  queue.lane().SetAttr(queue.owner().caller, file.open->handle(), file.open, set,
                       [&queue, operation](Result<client::Attributes>&& done) {
                         queue.End(operation, done.ok() ? Status() : done.status());
                       });
}

void StartFstat(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
                rdfs_attributes* out) {
  queue.lane().GetAttr(queue.owner().caller, file.open->handle(), file.open,
                       [&queue, operation, out](Result<client::Attributes>&& got) {
                         if (got.ok()) *out = ToAttributes(got->attr);
                         queue.End(operation, got.ok() ? Status() : got.status());
                       });
}

}  // namespace rdfs::fs::library
