#include "fs/client/sync_client.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace rdfs::fs::client {
namespace {

// Reads and writes go in pieces of this, or of what the lane's buffers have room for.
constexpr std::size_t kPieceBytes = kMaxTransferBytes;
// A server that never comes to an end of a directory is not believed.
constexpr std::size_t kMostEntries = 50'000'000;

Result<Buffer> TakeBuffer(BufferPool& pool, std::size_t bytes) {
  for (std::size_t size = std::min(bytes, kPieceBytes); size > 0; size /= 2) {
    if (std::optional<Buffer> buffer = pool.Allocate(size)) return *std::move(buffer);
  }
  return Status(Code::kBusy, "no buffer of the lane is free");
}

}  // namespace

bool SyncClient::RunUntil(const bool& over, Deadline deadline) {
  while (!over) {
    if (lane_->Poll() > 0 || over) continue;
    const TimePoint now = BootClock::now();
    if (now >= deadline) return false;
    if (!lane_->Arm()) continue;
    pollfd entry{.fd = lane_->fd(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, PollTimeoutMs(std::min(deadline, lane_->NextTimer()), now));
  }
  return true;
}

Result<NamedFile> SyncClient::Lookup(const Handle& parent, std::string_view name) {
  return Await<NamedFile>(
      [&](auto done) { lane_->Lookup(context_, parent, name, std::move(done)); });
}

Result<std::string> SyncClient::Readlink(const Handle& handle) {
  bool over = false;
  std::optional<Result<std::string>> result;
  lane_->Readlink(context_, handle, [&](Result<std::string_view>&& got) {
    // The view lasts no longer than this callback.
    got.ok() ? result.emplace(std::string(*got)) : result.emplace(got.status());
    over = true;
  });
  RunUntil(over);
  return *std::move(result);
}

Result<NamedFile> SyncClient::Symlink(const Handle& parent, std::string_view name,
                                      std::string_view target) {
  return Await<NamedFile>(
      [&](auto done) { lane_->Symlink(context_, parent, name, target, std::move(done)); });
}

Result<NamedFile> SyncClient::Mknod(const Handle& parent, std::string_view name, std::uint32_t mode,
                                    DeviceNumber device) {
  return Await<NamedFile>(
      [&](auto done) { lane_->Mknod(context_, parent, name, mode, 0, device, std::move(done)); });
}

Result<NamedFile> SyncClient::Mkdir(const Handle& parent, std::string_view name,
                                    std::uint32_t mode) {
  return Await<NamedFile>(
      [&](auto done) { lane_->Mkdir(context_, parent, name, mode, 0, std::move(done)); });
}

Status SyncClient::Unlink(const Handle& parent, std::string_view name) {
  return AwaitDone([&](auto done) { lane_->Unlink(context_, parent, name, std::move(done)); });
}

Status SyncClient::Rmdir(const Handle& parent, std::string_view name) {
  return AwaitDone([&](auto done) { lane_->Rmdir(context_, parent, name, std::move(done)); });
}

Status SyncClient::Rename(const Handle& old_parent, std::string_view old_name,
                          const Handle& new_parent, std::string_view new_name,
                          std::uint32_t flags) {
  return AwaitDone([&](auto done) {
    lane_->Rename(context_, old_parent, old_name, new_parent, new_name, flags, std::move(done));
  });
}

Result<NamedFile> SyncClient::Link(const Handle& file, const Handle& new_parent,
                                   std::string_view new_name) {
  return Await<NamedFile>(
      [&](auto done) { lane_->Link(context_, file, new_parent, new_name, std::move(done)); });
}

Result<Attributes> SyncClient::GetAttr(const Handle& handle, const OpenPtr& open) {
  return Await<Attributes>(
      [&](auto done) { lane_->GetAttr(context_, handle, open, std::move(done)); });
}

Result<Attributes> SyncClient::SetAttr(const Handle& handle, const SetAttributes& set,
                                       const OpenPtr& open) {
  return Await<Attributes>(
      [&](auto done) { lane_->SetAttr(context_, handle, open, set, std::move(done)); });
}

Status SyncClient::Access(const Handle& handle, std::uint32_t mask) {
  return AwaitDone([&](auto done) { lane_->Access(context_, handle, mask, std::move(done)); });
}

Result<client::StatFs> SyncClient::StatFs(const Handle& handle) {
  return Await<client::StatFs>(
      [&](auto done) { lane_->StatFs(context_, handle, std::move(done)); });
}

Status SyncClient::SetXattr(const Handle& handle, std::string_view name, ByteSpan value,
                            std::uint32_t flags) {
  return AwaitDone(
      [&](auto done) { lane_->SetXattr(context_, handle, name, value, flags, std::move(done)); });
}

Result<std::vector<std::byte>> SyncClient::GetXattr(const Handle& handle, std::string_view name) {
  bool over = false;
  std::optional<Result<std::vector<std::byte>>> result;
  lane_->GetXattr(context_, handle, name, kMaxXattrValueBytes, [&](Result<XattrReply>&& got) {
    got.ok() ? result.emplace(std::vector(got->value.begin(), got->value.end()))
             : result.emplace(got.status());
    over = true;
  });
  RunUntil(over);
  return *std::move(result);
}

Result<std::vector<std::byte>> SyncClient::ListXattr(const Handle& handle) {
  bool over = false;
  std::optional<Result<std::vector<std::byte>>> result;
  lane_->ListXattr(context_, handle, kMaxXattrValueBytes, [&](Result<XattrReply>&& got) {
    got.ok() ? result.emplace(std::vector(got->value.begin(), got->value.end()))
             : result.emplace(got.status());
    over = true;
  });
  RunUntil(over);
  return *std::move(result);
}

Status SyncClient::RemoveXattr(const Handle& handle, std::string_view name) {
  return AwaitDone([&](auto done) { lane_->RemoveXattr(context_, handle, name, std::move(done)); });
}

Result<Lane::Opened> SyncClient::Open(const Handle& handle, std::uint32_t flags) {
  return Await<Lane::Opened>(
      [&](auto done) { lane_->Open(context_, handle, flags, std::move(done)); });
}

Result<Lane::Created> SyncClient::Create(const Handle& parent, std::string_view name,
                                         std::uint32_t flags, std::uint32_t mode) {
  return Await<Lane::Created>(
      [&](auto done) { lane_->Create(context_, parent, name, flags, mode, 0, std::move(done)); });
}

Result<Lane::Created> SyncClient::Tmpfile(const Handle& parent, std::uint32_t flags,
                                          std::uint32_t mode) {
  return Await<Lane::Created>(
      [&](auto done) { lane_->Tmpfile(context_, parent, flags, mode, 0, std::move(done)); });
}

Result<std::vector<std::byte>> SyncClient::Read(const OpenPtr& open, std::uint64_t offset,
                                                std::size_t length, std::uint32_t want_ahead) {
  std::vector<std::byte> bytes(length);
  std::size_t done = 0;
  while (done < length) {
    RDFS_ASSIGN_OR_RETURN(const Buffer buffer, TakeBuffer(lane_->buffers(), length - done));
    const std::size_t piece = std::min(buffer.size(), length - done);
    RDFS_ASSIGN_OR_RETURN(const ReadDone got, Await<ReadDone>([&](auto callback) {
                            lane_->Read(context_, open, offset + done, buffer.Slice(0, piece),
                                        want_ahead, std::move(callback));
                          }));
    std::copy_n(buffer.bytes().begin(), got.length,
                bytes.begin() + static_cast<std::ptrdiff_t>(done));
    done += got.length;
    if (got.length < piece) break;
  }
  bytes.resize(done);
  return bytes;
}

Result<WriteDone> SyncClient::Write(const OpenPtr& open, std::uint64_t offset, ByteSpan bytes,
                                    std::uint32_t flags) {
  WriteDone total{.offset = offset};
  do {
    const ByteSpan rest = bytes.subspan(total.written);
    RDFS_ASSIGN_OR_RETURN(const Buffer buffer,
                          TakeBuffer(lane_->buffers(), std::max<std::size_t>(1, rest.size())));
    const std::size_t piece = std::min({buffer.size(), rest.size(), kPieceBytes});
    std::copy_n(rest.begin(), piece, buffer.bytes().begin());
    RDFS_ASSIGN_OR_RETURN(const WriteDone got, Await<WriteDone>([&](auto callback) {
                            lane_->Write(context_, open, offset + total.written,
                                         buffer.Slice(0, piece), flags, std::move(callback));
                          }));
    if (total.written == 0) total.offset = got.offset;
    total.written += got.written;
    total.file_size = got.file_size;
    total.change = got.change;
    if (got.written == 0) break;
  } while (total.written < bytes.size());
  return total;
}

Status SyncClient::FlushFile(const OpenPtr& open, std::uint64_t lock_owner) {
  return AwaitDone(
      [&](auto done) { lane_->FlushFile(context_, open, lock_owner, std::move(done)); });
}

Status SyncClient::Release(OpenPtr open) {
  return AwaitDone([&](auto done) { lane_->Release(context_, std::move(open), std::move(done)); });
}

Status SyncClient::Fsync(const OpenPtr& open, bool data_only) {
  return AwaitDone([&](auto done) { lane_->Fsync(context_, open, data_only, std::move(done)); });
}

Result<Attributes> SyncClient::Fallocate(const OpenPtr& open, std::uint32_t mode,
                                         std::uint64_t offset, std::uint64_t length) {
  return Await<Attributes>(
      [&](auto done) { lane_->Fallocate(context_, open, mode, offset, length, std::move(done)); });
}

Result<std::uint64_t> SyncClient::Seek(const OpenPtr& open, std::uint64_t offset,
                                       std::uint32_t whence) {
  return Await<std::uint64_t>(
      [&](auto done) { lane_->Seek(context_, open, offset, whence, std::move(done)); });
}

Result<WriteDone> SyncClient::CopyFileRange(const OpenPtr& from, std::uint64_t from_offset,
                                            const OpenPtr& to, std::uint64_t to_offset,
                                            std::uint64_t length) {
  return Await<WriteDone>([&](auto done) {
    lane_->CopyFileRange(context_, from, from_offset, to, to_offset, length, 0, std::move(done));
  });
}

Result<OpenPtr> SyncClient::OpenDir(const Handle& handle) {
  RDFS_ASSIGN_OR_RETURN(const OpenedDirectory opened, Await<OpenedDirectory>([&](auto done) {
                          lane_->OpenDir(context_, handle, 0, std::move(done));
                        }));
  return opened.open;
}

Result<std::vector<SyncClient::ListedEntry>> SyncClient::ReadDir(const OpenPtr& open,
                                                                 std::uint64_t cookie, bool plus,
                                                                 std::uint32_t max_bytes) {
  bool over = false;
  Status status;
  std::vector<ListedEntry> entries;
  lane_->ReadDir(context_, open, cookie, max_bytes, plus, [&](Result<DirPage>&& page) {
    over = true;
    status = page.status();
    if (!page.ok()) return;
    while (const std::optional<DirEntry> entry = page->Next()) {
      entries.push_back({.name = std::string(entry->name),
                         .ino = entry->ino,
                         .cookie = entry->cookie,
                         .type = entry->type,
                         .file = entry->file});
    }
  });
  RunUntil(over);
  if (!status.ok()) return status;
  return entries;
}

Result<std::vector<SyncClient::ListedEntry>> SyncClient::List(const Handle& handle, bool plus) {
  RDFS_ASSIGN_OR_RETURN(const OpenPtr open, OpenDir(handle));
  std::vector<ListedEntry> all;
  while (true) {
    const std::uint64_t behind = all.empty() ? 0 : all.back().cookie;
    Result<std::vector<ListedEntry>> page = ReadDir(open, behind, plus);
    const bool advances = !page.ok() || page->empty() || page->back().cookie != behind;
    if (!advances || all.size() > kMostEntries) page = Status(Code::kErrno, EIO, {});
    if (!page.ok() || page->empty()) {
      const Status released = Release(open);
      if (!page.ok()) return page.status();
      if (!released.ok()) return released;
      return all;
    }
    std::move(page->begin(), page->end(), std::back_inserter(all));
  }
}

Status SyncClient::FsyncDir(const OpenPtr& open) {
  return AwaitDone([&](auto done) { lane_->FsyncDir(context_, open, false, std::move(done)); });
}

Result<Lock> SyncClient::GetLock(const OpenPtr& open, const Lock& lock, bool flock) {
  return Await<Lock>(
      [&](auto done) { lane_->GetLock(context_, open, lock, flock, std::move(done)); });
}

Status SyncClient::SetLock(const OpenPtr& open, const Lock& lock, bool flock, bool wait) {
  return AwaitDone(
      [&](auto done) { lane_->SetLock(context_, open, lock, flock, wait, std::move(done)); });
}

}  // namespace rdfs::fs::client
