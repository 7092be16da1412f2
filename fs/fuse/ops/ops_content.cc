// The bytes of files: read, write, holes, copies.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "fs/fuse/ops/ops.h"
#include "transport/base/log.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::CallContext;
using client::Lane;

// Whether a program may take this write for done before the server has answered it, if the lease
// allows it: where it does not ask for more itself.
bool MayAnswerEarly(const Request& request, const fuse_write_in& in) {
  constexpr std::uint32_t kAsksForMore = O_DIRECT | O_SYNC | O_DSYNC | O_APPEND;
  return (in.flags & kAsksForMore) == 0 && (in.write_flags & FUSE_WRITE_CACHE) == 0 &&
         request.worker().lane().SendsWriteAtOnce(in.size);
}

// See writes_behind.h for the order.
WritesBehind::Number PlaceBehind(const Request& request, NodeId node, const fuse_write_in& in) {
  Filesystem& filesystem = request.worker().filesystem();
  const TimePoint now = request.worker().lane().Now();
  if (now >= filesystem.inodes.write_lease_until(node)) return 0;
  const WritesBehind::Number place = filesystem.behind.Begin(node, in.offset, in.size);
  if (place == 0 || now < filesystem.inodes.write_lease_until(node)) return place;
  request.worker().WroteBehind(place, request.message());
  return 0;
}

// Keeps the message, in which the bytes are.
struct Behind {
  Request request;
  std::shared_ptr<fuse::Open> open;
  WritesBehind::Number place;
  std::uint64_t length;

  void Arrived(const Result<client::WriteDone>& done) {
    if (done.ok() && done->written == length) {
      request.AllowWrites(open->node, done->write_lease);
    } else {
      Worker& worker = request.worker();
      const int error = done.ok() ? done->rest_errno : done.status().errno_value();
      LogWarn("{}",
              Status::FromErrno(error, "a write that its program was told is done").message());
      open->write_error = error;
      if (!worker.ends()) worker.filesystem().kernel.WriteFailed(open->node);
    }
    request.worker().filesystem().page_writes.End(request.unique());
    request.worker().WroteBehind(place, request.message());
  }
};

void WriteBehind(Request request, const std::shared_ptr<fuse::Open>& open,
                 WritesBehind::Number place, std::uint64_t offset,
                 const transport::LocalSlice& from, std::uint32_t flags) {
  const CallContext caller = request.context();
  Lane& lane = request.worker().lane();
  request.Write(from.length, /*early=*/true);
  auto behind = std::make_unique<Behind>(Behind{std::move(request), open, place, from.length});
  lane.Write(
      caller, open->file, offset, from, flags | kWriteEarly,
      [behind = std::move(behind)](Result<client::WriteDone>&& done) { behind->Arrived(done); });
}

enum class Sync : std::uint8_t { kAll, kData };

// Of a single write (RWF_SYNC, RWF_DSYNC) through a descriptor that does not have it: past its
// pages, and of what io_uring and libaio write past them, the kernel asks for no fsync.
std::optional<Sync> SyncOf(const fuse::Open& open, const fuse_write_in& in) {
  const bool is_call = (in.write_flags & FUSE_WRITE_CACHE) == 0;
  if (!is_call || (in.flags & O_DSYNC) == 0 || open.file->durable()) return std::nullopt;
  return (in.flags & O_SYNC) == O_SYNC ? Sync::kAll : Sync::kData;
}

// A write with something left to do after it: check where an append landed, or sync.
struct CarefulWrite {
  Request request;
  std::shared_ptr<fuse::Open> open;
  std::uint64_t at = 0;      // where the kernel has it
  std::optional<Sync> sync;  // before it is answered
  std::uint64_t written = 0;

  static void Arrived(std::unique_ptr<CarefulWrite> self, const Result<client::WriteDone>& done) {
    Request& request = self->request;
    if (!done.ok()) return request.ErrorOrRecover(self->open->node, done.status());
    // The server put it at another offset than the kernel's pages have it.
    if (done->offset != self->at) {
      request.worker().filesystem().kernel.WriteFailed(self->open->node);
    }
    self->written = done->written;
    if (!self->sync) return request.Write(self->written);
    const CallContext caller = request.context();
    Lane& lane = request.worker().lane();
    const client::OpenPtr file = self->open->file;
    const bool data_only = self->sync == Sync::kData;
    lane.Fsync(caller, file, data_only, [self = std::move(self)](Status&& status) {
      if (!status.ok()) return self->request.Error(status.errno_value());
      self->request.Write(self->written);
    });
  }
};

void WriteCarefully(Request request, const std::shared_ptr<fuse::Open>& open, std::uint64_t at,
                    const transport::LocalSlice& from, std::uint32_t flags,
                    std::optional<Sync> sync) {
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    auto write = std::make_unique<CarefulWrite>(
        CarefulWrite{.request = std::move(pending), .open = open, .at = at, .sync = sync});
    return lane.Write(caller, open->file, at, from, flags,
                      [write = std::move(write)](Result<client::WriteDone>&& done) mutable {
                        CarefulWrite::Arrived(std::move(write), done);
                      });
  });
}

