// LocalCopy: one regular file.
#include <array>
#include <cerrno>
#include <optional>

#include "tools/copy/file/compare.h"
#include "tools/copy/file/data.h"
#include "tools/copy/local_copy.h"
#include "tools/copy/source/filter.h"

namespace rdfs::copy {
namespace {

constexpr std::size_t kBuffer = 64 << 10;

// A file that says it is empty and is not: those of /proc.
Status CopyUntilEnd(File& source, OutputFile& out, Entry& entry, std::atomic<std::uint64_t>& moved,
                    const std::atomic<bool>& stop) {
  std::array<std::byte, kBuffer> buffer;  // NOLINT: filled before it is read
  while (!stop) {
    const ssize_t got = source.Read(buffer, entry.size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read");
    if (got == 0) return {};
    const auto length = static_cast<std::size_t>(got);
    RDFS_RETURN_IF_ERROR(out.Write(entry.size, ByteSpan(buffer).first(length)));
    entry.size += length;
    moved += length;
  }
  return Status::FromErrno(EINTR, "stopped");
}

}  // namespace

bool LocalCopy::CopyFile(Scanned& scanned, Verdict verdict) {
  Entry& entry = scanned.entry;
  const timespec judged = entry.mtime;
  const FileId found = entry.id;
  const std::uint32_t links = entry.links;
  const auto source = OpenSource(scanned);
  if (!source.ok()) {
    destination_.Settle(entry, verdict == Verdict::kSame);
    Problem(entry, source.status());
    return false;
  }
  if (scanned.replaced) {
    // The other names of what it was have other content.
    Entry was = entry;
    was.id = found;
    was.links = links;
    destination_.Settle(was, false);
  }
  Status status = ReadRest(scanned, *source, options_.keep);
  if (!status.ok()) Problem(entry, status);  // its content is worth having all the same
  bool skipped = verdict == Verdict::kSame;
  if (verdict == Verdict::kCompare) {
    const auto same = HasContentOf(entry, **source);
    skipped = same.ok() && *same;
    if (skipped) destination_.Settle(entry, true);
  }
  // Changed since it was judged, it is the next run's: which sees it by its time.
  if (verdict == Verdict::kSame) entry.mtime = judged;
  status = skipped ? destination_.Touch(entry) : CopyData(entry, **source);
  if (!status.ok() && !stop_) report_.Failed(Shown(entry), status);
  return status.ok() && !skipped;
}

Status LocalCopy::CopyData(Entry& entry, File& source) {
  RDFS_ASSIGN_OR_RETURN(auto out, destination_.GoOn(entry, stop_));
  if (out == nullptr) {
    RDFS_ASSIGN_OR_RETURN(out, destination_.Begin(entry));
  }
  report_.kept() += out->kept_bytes();
  RDFS_RETURN_IF_ERROR(out->CopyFrom(source, entry.size, {report_.bytes(), stop_, &pace_}));
  if (entry.size == 0) {
    RDFS_RETURN_IF_ERROR(CopyUntilEnd(source, *out, entry, report_.bytes(), stop_));
  }
  if (options_.verify) RDFS_RETURN_IF_ERROR(Verify(entry, source, *out));
  return out->Finish(entry);
}

Status LocalCopy::Verify(const Entry& entry, File& source, OutputFile& out) {
  RDFS_RETURN_IF_ERROR(out.SetLength(entry.size));
  RDFS_RETURN_IF_ERROR(DropCache(out.file()));
  RDFS_ASSIGN_OR_RETURN(const bool same, SameContent(source, out.file(), entry.size, stop_));
  if (same) return {};
  out.Distrust();
  return {Code::kErrno, EIO,
          "what was written is not what was read: it changed meanwhile, or a disk is failing"};
}

Result<bool> LocalCopy::HasContentOf(const Entry& entry, File& source) {
  RDFS_ASSIGN_OR_RETURN(const FilePtr there, destination_.OpenExisting(entry));
  struct stat info {};
  if (there->Stat("", true, info) != 0) return Status::FromErrno(errno, "cannot look at it");
  // The source may have another size than when that was judged.
  if (static_cast<std::uint64_t>(info.st_size) != entry.size) return false;
  return SameContent(source, *there, entry.size, stop_);
}

void CountTree(const Source& source, const ScanOptions& options, const std::atomic<bool>& stop,
               std::atomic<std::uint64_t>& files, std::atomic<std::uint64_t>& bytes) {
  ScanOptions beside = options;
  std::optional<Beside> filter;
  if (options.filter != nullptr) beside.filter = &filter.emplace(*options.filter);
  auto scanner = Scanner::Open(0, source.path, beside, source.from);
  if (!scanner.ok()) return;
  Scanned scanned;
  while (!stop && (*scanner)->Next(scanned)) {
    if (scanned.what != Scanned::What::kEntry) continue;
    ++files;
    bytes += scanned.entry.size;
  }
}

}  // namespace rdfs::copy
