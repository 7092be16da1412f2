#include "fs/client/types.h"

#include <algorithm>

#include "fs/client/decode.h"

namespace rdfs::fs::client {
namespace {

// Nothing is cached for longer, whatever a server says: beyond it the arithmetic means nothing.
constexpr std::uint32_t kLongestLeaseMs = 3'600'000;

// As ReadName, but a listing also carries "." and "..".
std::string_view ReadListedName(ByteReader& reader) {
  const std::string_view name = AsText(reader.ReadSized16(kMaxNameBytes));
  if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos) reader.Fail();
  return name;
}

DirEntry ReadDirEntry(ByteReader& reader, bool plus, TimePoint asked) {
  const auto wire = reader.Read<DirEntryWire>();
  DirEntry entry{.ino = wire.ino, .cookie = wire.cookie, .type = wire.type};
  entry.name = ReadListedName(reader);
  if (!plus) return entry;
  const std::uint16_t has_file = reader.Read<Le16>();
  if (has_file > 1) reader.Fail();
  if (has_file == 1) entry.file = DecodeNamedFile(reader, asked);
  return entry;
}

// Whether that is all that is left of a page: too short for an entry, which has a name.
bool IsEnd(ByteSpan rest) {
  if (rest.size() != sizeof(DirEntryWire)) return false;
  return ByteReader(rest).Read<DirEntryWire>().type == kDirectoryEnd;
}

}  // namespace

std::chrono::nanoseconds LeaseLength(std::uint32_t lease_ms) {
  const std::chrono::nanoseconds lease =
      std::chrono::milliseconds(std::min(lease_ms, kLongestLeaseMs));
  return lease - lease / 100;
}

TimePoint LeaseEnd(TimePoint asked, std::uint32_t lease_ms) {
  return asked + LeaseLength(lease_ms);
}

std::optional<DirEntry> DirPage::Next() {
  if (IsEnd(rest_)) {
    ends_directory_ = true;
    rest_ = {};
  }
  if (rest_.empty()) return std::nullopt;
  ByteReader reader(rest_);
  DirEntry entry = ReadDirEntry(reader, plus_, asked_);
  rest_ = reader.ok() ? reader.rest() : ByteSpan{};
  if (!reader.ok()) return std::nullopt;
  return entry;
}

bool DirPage::Check() const {
  ByteReader reader(rest_);
  while (reader.ok() && reader.remaining() > 0 && !IsEnd(reader.rest())) {
    (void)ReadDirEntry(reader, plus_, asked_);
  }
  return reader.ok();
}

NamedFile DecodeNamedFile(ByteReader& reader, TimePoint asked) {
  const Entry entry = ReadEntry(reader);
  return {.handle = entry.handle,
          .attr = entry.attr,
          .attr_expires = LeaseEnd(asked, entry.attr.lease_ms),
          .name_expires = LeaseEnd(asked, entry.entry_lease_ms)};
}

Attributes DecodeAttributes(ByteReader& reader, TimePoint asked) {
  const auto attr = reader.Read<AttrWire>();
  return {.attr = attr, .expires = LeaseEnd(asked, attr.lease_ms)};
}

std::vector<Handle> HandlesToFind(Opcode opcode, ByteSpan body) {
  ByteReader reader(body);
  std::vector<Handle> handles;
  const auto take = [&] { handles.push_back(ReadHandle(reader)); };
  switch (opcode) {
    case Opcode::kMkdir:
    case Opcode::kMknod:
      (void)reader.Read<MknodRequest>();
      take();
      break;
    case Opcode::kCreate:
      (void)reader.Read<CreateRequest>();
      take();
      break;
    case Opcode::kRename:
      (void)reader.Read<RenameRequest>();
      take();
      (void)ReadName(reader);
      take();
      break;
    case Opcode::kSetXattr:
      (void)reader.Read<SetXattrRequest>();
      take();
      break;
    case Opcode::kLink:
      take();
      take();
      break;
    case Opcode::kSymlink:
    case Opcode::kUnlink:
    case Opcode::kRmdir:
    case Opcode::kRemoveXattr:
      take();
      break;
    default:
      break;
  }
  if (!reader.ok()) handles.clear();
  return handles;
}

}  // namespace rdfs::fs::client