// `least`: where fewer bytes than this are written it is an error.
void WriteAndAnswer(Request request, const std::shared_ptr<fuse::Open>& open, std::uint64_t at,
                    const transport::LocalSlice& from, std::uint32_t flags, std::size_t least) {
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Write(caller, open->file, at, from, flags,
                      [pending = std::move(pending), node = open->node,
                       least](Result<client::WriteDone>&& done) mutable {
                        if (!done.ok()) return pending.ErrorOrRecover(node, done.status());
                        if (done->written < least) {
                          return pending.Error(done->rest_errno != 0 ? done->rest_errno : EIO);
                        }
                        pending.AllowWrites(node, done->write_lease);
                        pending.Write(done->written);
                      });
  });
}

// Remembers a read into the kernel's pages that waited for the server in vain.
void NoteFailed(const Request& request, NodeId node, std::uint64_t offset, std::size_t size,
                const Status& status) {
  Worker& worker = request.worker();
  if (status.errno_value() != ETIMEDOUT || worker.ends() || worker.lane().connected()) return;
  worker.filesystem().failed_reads.Failed(
      {.node = node, .thread = request.message().header().pid, .offset = offset, .length = size},
      worker.lane().Now());
}

// Whether the kernel asks again for what that one was to bring, and the server is still away.
bool HasJustFailed(const Request& request, NodeId node, std::uint64_t offset, std::size_t size) {
  Worker& worker = request.worker();
  if (worker.lane().connected() || worker.HasWaited(request.unique())) return false;
  return worker.filesystem().failed_reads.IsAskedAgain(
      {.node = node, .thread = request.message().header().pid, .offset = offset, .length = size},
      worker.lane().Now());
}

void NotePages(Filesystem& filesystem, fuse::Open& open) {
  if (open.paged.load(std::memory_order_relaxed)) return;
  open.paged = true;
  filesystem.inodes.SetMayHavePages(open.node);
}

}  // namespace

void Read(fuse_req_t raw, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  Worker& worker = request.worker();
  Filesystem& filesystem = worker.filesystem();
  const auto at = static_cast<std::uint64_t>(offset);
  // Past the kernel's pages the caller can be interrupted, and wants what is there now.
  const bool past_pages =
      open->direct || (request.message().Body<fuse_read_in>().flags & O_DIRECT) != 0;
  if (!past_pages) {
    if (HasJustFailed(request, open->node, at, size)) return request.Error(ETIMEDOUT);
    if (filesystem.inodes.ChangedLately(open->node, worker.lane().Now())) worker.LetOthersBegin();
    const PageWrites::Number write = filesystem.page_writes.UnderWay(open->node, at, size);
    if (write != 0) return request.WaitForPageWrite(write);
  }
  std::uint32_t ahead = 0;
  std::uint32_t wanted = 0;
  {
    const std::lock_guard lock(open->mutex);
    // One that comes here again has been counted.
    ahead = worker.HasWaited(request.unique()) && worker.WaitsOf(request.unique()).counted
                ? open->sequential.ahead()
                : open->sequential.Next(at, static_cast<std::uint32_t>(size));
    wanted = open->sequential.wanted();
  }
  if (!past_pages) NotePages(filesystem, *open);
  const bool reads_ahead = worker.reads_ahead() && !past_pages;
  if (reads_ahead && wanted > 0) worker.ReadsOn();
  const CallContext reader = request.context();
  if (reads_ahead &&
      worker.read_ahead().Serve(request, reader, open, at, static_cast<std::uint32_t>(size))) {
    return worker.read_ahead().Follow(reader, open, at + size, wanted, !worker.is_helped());
  }
  std::optional<client::Buffer> buffer = worker.TakeBuffer(request.unique(), size);
  if (!buffer) return request.WaitForBuffer();
  struct Reading {
    Request request;
    client::Buffer buffer;
    std::shared_ptr<fuse::Open> open;
    std::uint64_t at;
    std::size_t size;
    bool into_pages;
    ReadAhead::Mark mark;
    PageWrites::Number began;

    void NoteEnd(std::size_t length) const {
      if (!into_pages || length == size) return;
      request.worker().filesystem().inodes.EndsAt(open->node, at + length);
    }
    // The kernel takes the end of a file that another client has cut from the first answer that is
    // cut short: none may overtake one in front of it. And what was read while a program wrote to
    // the same pages may be older than that.
    bool MustAskAgain(const Result<client::ReadDone>& done) {
      if (!into_pages) return false;
      PageWrites& writes = request.worker().filesystem().page_writes;
      const bool is_new = writes.ReadEnds(began, open->node, at, size);
      const std::lock_guard lock(open->mutex);
      open->reading.erase(std::find(open->reading.begin(), open->reading.end(), at));
      return done.ok() && (!is_new || (done->length < size && open->IsReadBefore(at)));
    }
  };
  if (!past_pages) {
    const std::lock_guard lock(open->mutex);
    open->reading.push_back(at);
  }
  const ReadAhead::Mark mark = worker.read_ahead().Asks(*open);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    const transport::LocalSlice into = buffer->Slice(0, size);
    auto reading = std::make_unique<Reading>(
        Reading{std::move(pending), std::move(*buffer), open, at, size, !past_pages, mark,
                past_pages ? 0 : filesystem.page_writes.ReadBegins()});
    return lane.Read(caller, open->file, at, into, ahead,
                     [reading = std::move(reading)](Result<client::ReadDone>&& done) {
                       const bool again = reading->MustAskAgain(done);
                       if (!done.ok()) {
                         if (reading->into_pages) {
                           NoteFailed(reading->request, reading->open->node, reading->at,
                                      reading->size, done.status());
                         }
                         return reading->request.ErrorOrRecover(reading->open->node, done.status());
                       }
                       reading->open->size = done->file_size;
                       if (again) return reading->request.TakeUpAgain();
                       reading->NoteEnd(done->length);
                       reading->request.worker().read_ahead().Answered(*reading->open,
                                                                       reading->at + reading->size,
                                                                       done->length, reading->mark);
                       reading->request.Read(std::move(reading->buffer), done->length);
                     });
  });
  if (reads_ahead) worker.read_ahead().Follow(reader, open, at + size, wanted, !worker.is_helped());
}

