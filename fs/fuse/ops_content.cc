// The bytes of files: read, write, holes, copies.
#include <cerrno>
#include <memory>

#include "fs/fuse/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::CallContext;
using client::Lane;

}  // namespace

void Read(fuse_req_t raw, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  Worker& worker = request.worker();
  std::optional<client::Buffer> buffer = worker.lane().buffers().Allocate(size);
  if (!buffer) return request.WaitForBuffer();
  std::uint32_t ahead = 0;
  {
    const std::lock_guard lock(open->mutex);
    ahead =
        open->sequential.Next(static_cast<std::uint64_t>(offset), static_cast<std::uint32_t>(size));
  }
  struct Reading {
    Request request;
    client::Buffer buffer;
    NodeId node;
  };
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    const transport::LocalSlice into = buffer->Slice(0, size);
    auto reading = std::make_unique<Reading>(Reading{std::move(pending), std::move(*buffer), node});
    return lane.Read(caller, open->file, static_cast<std::uint64_t>(offset), into, ahead,
                     [reading = std::move(reading)](Result<client::ReadDone>&& done) {
                       if (!done.ok()) {
                         return reading->request.ErrorOrRecover(reading->node, done.status());
                       }
                       reading->request.Bytes(reading->buffer.bytes().first(done->length));
                     });
  });
}

void Write(fuse_req_t raw, fuse_ino_t node, const char* bytes, std::size_t size, off_t offset,
           fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  const transport::LocalSlice from = request.Slice(bytes, size);
  std::uint32_t flags = open->append ? kWriteAppend : 0;
  // The writer has no right to leave setuid and setgid as they are.
  if ((request.message().Body<fuse_write_in>().write_flags & FUSE_WRITE_KILL_SUIDGID) != 0) {
    flags |= kWriteKillPriv;
  }
  request.worker().SettleWhenAnswered(request.unique(), node);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Write(
        caller, open->file, static_cast<std::uint64_t>(offset), from, flags,
        [pending = std::move(pending), node](Result<client::WriteDone>&& done) mutable {
          if (!done.ok()) return pending.ErrorOrRecover(node, done.status());
          pending.Write(done->written);
        });
  });
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
