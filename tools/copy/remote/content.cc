#include "tools/copy/remote/content.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "tools/copy/file/compare.h"
#include "tools/copy/file/data.h"
#include "tools/pipe/wire/digest.h"

namespace rdfs::copy {
namespace {

// Part of what both ends agree on: the digest is one of digests of so many bytes.
constexpr std::size_t kPiece = 1 << 20;

}  // namespace

Result<Digest> ContentDigest(File& file, std::uint64_t size, const pipe::StopFlag& stop) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPiece, size));
  pipe::StreamDigest all;
  for (std::uint64_t at = 0; at < size;) {
    const MutableByteSpan piece =
        MutableByteSpan(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at));
    RDFS_ASSIGN_OR_RETURN(const std::size_t got, ReadFully(file, at, piece, stop));
    if (got < piece.size()) return BecameShorter();
    all.Add(at, piece.size(), pipe::DigestOf(piece));
    at += piece.size();
  }
  return all.Value();
}

Status CheckWritten(OutputFile& output, std::uint64_t size, std::span<const Written> written,
                    const pipe::StopFlag& stop) {
  RDFS_RETURN_IF_ERROR(output.SetLength(size));
  RDFS_RETURN_IF_ERROR(DropCache(output.file()));
  std::vector<std::byte> buffer;
  for (const Written& each : written) {
    buffer.resize(each.length);
    RDFS_ASSIGN_OR_RETURN(const std::size_t got,
                          ReadFully(output.file(), each.offset, buffer, stop));
    if (got == buffer.size() && pipe::DigestOf(buffer) == each.digest) continue;
    return {Code::kErrno, EIO, "what was written is not what was sent: a disk is failing"};
  }
  return {};
}

}  // namespace rdfs::copy