void Write(fuse_req_t raw, fuse_ino_t node, const char* bytes, std::size_t size, off_t offset,
           fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  WritesBehind& behind = request.worker().filesystem().behind;
  if (!open->direct) NotePages(request.worker().filesystem(), *open);
  const fuse_write_in in = request.message().Body<fuse_write_in>();
  // Pages of a mapping are nobody's call, and would be lost.
  const bool is_call = (in.write_flags & FUSE_WRITE_CACHE) == 0;
  const int failed = is_call ? open->TakeWriteError() : 0;
  if (failed != 0) return request.Error(failed);
  const WritesBehind::Number early =
      MayAnswerEarly(request, in) ? PlaceBehind(request, node, in) : 0;
  // What is on its way to this place of the file must not be overtaken.
  if (early == 0 && request.message().waited == 0 && behind.any() &&
      behind.NowFor(node).last != 0) {
    return request.WaitForWrites(node);
  }
  const transport::LocalSlice from = request.Slice(bytes, size);
  // As the descriptor is now: fcntl(2) sets and clears it. With its own write-back cache the kernel
  // knows where the end is.
  const bool append =
      is_call && (in.flags & O_APPEND) != 0 && !request.worker().filesystem().options.writeback;
  std::uint32_t flags = append ? kWriteAppend : 0;
  // The writer has no right to leave setuid and setgid as they are.
  if ((in.write_flags & FUSE_WRITE_KILL_SUIDGID) != 0) flags |= kWriteKillPriv;
  const auto at = static_cast<std::uint64_t>(offset);
  if (early != 0) return WriteBehind(std::move(request), open, early, at, from, flags);
  request.worker().SettleWhenAnswered(request.unique(), node);
  const std::optional<Sync> sync = SyncOf(*open, in);
  if (sync || (append && !open->direct)) {
    return WriteCarefully(std::move(request), open, at, from, flags, sync);
  }
  // Of pages the kernel believes that all are written, whatever number it is told.
  WriteAndAnswer(std::move(request), open, at, from, flags, is_call ? 0 : size);
}

void Fallocate(fuse_req_t raw, fuse_ino_t node, int mode, off_t offset, off_t length,
               fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Fallocate(
        caller, open->file, static_cast<std::uint32_t>(mode), static_cast<std::uint64_t>(offset),
        static_cast<std::uint64_t>(length),
        [pending = std::move(pending), node](Result<client::Attributes>&& done) mutable {
          AnswerDone(pending, node, done.ok() ? Status() : done.status());
        });
  });
}

void Lseek(fuse_req_t raw, fuse_ino_t node, off_t offset, int whence, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Seek(caller, open->file, static_cast<std::uint64_t>(offset),
                     static_cast<std::uint32_t>(whence),
                     [pending = std::move(pending), node](Result<std::uint64_t>&& found) mutable {
                       if (!found.ok()) return pending.ErrorOrRecover(node, found.status());
                       pending.Seek(static_cast<off_t>(*found));
                     });
  });
}

void CopyFileRange(fuse_req_t raw, fuse_ino_t node_in, off_t offset_in, fuse_file_info* file_in,
                   fuse_ino_t, off_t offset_out, fuse_file_info* file_out, std::size_t length,
                   int flags) {
  Request request = Begin(raw);
  const auto in = FindOpen(request, file_in);
  if (in == nullptr) return;
  const auto out = FindOpen(request, file_out);
  if (out == nullptr) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.CopyFileRange(
        caller, in->file, static_cast<std::uint64_t>(offset_in), out->file,
        static_cast<std::uint64_t>(offset_out), length, static_cast<std::uint32_t>(flags),
        [pending = std::move(pending), node_in](Result<client::WriteDone>&& done) mutable {
          if (!done.ok()) return pending.ErrorOrRecover(node_in, done.status());
          pending.Write(done->written);
        });
  });
}

}  // namespace rdfs::fs::fuse::ops
