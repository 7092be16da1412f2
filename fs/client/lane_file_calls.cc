// The plain calls about open files, directories and locks: what each sends, and how its answer is
// read. One request, one answer.
#include <algorithm>
#include <cerrno>

#include "fs/client/lane_impl.h"
#include "fs/client/plain_calls.h"

namespace rdfs::fs::client {

OpenPtr LaneImpl::NewOpen(const Handle& handle, std::uint32_t flags, bool directory,
                          const OpenReply& reply, Opener opener) {
  std::shared_ptr<InodeState> inode = mount_.InodeFor(handle);
  SeeChange(*inode, reply.attr.change);
  auto open = std::make_shared<OpenFile>(std::move(inode), flags, directory);
  open->SetOpener(opener.uid, opener.gid);
  open->set_server_open(reply.open);
  open->set_incarnation(incarnation_);
  mount_.Remember(open);
  return open;
}

void LaneImpl::SeeChange(InodeState& inode, std::uint64_t change) {
  if (inode.change.load(std::memory_order_acquire) == change) return;
  grants_.OwnChange(inode, 0, UINT64_MAX);
  inode.change.store(change, std::memory_order_release);
}

void LaneImpl::SeeChange(const Handle& handle, std::uint64_t change) {
  if (const auto inode = mount_.FindInode(handle)) SeeChange(*inode, change);
}

CallTicket LaneImpl::Open(const CallContext& context, const Handle& handle, std::uint32_t flags,
                          Callback<Opened> done) {
  Completion completion = Decoded<Opened>(
      std::move(done), [this, flags, opener = Opener{context.uid, context.gid}](Answer& answer) {
        ByteReader request(answer.request);
        request.Read<OpenRequest>();
        const auto reply = answer.body.Read<OpenReply>();
        Opened opened;
        opened.attributes = {.attr = reply.attr,
                             .expires = LeaseEnd(answer.asked, reply.attr.lease_ms)};
        opened.write_lease = LeaseEnd(answer.asked, reply.write_lease_ms);
        if (answer.body.ok())
          opened.open = NewOpen(ReadHandle(request), flags, false, reply, opener);
        return opened;
      });
  return Issue(context, Opcode::kOpen, std::move(completion), [&](ByteWriter& writer) {
    writer.Write(OpenRequest{.flags = flags});
    WriteHandle(writer, handle);
  });
}

// kCreate and kTmpfile; where the file was made stands in the request.
Completion LaneImpl::CreatedCompletion(Opener opener, std::uint32_t flags, bool named,
                                       Callback<Created> done) {
  return Decoded<Created>(std::move(done), [this, flags, named, opener](Answer& answer) {
    const auto reply = answer.body.Read<OpenReply>();
    Created created;
    created.file = DecodeNamedFile(answer.body, answer.asked);
    if (!answer.body.ok()) return created;
    created.write_lease = LeaseEnd(answer.asked, reply.write_lease_ms);
    created.open = NewOpen(created.file.handle, flags, false, reply, opener);
    if (!named) return created;
    ByteReader request(answer.request);
    request.Read<CreateRequest>();
    const Handle parent = ReadHandle(request);
    created.open->SetHint(parent, AsText(ReadName(request)));
    return created;
  });
}

CallTicket LaneImpl::Create(const CallContext& context, const Handle& parent, std::string_view name,
                            std::uint32_t flags, std::uint32_t mode, std::uint32_t umask,
                            Callback<Created> done) {
  Completion completion =
      CreatedCompletion({context.uid, context.gid}, flags, true, std::move(done));
  if (const int error = CheckName(name); error != 0) {
    return Refuse(std::move(completion), error);
  }
  return Issue(context, Opcode::kCreate, std::move(completion), [&](ByteWriter& writer) {
    writer.Write(CreateRequest{.flags = flags, .mode = mode, .umask = umask});
    WriteHandle(writer, parent);
    writer.WriteSized16(AsBytes(name));
  });
}

CallTicket LaneImpl::Tmpfile(const CallContext& context, const Handle& parent, std::uint32_t flags,
                             std::uint32_t mode, std::uint32_t umask, Callback<Created> done) {
  return Issue(context, Opcode::kTmpfile,
               CreatedCompletion({context.uid, context.gid}, flags, false, std::move(done)),
               [&](ByteWriter& writer) {
                 writer.Write(TmpfileRequest{.flags = flags, .mode = mode, .umask = umask});
                 WriteHandle(writer, parent);
               });
}

CallTicket LaneImpl::FlushFile(const CallContext& context, const OpenPtr& open,
                               std::uint64_t lock_owner, DoneCallback done) {
  open->inode().locks.DropOwner(lock_owner);
  Completion completion = [open, done = std::move(done)](Answer& answer) mutable {
    const bool well_formed = !answer.status.ok() || answer.body.remaining() == 0;
    const int error = well_formed ? open->LossSince() : EIO;
    done(error != 0 ? Status(Code::kErrno, error, {}) : std::move(answer.status));
    return well_formed;
  };
  if (table_.full()) {
    owed_.push_back({context, open, Owed::Flush{lock_owner, open->inode().locks.asked()}});
    ready_.push_back({.completion = std::move(completion), .status = Status::Ok()});
    return 0;
  }
  return Issue(
      context, Opcode::kFlush, std::move(completion),
      [&](ByteWriter& writer) { writer.Write(FlushRequest{.open = 0, .lock_owner = lock_owner}); },
      open);
}

CallTicket LaneImpl::Release(const CallContext& context, OpenPtr open, DoneCallback done) {
  const Opcode opcode = open->directory() ? Opcode::kReleaseDir : Opcode::kRelease;
  open->inode().locks.DropOpen(open.get());
  if (table_.full()) {
    owed_.push_back({context, std::move(open), {}});
    ready_.push_back({.completion = Nothing(std::move(done)), .status = Status::Ok()});
    return 0;
  }
  return Issue(
      context, opcode, Nothing(std::move(done)),
      [&](ByteWriter& writer) { writer.Write(ReleaseRequest{.open = 0}); }, std::move(open));
}

CallTicket LaneImpl::SyncCall(const CallContext& context, Opcode opcode, const OpenPtr& open,
                              bool data_only, DoneCallback done) {
  const std::uint64_t noted = open->inode().unsynced.noted();
  Completion completion = [open, noted, done = std::move(done)](Answer& answer) mutable {
    if (!answer.status.ok()) {
      done(std::move(answer.status));
      return true;
    }
    const auto reply = answer.body.Read<FsyncReply>();
    const bool well_formed = answer.body.ok() && answer.body.remaining() == 0;
    if (well_formed) open->inode().unsynced.Synced(reply.verifier, noted);
    const int error = well_formed ? open->TakeLoss() : EIO;
    done(error != 0 ? Status(Code::kErrno, error, {}) : Status::Ok());
    return well_formed;
  };
  return Issue(
      context, opcode, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(FsyncRequest{.open = 0, .data_only = data_only ? 1U : 0U});
      },
      open);
}

