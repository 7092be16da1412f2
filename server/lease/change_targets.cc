#include "server/lease/change_targets.h"

#include <sys/stat.h>

#include <optional>

namespace rdfs::server {
namespace {

using fs::Opcode;
using Targets = std::vector<LeaseService::Target>;

void Add(Targets& targets, const InodePtr& inode, std::uint32_t parts, std::string name = {}) {
  targets.push_back(MakeTarget(*inode, parts, std::move(name)));
}

void AddFile(Targets& targets, const Call& call, const fs::Handle& handle, std::uint32_t parts) {
  const InodeRef ref = call.Find(handle);
  if (ref.ok()) Add(targets, ref.inode, parts);
}

void AddOpen(Targets& targets, const Call& call, std::uint64_t number,
             std::uint32_t parts = fs::kRecallAttributes | fs::kRecallContent) {
  const OpenPtr open = call.session.FindOpen(number);
  if (open) Add(targets, open->inode, parts);
}

// The next parent and name of the body.
struct Place {
  InodeRef parent;
  std::string name;
};
std::optional<Place> FindPlace(const Call& call, ByteReader& body) {
  const fs::Handle handle = fs::ReadHandle(body);
  std::string name = NameFrom(fs::ReadName(body));
  if (!body.ok()) return std::nullopt;
  InodeRef parent = call.Find(handle);
  if (!parent.ok()) return std::nullopt;
  return Place{std::move(parent), std::move(name)};
}

// What is there now.
void AddChild(Targets& targets, const Call& call, const Place& place, std::uint32_t parts) {
  struct statx stat {};
  const InodeRef child = call.session.inodes().Lookup(place.parent, place.name, stat);
  if (child.ok()) Add(targets, child.inode, parts);
}

// The next name of the body, and with `parts` what is there now.
void AddName(Targets& targets, const Call& call, ByteReader& body, std::uint32_t parts) {
  const std::optional<Place> place = FindPlace(call, body);
  if (!place) return;
  Add(targets, place->parent.inode, fs::kRecallAttributes | fs::kRecallName, place->name);
  if (parts != 0) AddChild(targets, call, *place, parts);
}

bool Truncates(const Call& call) {
  ByteReader body(call.body.rest());
  if (call.opcode == Opcode::kOpen) {
    return (body.Read<fs::OpenRequest>().flags & fs::kOpenTruncate) != 0;
  }
  return (body.Read<fs::CreateRequest>().flags & fs::kOpenTruncate) != 0;
}

}  // namespace

LeaseService::Target MakeTarget(const Inode& inode, std::uint32_t parts, std::string name) {
  return {.inode = inode.key,
          .handle = inode.handle,
          .parts = parts,
          .name = std::move(name),
          .directory = S_ISDIR(inode.type)};
}

bool ChangesSomething(const Call& call) {
  if (call.opcode == Opcode::kOpen) return Truncates(call);
  // These two change nothing that anybody has a lease on.
  return fs::IsMutating(call.opcode) && call.opcode != Opcode::kTmpfile &&
         call.opcode != Opcode::kSetLock;
}

std::vector<LeaseService::Target> TargetsOf(const Call& call) {
  constexpr std::uint32_t kAttributes = fs::kRecallAttributes;
  constexpr std::uint32_t kAll = fs::kRecallAttributes | fs::kRecallContent;
  Targets targets;
  ByteReader body(call.body.rest());
  switch (call.opcode) {
    case Opcode::kSymlink:
      AddName(targets, call, body, 0);
      break;
    case Opcode::kMknod:
    case Opcode::kMkdir:
      (void)body.Read<fs::MknodRequest>();
      AddName(targets, call, body, 0);
      break;
    case Opcode::kUnlink:
    case Opcode::kRmdir:
      AddName(targets, call, body, kAttributes);
      break;
    case Opcode::kRename:
      (void)body.Read<fs::RenameRequest>();
      AddName(targets, call, body, kAttributes);
      AddName(targets, call, body, kAttributes);
      break;
    case Opcode::kLink:
      AddFile(targets, call, fs::ReadHandle(body), kAttributes);
      AddName(targets, call, body, 0);
      break;
    case Opcode::kSetAttr: {
      const bool size = (body.Read<fs::SetAttrRequest>().valid & fs::kSetSize) != 0;
      AddFile(targets, call, fs::ReadHandle(body), size ? kAll : kAttributes);
      break;
    }
    case Opcode::kSetXattr:
      (void)body.Read<fs::SetXattrRequest>();
      AddFile(targets, call, fs::ReadHandle(body), kAttributes);
      break;
    case Opcode::kRemoveXattr:
      AddFile(targets, call, fs::ReadHandle(body), kAttributes);
      break;
    case Opcode::kOpen:
      (void)body.Read<fs::OpenRequest>();
      AddFile(targets, call, fs::ReadHandle(body), kAll);
      break;
    case Opcode::kCreate:
      (void)body.Read<fs::CreateRequest>();
      AddName(targets, call, body, Truncates(call) ? kAll : 0);
      break;
    case Opcode::kWrite:
      AddOpen(targets, call, body.Read<fs::WriteRequest>().open);
      break;
    case Opcode::kCommit:
      AddOpen(targets, call, body.Read<fs::CommitRequest>().open);
      break;
    case Opcode::kFallocate:
      AddOpen(targets, call, body.Read<fs::FallocateRequest>().open);
      break;
    case Opcode::kCopyFileRange:
      AddOpen(targets, call, body.Read<fs::CopyFileRangeRequest>().open_out);
      break;
    default:
      break;
  }
  return targets;
}

LeaseTable::Purpose PurposeOf(const Call& call) {
  using Purpose = LeaseTable::Purpose;
  if (!ChangesSomething(call)) return Purpose::kLook;
  ByteReader body(call.body.rest());
  std::uint32_t flags = 0;
  if (call.opcode == Opcode::kWrite) flags = body.Read<fs::WriteRequest>().flags;
  if (call.opcode == Opcode::kCommit) flags = body.Read<fs::CommitRequest>().flags;
  // Its program was told of it before, under a lease that nobody else had one beside.
  return (flags & fs::kWriteEarly) != 0 ? Purpose::kLeasedWrite : Purpose::kChange;
}

std::vector<LeaseService::Target> LookedAt(const Call& call) {
  constexpr std::uint32_t kAttributes = fs::kRecallAttributes;
  Targets targets;
  ByteReader body(call.body.rest());
  switch (call.opcode) {
    case Opcode::kCreate:
    case Opcode::kLookup:
      if (call.opcode == Opcode::kCreate) (void)body.Read<fs::CreateRequest>();
      if (const auto place = FindPlace(call, body)) AddChild(targets, call, *place, kAttributes);
      break;
    case Opcode::kGetAttr: {
      const OpenPtr open = call.session.FindOpen(body.Read<fs::GetAttrRequest>().open);
      const fs::Handle handle = fs::ReadHandle(body);
      if (open && open->inode->handle == handle) {
        Add(targets, open->inode, kAttributes);
      } else {
        AddFile(targets, call, handle, kAttributes);
      }
      break;
    }
    case Opcode::kOpen:
      (void)body.Read<fs::OpenRequest>();
      AddFile(targets, call, fs::ReadHandle(body), kAttributes);
      break;
    case Opcode::kGetXattr:
    case Opcode::kListXattr:
      (void)body.Read<fs::GetXattrRequest>();
      AddFile(targets, call, fs::ReadHandle(body), kAttributes);
      break;
    case Opcode::kRead:
      AddOpen(targets, call, body.Read<fs::ReadRequest>().open, kAttributes);
      break;
    case Opcode::kSeek:
      AddOpen(targets, call, body.Read<fs::SeekRequest>().open, kAttributes);
      break;
    case Opcode::kCopyFileRange:
      AddOpen(targets, call, body.Read<fs::CopyFileRangeRequest>().open_in, kAttributes);
      break;
    default:
      break;
  }
  std::erase_if(targets, [](const LeaseService::Target& target) { return target.directory; });
  return targets;
}

}  // namespace rdfs::server
