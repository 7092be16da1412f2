#include "tools/copy/file/data.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace rdfs::copy {
namespace {

// What one call of CopyRange is asked for: often enough to be stopped and to be seen.
constexpr std::uint64_t kStep = 16 << 20;
// Read and written at once: what is in a processor's own cache still when it is written; and where
// each piece costs more than its bytes, a round trip or a line in a journal.
constexpr std::size_t kCached = 64 << 10;
constexpr std::size_t kLarge = 256 << 10;
constexpr std::uint64_t kWorthAllocating = 1 << 20;
constexpr std::uint64_t kWorthAThread = 8 << 20;
constexpr std::size_t kThreads = 2;
// To or from an export.
constexpr std::uint64_t kWorthAThreadFar = 2 << 20;
constexpr std::size_t kThreadsFar = 4;
bool CannotAtAll(int error) {
  return error == EXDEV || error == EINVAL || error == EOPNOTSUPP || error == ENOSYS ||
         error == EPERM || error == ETXTBSY;
}

// As far as the file system gets by itself; `span` then begins where it could not go on.
Status CopyRange(Span& span, const Conduct& conduct) {
  while (span.offset < span.end) {
    if (conduct.stop) return Status::FromErrno(EINTR, "stopped");
    const std::size_t length = std::min(kStep, span.end - span.offset);
    const ssize_t got = span.from.CopyRange(span.to, span.offset, length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && !CannotAtAll(errno)) return Status::FromErrno(errno, "cannot copy");
    if (got <= 0) return {};
    span.offset += static_cast<std::uint64_t>(got);
    conduct.moved += static_cast<std::uint64_t>(got);
  }
  return {};
}

Status ReadAndWrite(Span span, MutableByteSpan buffer, const Conduct& conduct) {
  while (span.offset < span.end) {
    if (conduct.stop) return Status::FromErrno(EINTR, "stopped");
    const std::size_t length = std::min<std::uint64_t>(buffer.size(), span.end - span.offset);
    if (conduct.pace != nullptr) conduct.pace->Await(length, conduct.stop);
    const ssize_t got = span.from.Read(buffer.first(length), span.offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read");
    if (got == 0) return BecameShorter();
    const auto size = static_cast<std::size_t>(got);
    RDFS_RETURN_IF_ERROR(WriteFully(span.to, span.offset, buffer.first(size)));
    if (conduct.written) conduct.written(span.offset, buffer.first(size));
    span.offset += size;
    conduct.moved += size;
  }
  return {};
}

// A buffer that nobody fills with zeros first.
class Buffer {
 public:
  explicit Buffer(std::size_t size)
      : size_(size), bytes_(new std::byte[size]) {}  // NOLINT: not make_unique, which would
  MutableByteSpan span() { return {bytes_.get(), size_}; }

 private:
  const std::size_t size_;
  std::unique_ptr<std::byte[]> bytes_;  // NOLINT
};

// Threads take pieces in turn: of two, one reads while the other, who holds the file, writes.
Status ReadAndWriteByMany(const Span& span, const Conduct& conduct, std::size_t threads,
                          std::size_t size) {
  std::atomic<std::uint64_t> next{span.offset};
  std::mutex mutex;
  Status first;
  const auto work = [&] {
    Buffer buffer(size);
    for (;;) {
      const std::uint64_t at = next.fetch_add(size);
      if (at >= span.end) return;
      const Span piece{span.from, span.to, at, std::min(span.end, at + size)};
      Status status = ReadAndWrite(piece, buffer.span(), conduct);
      if (status.ok()) continue;
      next = span.end;
      const std::lock_guard lock(mutex);
      if (first.ok()) first = std::move(status);
      return;
    }
  };
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads here: those that there are will do.
  }
  work();
  for (std::thread& other : others) other.join();
  return first;
}

}  // namespace

Status BecameShorter() { return {Code::kErrno, ENODATA, "it became shorter while it was copied"}; }

Result<std::size_t> ReadFully(File& file, std::uint64_t offset, MutableByteSpan out,
                              const std::atomic<bool>& stop) {
  std::size_t have = 0;
  while (have < out.size()) {
    if (stop) return Status::FromErrno(EINTR, "stopped");
    const ssize_t got = file.Read(out.subspan(have), offset + have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read it");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

Status WriteFully(File& file, std::uint64_t offset, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t done = file.Write(bytes, offset);
    if (done < 0) {
      if (errno == EINTR) continue;
      return Status::FromErrno(errno, "cannot write");
    }
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

Status CopyData(Span span, const Conduct& conduct) {
  const bool far = span.from.descriptor() < 0 || span.to.descriptor() < 0;
  const bool small = span.end - span.offset < (far ? kCached : kWorthAllocating);
  const bool limited = conduct.pace != nullptr && conduct.pace->limited();
  if (!small && !limited && !conduct.written) RDFS_RETURN_IF_ERROR(CopyRange(span, conduct));
  const std::size_t size = far || conduct.written ? kLarge : kCached;
  if (span.end - span.offset >= (far ? kWorthAThreadFar : kWorthAThread)) {
    return ReadAndWriteByMany(span, conduct, far ? kThreadsFar : kThreads, size);
  }
  if (small || size == kCached) {
    std::array<std::byte, kCached> buffer;  // NOLINT: filled before it is read
    return ReadAndWrite(span, buffer, conduct);
  }
  Buffer buffer(size);
  return ReadAndWrite(span, buffer.span(), conduct);
}

}  // namespace rdfs::copy