CallTicket LaneImpl::Fsync(const CallContext& context, const OpenPtr& open, bool data_only,
                           DoneCallback done) {
  return SyncCall(context, Opcode::kFsync, open, data_only, std::move(done));
}

CallTicket LaneImpl::FsyncDir(const CallContext& context, const OpenPtr& open, bool data_only,
                              DoneCallback done) {
  return SyncCall(context, Opcode::kFsyncDir, open, data_only, std::move(done));
}

CallTicket LaneImpl::Fallocate(const CallContext& context, const OpenPtr& open, std::uint32_t mode,
                               std::uint64_t offset, std::uint64_t length,
                               Callback<Attributes> done) {
  Completion completion = [this, inode = open->inode_ref(),
                           inner = std::move(done)](Answer& answer) mutable {
    grants_.OwnChange(*inode, 0, UINT64_MAX);
    return AttributesOnly(std::move(inner))(answer);
  };
  return Issue(
      context, Opcode::kFallocate, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(FallocateRequest{.open = 0, .mode = mode, .offset = offset, .length = length});
      },
      open);
}

CallTicket LaneImpl::Seek(const CallContext& context, const OpenPtr& open, std::uint64_t offset,
                          std::uint32_t whence, Callback<std::uint64_t> done) {
  Completion completion = Decoded<std::uint64_t>(std::move(done), [](Answer& answer) {
    return std::uint64_t{answer.body.Read<SeekReply>().offset};
  });
  return Issue(
      context, Opcode::kSeek, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(SeekRequest{.open = 0, .offset = offset, .whence = whence});
      },
      open);
}

CallTicket LaneImpl::CopyFileRange(const CallContext& context, const OpenPtr& from,
                                   std::uint64_t from_offset, const OpenPtr& to,
                                   std::uint64_t to_offset, std::uint64_t length,
                                   std::uint32_t flags, Callback<WriteDone> done) {
  Completion completion = [this, to, length, inner = std::move(done)](Answer& answer) mutable {
    grants_.OwnChange(to->inode(), 0, UINT64_MAX);
    return Decoded<WriteDone>(std::move(inner), [this, &to, length](Answer& reply_to) {
      const auto reply = reply_to.body.Read<WriteReply>();
      if (reply.written > length) reply_to.body.Fail();
      if (reply_to.body.ok() && reply.written > 0) NoteWritten(*to, reply.verifier);
      return WriteDone{.offset = reply.offset,
                       .written = reply.written,
                       .file_size = reply.size,
                       .change = reply.change};
    })(answer);
  };
  Slot slot = kNoSlot;
  Call* call = Begin(context, Opcode::kCopyFileRange, std::move(completion), &slot);
  if (call == nullptr) return 0;
  call->open = from;
  call->other_open = to;
  call->body.Encode([&](ByteWriter& writer) {
    writer.Write(CopyFileRangeRequest{.open_in = 0,
                                      .offset_in = from_offset,
                                      .open_out = 0,
                                      .offset_out = to_offset,
                                      .length = length,
                                      .flags = flags});
  });
  table_.Queue(slot, Opcode::kCopyFileRange);
  return table_.TicketOf(slot);
}

