// A batch of rdcp as a hostile far end may have filled it: what its records say, and in what order.
#include "tests/fuzz/fuzz.h"
#include "tools/copy/file/names.h"
#include "tools/copy/remote/records.h"

namespace rdfs::fuzz {
namespace {

using namespace copy;

bool IsComponent(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('\0') == name.npos;
}

// Relative, of components that are names: nothing that could leave DST.
void CheckPath(std::string_view path) {
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    Require(IsComponent(path.substr(0, slash)), "a path stays beneath its directory");
    if (slash == path.npos) return;
    path.remove_prefix(slash + 1);
    Require(!path.empty(), "a path does not end in a slash");
  }
}

void CheckEntry(const Entry& entry) {
  CheckPath(entry.path);
  Require(entry.size <= kMaxFileBytes, "a size is bounded");
  Require(entry.xattrs.size() <= kMaxXattrs, "attributes are bounded");
  Require(entry.target.find('\0') == entry.target.npos, "a target has no NUL");
}

}  // namespace

void Run(ByteSpan input) {
  RecordRules rules(2);
  BatchReader reader(input);
  const auto inside = [&](ByteSpan content) {
    if (content.empty()) return;
    Require(content.data() >= input.data() &&
                content.data() + content.size() <= input.data() + input.size(),
            "content is in the batch");
  };
  while (true) {
    const auto record = reader.Next();
    if (!record.ok() || !*record) break;
    if (!rules.Check(**record).ok()) break;
    if (const auto* entry = std::get_if<EntryRecord>(&**record)) {
      CheckEntry(entry->entry);
      inside(entry->content);
    }
    if (const auto* leave = std::get_if<LeaveRecord>(&**record)) CheckPath(leave->entry.path);
    if (const auto* piece = std::get_if<PieceRecord>(&**record)) inside(piece->content);
  }
  (void)rules.CheckEnd(rules.entries());
}

std::vector<Bytes> Seeds() {
  Bytes slot(8192);
  const auto filled = [&](const auto& fill) {
    BatchWriter writer(slot);
    fill(writer);
    return Bytes(writer.written().begin(), writer.written().end());
  };
  Entry directory;
  directory.path = "d";
  directory.kind = copy::Kind::kDirectory;
  Entry file = directory;
  file.path = "d/file";
  file.kind = copy::Kind::kFile;
  file.size = 5;
  file.xattrs = {{"user.a", "value"}};
  Entry link = directory;
  link.path = "l";
  link.kind = copy::Kind::kSymlink;
  link.target = "../target";
  const Bytes tree = filled([&](BatchWriter& writer) {
    writer.Add(directory, 0, 0);
    (void)writer.AddWhole(file, 1, 0, [](MutableByteSpan place) -> Result<std::size_t> {
      std::memset(place.data(), 'x', 5);
      return std::size_t{5};
    });
    writer.AddLeave(0, "d");
    writer.Add(link, 2, 0);
  });
  file.size = 100;
  const Bytes pieces = filled([&](BatchWriter& writer) {
    writer.Add(file, 0, 0);
    writer.AddPiece(0, 0, 50);
    writer.AddFileEnd({0, 100, 50, false});
  });
  const Bytes offer = filled(
      [&](BatchWriter& writer) { writer.AddOffer(file, 0, EntryWire::kResumable, Digest{}); });
  return {tree, pieces, offer};
}

}  // namespace rdfs::fuzz
