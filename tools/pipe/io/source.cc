#include "tools/pipe/io/source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace rdfs::pipe {
namespace {

// The largest that an ordinary user gets (pipe(7), /proc/sys/fs/pipe-max-size).
constexpr int kPipeBytes = 1 << 20;

constexpr std::uint64_t kHoleFlag = std::uint64_t{1} << 63U;

}  // namespace

FrameHead HeadOfFrame(std::uint64_t length, bool hole) {
  return std::bit_cast<FrameHead>(Le64(length | (hole ? kHoleFlag : 0)));
}

Result<std::unique_ptr<Source>> Source::Open(const std::string& path, const StopFlag& stop) {
  Fd fd;
  int number = STDIN_FILENO;
  const std::string name = path.empty() ? "standard input" : path;
  if (!path.empty()) {
    do {
      fd.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    } while (!fd.valid() && errno == EINTR && !stop);
    if (!fd.valid()) return Status::FromErrno(errno, "cannot open " + name);
    number = fd.get();
  }
  struct stat info {};
  if (fstat(number, &info) == 0 && S_ISDIR(info.st_mode)) {
    return Status(Code::kInvalidArgument, EISDIR,
                  name + " is a directory; send what `tar c DIR` writes through a pipe");
  }
  std::unique_ptr<Source> source(new Source(std::move(fd), number, name, stop));
  source->LookAtKind();
  return source;
}

std::unique_ptr<Source> Source::OfPipe(Fd fd, std::shared_ptr<const Head> head,
                                       const std::atomic<std::uint64_t>& length,
                                       const StopFlag& stop, std::function<Fd()> kept) {
  const int number = fd.get();
  std::unique_ptr<Source> source(new Source(std::move(fd), number, "what the sender sends", stop));
  source->length_ = &length;
  source->head_ = std::move(head);
  source->kept_ = std::move(kept);
  return source;
}

std::unique_ptr<Source> Source::OfProgram(std::shared_ptr<Handover> program, const StopFlag& stop) {
  const int number = program->fd();
  std::unique_ptr<Source> source(new Source(Fd(), number, "what the program writes", stop));
  source->program_ = std::move(program);
  return source;
}

std::optional<std::uint64_t> Source::fixed() const {
  if (head_ != nullptr) return head_->bytes();
  return ranged_ ? size_ : 0;
}

void Source::StartAt(std::uint64_t offset) {
  at_ = offset;
  if (head_ != nullptr) size_ = head_->bytes().value_or(0);
}

void Source::LookAtKind() {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return;
  if (S_ISFIFO(info.st_mode)) (void)fcntl(fd_, F_SETPIPE_SZ, kPipeBytes);
  if (!S_ISREG(info.st_mode)) return;
  const off_t position = lseek(fd_, 0, SEEK_CUR);
  if (position < 0) return;
  ranged_ = true;
  base_ = static_cast<std::uint64_t>(position);
  const auto whole = static_cast<std::uint64_t>(info.st_size);
  size_ = whole > base_ ? whole - base_ : 0;
  // Where nothing is missing nobody looks for holes: tmpfs looks at page after page.
  constexpr std::uint64_t kBlock = 512;  // of st_blocks (stat(3type))
  dense_ = static_cast<std::uint64_t>(info.st_blocks) * kBlock >= whole;
  if (dense_) data_end_ = size_;
  (void)posix_fadvise(fd_, position, 0, POSIX_FADV_SEQUENTIAL);
}

bool Source::Again() {
  if (program_ != nullptr) return false;
  if (!ranged_) {
    // Of a pipe nothing is read before it is known what is in the head.
    const auto head = head_ != nullptr ? head_->bytes() : std::optional<std::uint64_t>(0);
    const std::uint64_t have = head ? std::max(at_, *head) : 0;
    if (have > 0) {
      Fd file = kept_ ? kept_() : Fd();
      auto again = Head::Create();
      if (!file.valid() || !again.ok()) return false;
      (*again)->Set(std::move(file), have);
      head_ = *std::move(again);
    }
    size_ = 0;
  }
  data_end_ = dense_ ? size_ : 0;
  at_ = 0;
  return true;
}

bool Source::Unblock() {
  if (ranged_) return true;
  if (program_ != nullptr) {
    waits_ = false;
    return true;
  }
  auto own = OpenUnblocked(fd_, O_RDONLY);
  if (!own) return false;
  if (own->valid()) {
    owned_ = *std::move(own);
    fd_ = owned_.get();
  }
  waits_ = false;
  return true;
}

Status Source::Failure(int error) const { return Status::FromErrno(error, "cannot read " + name_); }

Status Source::BecameShorter() const {
  return {Code::kErrno, EIO, name_ + " became shorter while it was being read"};
}

Status Source::BrokenOff() const {
  if (*length_ == kPaused) {
    return {Code::kUnavailable, "the stream stops here for now"};
  }
  return {Code::kDisconnected, "the stream has broken off before it got here"};
}

Status Source::WhyInterrupted(const Status& stopped) const {
  return length_ != nullptr && *length_ >= kPaused ? BrokenOff() : stopped;
}