// ---- Directories --------------------------------------------------------------------------------

CallTicket LaneImpl::OpenDir(const CallContext& context, const Handle& handle,
                             std::uint32_t first_page_bytes, Callback<OpenedDirectory> done) {
  Completion completion = Decoded<OpenedDirectory>(
      std::move(done),
      [this, opener = Opener{context.uid, context.gid}](Answer& answer) -> OpenedDirectory {
        ByteReader request(answer.request);
        (void)request.Read<OpenDirRequest>();
        const auto reply = answer.body.Read<OpenReply>();
        OpenedDirectory opened{nullptr, {answer.body.rest(), true, answer.asked}};
        if (!answer.body.ok() || !opened.first_page.Check()) {
          answer.body.Fail();
          return opened;
        }
        (void)answer.body.ReadBytes(answer.body.remaining());
        opened.open = NewOpen(ReadHandle(request), kOpenRead, true, reply, opener);
        return opened;
      });
  return Issue(context, Opcode::kOpenDir, std::move(completion), [&](ByteWriter& writer) {
    writer.Write(
        OpenDirRequest{.max_bytes = std::min<std::uint32_t>(first_page_bytes, kMaxReaddirBytes),
                       .flags = kReadDirTellEnd | kReadDirPlus});
    WriteHandle(writer, handle);
  });
}

CallTicket LaneImpl::ReadDir(const CallContext& context, const OpenPtr& open, std::uint64_t cookie,
                             std::uint32_t max_bytes, bool plus, Callback<DirPage> done) {
  Completion completion = Decoded<DirPage>(std::move(done), [plus](Answer& answer) {
    DirPage page(answer.body.ReadBytes(answer.body.remaining()), plus, answer.asked);
    if (!page.Check()) answer.body.Fail();
    return page;
  });
  return Issue(
      context, Opcode::kReadDir, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(
            ReadDirRequest{.open = 0,
                           .cookie = cookie,
                           .max_bytes = std::min<std::uint32_t>(max_bytes, kMaxReaddirBytes),
                           .flags = kReadDirTellEnd | (plus ? kReadDirPlus : 0U)});
      },
      open);
}

// ---- Locks --------------------------------------------------------------------------------------

CallTicket LaneImpl::LockCall(const CallContext& context, Opcode opcode, const OpenPtr& open,
                              const Lock& lock, std::uint32_t flags, Completion completion) {
  return Issue(
      context, opcode, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(LockRequest{.open = 0,
                                 .owner = lock.owner,
                                 .start = lock.start,
                                 .end = lock.end,
                                 .type = static_cast<std::uint32_t>(lock.type),
                                 .pid = lock.pid,
                                 .flags = flags});
      },
      open);
}

CallTicket LaneImpl::GetLock(const CallContext& context, const OpenPtr& open, const Lock& lock,
                             bool flock, Callback<Lock> done) {
  Completion completion = Decoded<Lock>(std::move(done), [](Answer& answer) {
    const auto reply = answer.body.Read<LockReply>();
    if (reply.type > static_cast<std::uint32_t>(LockType::kUnlock)) answer.body.Fail();
    return Lock{.start = reply.start,
                .end = reply.end,
                .type = static_cast<LockType>(std::uint32_t{reply.type}),
                .pid = reply.pid};
  });
  return LockCall(context, Opcode::kGetLock, open, lock, flock ? kLockFlock : 0,
                  std::move(completion));
}

CallTicket LaneImpl::SetLock(const CallContext& context, const OpenPtr& open, const Lock& lock,
                             bool flock, bool wait, DoneCallback done) {
  CallContext with_timeout = context;
  wait = wait && lock.type != LockType::kUnlock;
  if (wait && !context.timeout) with_timeout.timeout = std::chrono::milliseconds(0);
  Completion completion = [open, done = std::move(done)](Answer& answer) mutable {
    const auto set = ByteReader(answer.request).Read<LockRequest>();
    if (answer.status.ok()) {
      const Lock now{.owner = set.owner,
                     .start = set.start,
                     .end = set.end,
                     .type = static_cast<LockType>(std::uint32_t{set.type}),
                     .pid = set.pid};
      open->inode().locks.Apply({open.get(), (set.flags & kLockFlock) != 0, now});
    }
    done(std::move(answer.status));
    return true;
  };
  open->inode().locks.GiveUp({open.get(), flock, lock});
  const std::uint64_t number = open->inode().locks.Ask();
  const CallTicket ticket =
      LockCall(with_timeout, Opcode::kSetLock, open, lock,
               (flock ? kLockFlock : 0) | (wait ? kLockWait : 0), std::move(completion));
  if (const std::optional<Slot> slot = table_.Find(ticket)) {
    if (wait) table_.MayWait(*slot);
    if (lock.type != LockType::kUnlock) calls_[*slot].lock = number;
  }
  return ticket;
}

}  // namespace rdfs::fs::client
