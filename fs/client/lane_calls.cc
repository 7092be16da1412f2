// The plain calls about names, attributes and extended attributes: what each sends, and how its
// answer is read. One request, one answer.
#include <algorithm>
#include <cerrno>

#include "fs/client/lane_impl.h"
#include "fs/client/plain_calls.h"

namespace rdfs::fs::client {
namespace {

constexpr std::size_t kSymlinkBytes = 2 * kMaxPathBytes;
constexpr std::size_t kSetXattrBytes = kMaxXattrValueBytes + 1024;

int CheckXattrName(std::string_view name) {
  if (name.empty() || name.size() > kMaxXattrNameBytes) return ERANGE;
  return name.find('\0') == name.npos ? 0 : EINVAL;
}

// `most`: what was asked for.
Completion Xattr(std::uint32_t most, Callback<XattrReply> done) {
  return Decoded<XattrReply>(std::move(done), [most](Answer& answer) {
    const auto reply = answer.body.Read<GetXattrReply>();
    const ByteSpan value =
        answer.body.ReadSized32(std::min<std::size_t>(most, kMaxXattrValueBytes));
    return XattrReply{.size = reply.size, .value = value};
  });
}

}  // namespace

// ---- Names --------------------------------------------------------------------------------------

CallTicket LaneImpl::NameCall(const CallContext& context, Opcode opcode, const Handle& parent,
                              std::string_view name, Completion completion) {
  if (const int error = CheckName(name); error != 0) {
    return Refuse(std::move(completion), error);
  }
  return Issue(context, opcode, std::move(completion), [&](ByteWriter& writer) {
    WriteHandle(writer, parent);
    writer.WriteSized16(AsBytes(name));
  });
}

CallTicket LaneImpl::Lookup(const CallContext& context, const Handle& parent, std::string_view name,
                            Callback<NamedFile> done) {
  return NameCall(context, Opcode::kLookup, parent, name, File(std::move(done)));
}

CallTicket LaneImpl::Unlink(const CallContext& context, const Handle& parent, std::string_view name,
                            DoneCallback done) {
  return NameCall(context, Opcode::kUnlink, parent, name, Nothing(std::move(done)));
}

CallTicket LaneImpl::Rmdir(const CallContext& context, const Handle& parent, std::string_view name,
                           DoneCallback done) {
  return NameCall(context, Opcode::kRmdir, parent, name, Nothing(std::move(done)));
}

CallTicket LaneImpl::Readlink(const CallContext& context, const Handle& handle,
                              Callback<std::string_view> done) {
  Completion completion = Decoded<std::string_view>(std::move(done), [](Answer& answer) {
    const std::string_view target = AsText(answer.body.ReadSized16(kMaxPathBytes));
    if (target.empty() || target.find('\0') != target.npos) answer.body.Fail();
    return target;
  });
  return Issue(context, Opcode::kReadlink, std::move(completion),
               [&](ByteWriter& writer) { WriteHandle(writer, handle); });
}

CallTicket LaneImpl::Symlink(const CallContext& context, const Handle& parent,
                             std::string_view name, std::string_view target,
                             Callback<NamedFile> done) {
  int error = CheckName(name);
  if (error == 0 && target.size() >= kMaxPathBytes) error = ENAMETOOLONG;
  if (error == 0 && target.empty()) error = ENOENT;
  if (error == 0 && target.find('\0') != target.npos) error = EINVAL;
  if (error != 0) return Refuse(File(std::move(done)), error);
  return Issue(
      context, Opcode::kSymlink, File(std::move(done)),
      [&](ByteWriter& writer) {
        WriteHandle(writer, parent);
        writer.WriteSized16(AsBytes(name));
        writer.WriteSized16(AsBytes(target));
      },
      {}, kSymlinkBytes);
}

CallTicket LaneImpl::Mknod(const CallContext& context, const Handle& parent, std::string_view name,
                           std::uint32_t mode, std::uint32_t umask, DeviceNumber device,
                           Callback<NamedFile> done) {
  if (const int error = CheckName(name); error != 0) {
    return Refuse(File(std::move(done)), error);
  }
  return Issue(context, Opcode::kMknod, File(std::move(done)), [&](ByteWriter& writer) {
    writer.Write(MknodRequest{
        .mode = mode, .umask = umask, .rdev_major = device.major, .rdev_minor = device.minor});
    WriteHandle(writer, parent);
    writer.WriteSized16(AsBytes(name));
  });
}

CallTicket LaneImpl::Mkdir(const CallContext& context, const Handle& parent, std::string_view name,
                           std::uint32_t mode, std::uint32_t umask, Callback<NamedFile> done) {
  if (const int error = CheckName(name); error != 0) {
    return Refuse(File(std::move(done)), error);
  }
  return Issue(context, Opcode::kMkdir, File(std::move(done)), [&](ByteWriter& writer) {
    writer.Write(MknodRequest{.mode = mode, .umask = umask, .rdev_major = 0, .rdev_minor = 0});
    WriteHandle(writer, parent);
    writer.WriteSized16(AsBytes(name));
  });
}

CallTicket LaneImpl::Rename(const CallContext& context, const Handle& old_parent,
                            std::string_view old_name, const Handle& new_parent,
                            std::string_view new_name, std::uint32_t flags, DoneCallback done) {
  int error = CheckName(old_name);
  if (error == 0) error = CheckName(new_name);
  if (error != 0) return Refuse(Nothing(std::move(done)), error);
  return Issue(context, Opcode::kRename, Nothing(std::move(done)), [&](ByteWriter& writer) {
    writer.Write(RenameRequest{.flags = flags});
    WriteHandle(writer, old_parent);
    writer.WriteSized16(AsBytes(old_name));
    WriteHandle(writer, new_parent);
    writer.WriteSized16(AsBytes(new_name));
  });
}

CallTicket LaneImpl::Link(const CallContext& context, const Handle& file, const Handle& new_parent,
                          std::string_view new_name, Callback<NamedFile> done) {
  if (const int error = CheckName(new_name); error != 0) {
    return Refuse(File(std::move(done)), error);
  }
  return Issue(context, Opcode::kLink, File(std::move(done)), [&](ByteWriter& writer) {
    WriteHandle(writer, file);
    WriteHandle(writer, new_parent);
    writer.WriteSized16(AsBytes(new_name));
  });
}

// ---- Attributes ---------------------------------------------------------------------------------

CallTicket LaneImpl::GetAttr(const CallContext& context, const Handle& handle, const OpenPtr& open,
                             Callback<Attributes> done) {
  return Issue(
      context, Opcode::kGetAttr, AttributesOnly(std::move(done)),
      [&](ByteWriter& writer) {
        writer.Write(GetAttrRequest{.open = 0});
        WriteHandle(writer, handle);
      },
      open);
}

CallTicket LaneImpl::SetAttr(const CallContext& context, const Handle& handle, const OpenPtr& open,
                             const SetAttributes& set, Callback<Attributes> done) {
  // Whatever the answer, a new size may be in force from here on.
  std::shared_ptr<InodeState> resized;
  if ((set.valid & kSetSize) != 0) resized = mount_.FindInode(handle);
  Completion completion = [this, resized = std::move(resized),
                           inner = Callback<Attributes>(std::move(done))](Answer& answer) mutable {
    if (resized != nullptr) grants_.OwnChange(*resized, 0, UINT64_MAX);
    return AttributesOnly(std::move(inner))(answer);
  };
  return Issue(
      context, Opcode::kSetAttr, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(SetAttrRequest{.open = 0,
                                    .valid = set.valid,
                                    .mode = set.mode,
                                    .uid = set.uid,
                                    .gid = set.gid,
                                    .size = set.size,
                                    .atime = set.atime,
                                    .mtime = set.mtime});
        WriteHandle(writer, handle);
      },
      open);
}

