// Values of the file system's protocol that both ends take apart: names, handles, listings, ACLs,
// extensions.
#include <algorithm>

#include "fs/client/decode.h"
#include "fs/client/types.h"
#include "server/inode/handle.h"
#include "server/ops/acl_ids.h"
#include "tests/fuzz/fuzz.h"

namespace rdfs::fuzz {
namespace {

void CheckName(ByteSpan input) {
  ByteReader reader(input);
  const std::string_view name = AsText(fs::ReadName(reader));
  if (!reader.ok()) return;
  Require(!name.empty() && name.size() <= fs::kMaxNameBytes, "a name's length");
  Require(
      name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos,
      "a name is one");
}

void CheckEntry(ByteSpan input) {
  ByteReader reader(input);
  const fs::Entry entry = fs::ReadEntry(reader);
  if (!reader.ok()) return;
  Bytes out(512);
  ByteWriter writer(out);
  fs::WriteEntry(writer, entry);
  Require(Equal(writer.written(), input.first(input.size() - reader.remaining())), "an entry");
  (void)fs::ToErrno(static_cast<fs::WireError>(std::uint16_t{Le16(entry.attr.mode & 0xffffU)}));
}

void CheckPage(ByteSpan input, bool plus) {
  fs::client::DirPage page(input, plus, TimePoint{});
  if (!page.Check()) return;
  std::size_t entries = 0;
  while (const auto entry = page.Next()) {
    ++entries;
    Require(!entry->name.empty() && entry->name.find('/') == entry->name.npos &&
                entry->name.find('\0') == entry->name.npos,
            "a listed name is one");
    Require(entry->name.data() >= AsText(input).data() &&
                entry->name.data() + entry->name.size() <= AsText(input).data() + input.size(),
            "a listed name is in the page");
  }
  Require(entries <= input.size() / sizeof(fs::DirEntryWire), "entries take room");
}

void CheckHandle(ByteSpan input) {
  static const server::HandleCodec codec(server::HandleSecret::Random(), "x", {});
  const auto handle = fs::Handle::FromBytes(input);
  if (handle) Require(!codec.Decode(*handle), "nobody makes up a handle");
  server::NativeHandle native;
  native.kind = server::NativeHandle::Kind::kFileHandle;
  native.size = std::min(input.size(), native.bytes.size() - 1);
  if (native.size > 0) std::memcpy(native.bytes.data(), input.data(), native.size);
  const auto again = codec.Decode(codec.Encode(native));
  Require(again && again->size == native.size && again->bytes == native.bytes, "a handle");
}

void CheckAcl(ByteSpan input) {
  Bytes value(input.begin(), input.end());
  const auto more = [](std::uint32_t id) { return id + 1; };
  const auto less = [](std::uint32_t id) { return id - 1; };
  server::MapAclIds(value, more, more);
  server::MapAclIds(value, less, less);
  Require(Equal(value, input), "mapping back is what was");
}

void CheckExtensions(ByteSpan input) {
  ByteReader reader(input);
  fs::RequestExtensions extensions{};
  const fs::WireError error = fs::ReadRequestExtensions(reader, extensions);
  Require(extensions.transport.size() <= fs::kMaxTransportBytes, "what a client says is bounded");
  Require(extensions.answered.size() <= fs::kMostAnswered * sizeof(Le64), "so are its numbers");
  Require(error != fs::WireError::kOk || reader.remaining() == 0, "extensions go to the end");
}

void CheckWords(ByteSpan input) {
  Pieces pieces(input);
  const auto opcode = static_cast<fs::Opcode>(std::uint16_t{pieces.Read<Le16>()});
  (void)fs::OpcodeName(opcode);
  for (const std::size_t at : fs::NamesInBody(opcode)) Require(at < 64, "a name's place");
  const std::uint32_t flags = pieces.Read<Le32>();
  const std::uint32_t same = fs::OpenFlagsToWire(fs::OpenFlagsFromWire(flags));
  Require(fs::OpenFlagsFromWire(same) == fs::OpenFlagsFromWire(flags), "open's flags");
  Require(fs::ToErrno(static_cast<fs::WireError>(std::uint16_t{pieces.Read<Le16>()})) >= 0,
          "errno");
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 8) {
    case 0:
      return CheckName(rest);
    case 1:
      return CheckEntry(rest);
    case 2:
      return CheckPage(rest, true);
    case 3:
      return CheckPage(rest, false);
    case 4:
      return CheckHandle(rest);
    case 5:
      return CheckAcl(rest);
    case 6:
      return CheckWords(rest);
    default:
      return CheckExtensions(rest);
  }
}

std::vector<Bytes> Seeds() {
  Bytes name, entry(512), page, acl;
  PutSized16(name, AsBytes("a name"));
  ByteWriter writer(entry);
  fs::WriteEntry(writer, {*fs::Handle::FromBytes(AsBytes("a handle")), fs::AttrWire{}, Le32(5)});
  entry.resize(writer.size());
  for (const bool plus : {true, false}) {
    Put(page, fs::DirEntryWire{1, 2, 8});
    PutSized16(page, AsBytes("file"));
    if (plus) {
      Put(page, Le16(1));
      Put(page, entry);
      Put(page, fs::DirEntryWire{1, 3, 4});
      PutSized16(page, AsBytes(".."));
      Put(page, Le16(0));
      Put(page, fs::DirEntryWire{0, 0, fs::kDirectoryEnd});
    }
  }
  Put(acl, Le32(2));
  for (const unsigned tag : {1U, 2U, 4U, 8U, 16U, 32U}) {
    Put(acl, Le16(static_cast<std::uint16_t>(tag)));
    Put(acl, Le16(4));
    Put(acl, Le32(7));
  }
  Bytes extension(16);
  ByteWriter transport(extension);
  fs::WriteTransportExtension(transport, "shm");
  extension.resize(transport.size());
  Bytes answered(fs::kMaxAnsweredExtensionBytes);
  ByteWriter numbers(answered);
  fs::WriteAnsweredExtension(numbers, std::array<std::uint64_t, fs::kMostAnswered>{1, 2, 3});
  Bytes plain;
  Put(plain, fs::DirEntryWire{1, 2, 8});
  PutSized16(plain, AsBytes("file"));
  page.resize(page.size() - plain.size());
  return {Of(0, name),
          Of(1, entry),
          Of(2, page),
          Of(3, plain),
          Of(4, entry),
          Of(5, acl),
          Of(6, Bytes(8, std::byte{3})),
          Of(7, extension),
          Of(7, answered)};
}

}  // namespace rdfs::fuzz
