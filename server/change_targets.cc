#include "server/change_targets.h"

#include <sys/stat.h>

namespace rdfs::server {
namespace {

using fs::Opcode;
using Targets = std::vector<LeaseService::Target>;

void Add(Targets& targets, const InodePtr& inode, std::uint32_t parts, std::string name = {}) {
  targets.push_back({.inode = inode->key,
                     .handle = inode->handle,
                     .parts = parts,
                     .name = std::move(name),
                     .directory = S_ISDIR(inode->type)});
}

void AddFile(Targets& targets, const Call& call, const fs::Handle& handle, std::uint32_t parts) {
  const InodeRef ref = call.Find(handle);
  if (ref.ok()) Add(targets, ref.inode, parts);
}

void AddOpen(Targets& targets, const Call& call, std::uint64_t number) {
  const OpenPtr open = call.session.FindOpen(number);
  if (open) Add(targets, open->inode, fs::kRecallAttributes | fs::kRecallContent);
}

// The next parent and name of the body, and with `parts` what is there now.
void AddName(Targets& targets, const Call& call, ByteReader& body, std::uint32_t parts) {
  const fs::Handle handle = fs::ReadHandle(body);
  const std::string name = NameFrom(fs::ReadName(body));
  if (!body.ok()) return;
  const InodeRef parent = call.Find(handle);
  if (!parent.ok()) return;
  Add(targets, parent.inode, fs::kRecallAttributes | fs::kRecallName, name);
  if (parts == 0) return;
  struct statx stat {};
  const InodeRef child = call.session.inodes().Lookup(parent, name, stat);
  if (child.ok()) Add(targets, child.inode, parts);
}

bool Truncates(const Call& call) {
  ByteReader body(call.body.rest());
  if (call.opcode == Opcode::kOpen) {
    return (body.Read<fs::OpenRequest>().flags & fs::kOpenTruncate) != 0;
  }
  return (body.Read<fs::CreateRequest>().flags & fs::kOpenTruncate) != 0;
}

}  // namespace

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

}  // namespace rdfs::server