CallTicket LaneImpl::Access(const CallContext& context, const Handle& handle, std::uint32_t mask,
                            DoneCallback done) {
  return Issue(context, Opcode::kAccess, Nothing(std::move(done)), [&](ByteWriter& writer) {
    writer.Write(AccessRequest{.mask = mask});
    WriteHandle(writer, handle);
  });
}

CallTicket LaneImpl::StatFs(const CallContext& context, const Handle& handle,
                            Callback<client::StatFs> done) {
  Completion completion = Decoded<client::StatFs>(std::move(done), [](Answer& answer) {
    const auto reply = answer.body.Read<StatFsReply>();
    return client::StatFs{.blocks = reply.blocks,
                          .blocks_free = reply.blocks_free,
                          .blocks_available = reply.blocks_available,
                          .files = reply.files,
                          .files_free = reply.files_free,
                          .block_size = reply.block_size,
                          .fragment_size = reply.fragment_size,
                          .name_max = reply.name_max};
  });
  return Issue(context, Opcode::kStatFs, std::move(completion),
               [&](ByteWriter& writer) { WriteHandle(writer, handle); });
}

CallTicket LaneImpl::SetXattr(const CallContext& context, const Handle& handle,
                              std::string_view name, ByteSpan value, std::uint32_t flags,
                              DoneCallback done) {
  int error = CheckXattrName(name);
  if (error == 0 && value.size() > kMaxXattrValueBytes) error = E2BIG;
  if (error != 0) return Refuse(Nothing(std::move(done)), error);
  const bool small = value.size() <= 256;
  return Issue(
      context, Opcode::kSetXattr, Nothing(std::move(done)),
      [&](ByteWriter& writer) {
        writer.Write(SetXattrRequest{.flags = flags});
        WriteHandle(writer, handle);
        writer.WriteSized16(AsBytes(name));
        writer.WriteSized32(value);
      },
      {}, small ? Body::kInlineBodyBytes : kSetXattrBytes);
}

CallTicket LaneImpl::GetXattr(const CallContext& context, const Handle& handle,
                              std::string_view name, std::uint32_t size,
                              Callback<XattrReply> done) {
  if (const int error = CheckXattrName(name); error != 0) {
    return Refuse(Xattr(0, std::move(done)), error);
  }
  return Issue(context, Opcode::kGetXattr, Xattr(size, std::move(done)), [&](ByteWriter& writer) {
    writer.Write(GetXattrRequest{.size = size});
    WriteHandle(writer, handle);
    writer.WriteSized16(AsBytes(name));
  });
}

CallTicket LaneImpl::ListXattr(const CallContext& context, const Handle& handle, std::uint32_t size,
                               Callback<XattrReply> done) {
  return Issue(context, Opcode::kListXattr, Xattr(size, std::move(done)), [&](ByteWriter& writer) {
    writer.Write(GetXattrRequest{.size = size});
    WriteHandle(writer, handle);
  });
}

CallTicket LaneImpl::RemoveXattr(const CallContext& context, const Handle& handle,
                                 std::string_view name, DoneCallback done) {
  if (const int error = CheckXattrName(name); error != 0) {
    return Refuse(Nothing(std::move(done)), error);
  }
  return Issue(context, Opcode::kRemoveXattr, Nothing(std::move(done)), [&](ByteWriter& writer) {
    WriteHandle(writer, handle);
    writer.WriteSized16(AsBytes(name));
  });
}

}  // namespace rdfs::fs::client