Status Source::CheckLength() const {
  struct stat info {};
  if (fstat(file(), &info) != 0) return Failure(errno);
  return static_cast<std::uint64_t>(info.st_size) < base_ + size_ && size_ > 0 ? BecameShorter()
                                                                               : Status::Ok();
}

Result<Piece> Source::Next(MutableByteSpan room) {
  if (at_ < size_) return NextRange(room.size());
  return ranged_ ? ReadTail(room) : ReadStream(room);
}

Result<Piece> Source::NextRange(std::size_t room) {
  Piece piece{Piece::Kind::kToFill, at_, 0};
  if (at_ >= data_end_) {
    const off_t place = static_cast<off_t>(base_ + at_);
    const off_t data = lseek(file(), place, SEEK_DATA);
    // A file system that cannot tell says that all is data.
    if (data < 0 && errno != ENXIO) {
      data_end_ = size_;
    } else {
      const std::uint64_t next =
          data < 0 ? size_ : std::min(static_cast<std::uint64_t>(data) - base_, size_);
      if (next > at_) {
        RDFS_RETURN_IF_ERROR(CheckLength());
        piece = {Piece::Kind::kHole, at_, next - at_};
        at_ = next;
        return piece;
      }
      const off_t hole = lseek(file(), place, SEEK_HOLE);
      data_end_ = hole < 0 ? size_ : std::min(static_cast<std::uint64_t>(hole) - base_, size_);
      data_end_ = std::max(data_end_, at_ + 1);
    }
  }
  piece.length = std::min<std::uint64_t>(room, data_end_ - at_);
  at_ += piece.length;
  return piece;
}

Status Source::Fill(std::uint64_t offset, MutableByteSpan room) const {
  while (!room.empty()) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(offset, room));
    if (got == 0) return BecameShorter();
    offset += got;
    room = room.subspan(got);
  }
  return {};
}

Result<Piece> Source::ReadTail(MutableByteSpan room) {
  RDFS_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(at_, room));
  if (got == 0) RDFS_RETURN_IF_ERROR(CheckLength());
  const Piece piece{got > 0 ? Piece::Kind::kRead : Piece::Kind::kEnd, at_, got};
  at_ += got;
  return piece;
}

Result<std::size_t> Source::ReadAt(std::uint64_t offset, MutableByteSpan room) const {
  for (;;) {
    const ssize_t got = pread(file(), room.data(), room.size(), static_cast<off_t>(base_ + offset));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR || stop_) return Failure(errno);
  }
}

bool Source::MoreIsThere() const {
  pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0;
}

// As much as is there, so that a slow writer's bytes leave at once and a fast one's in large
// pieces.
Result<Piece> Source::ReadStream(MutableByteSpan room) {
  Piece piece{Piece::Kind::kEnd, at_, 0};
  while (piece.length < room.size() && !ended_) {
    if (hole_ > 0 || (waits_ && piece.length > 0 && !MoreIsThere())) break;
    RDFS_ASSIGN_OR_RETURN(const auto got, ReadSome(room.subspan(piece.length)));
    if (!got) break;
    ended_ = *got == 0;
    if (ended_ && length_ != nullptr && *length_ != at_ + piece.length) return BrokenOff();
    piece.length += *got;
  }
  if (piece.length > 0) {
    piece.kind = Piece::Kind::kRead;
  } else if (hole_ > 0) {
    piece.kind = Piece::Kind::kHole;
    piece.length = std::exchange(hole_, 0);
  } else if (!ended_) {
    piece.kind = Piece::Kind::kNone;
  }
  at_ += piece.length;
  return piece;
}

Result<std::optional<std::size_t>> Source::ReadSome(MutableByteSpan room) {
  if (length_ == nullptr) return ReadOnce(room);
  while (frame_bytes_ == 0) {
    RDFS_ASSIGN_OR_RETURN(const auto got, ReadOnce(MutableByteSpan(frame_).subspan(frame_have_)));
    if (!got || *got == 0) return got;
    frame_have_ += *got;
    if (frame_have_ < frame_.size()) continue;
    frame_have_ = 0;
    const std::uint64_t head = std::bit_cast<Le64>(frame_);
    ((head & kHoleFlag) != 0 ? hole_ : frame_bytes_) = head & ~kHoleFlag;
    if (hole_ > 0) return std::optional<std::size_t>();
  }
  RDFS_ASSIGN_OR_RETURN(const auto got,
                        ReadOnce(room.first(std::min<std::uint64_t>(room.size(), frame_bytes_))));
  if (got) frame_bytes_ -= *got;
  return got;
}

Result<std::optional<std::size_t>> Source::ReadOnce(MutableByteSpan room) const {
  if (program_ != nullptr) return program_->Take(room);
  for (;;) {
    const ssize_t got = read(fd_, room.data(), room.size());
    if (got >= 0) return std::optional(static_cast<std::size_t>(got));
    if (errno == EAGAIN && !waits_) return std::optional<std::size_t>();
    if (errno == EAGAIN) {  // somebody else made it non-blocking
      pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
      (void)poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return Failure(errno);
    }
    if (stop_) return Failure(EINTR);
  }
}

}  // namespace rdfs::pipe
