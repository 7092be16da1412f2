// Directories: opendir and readdir. Cookies are the server's file system's own d_off values, which
// stay good while entries come and go.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "server/ops/ops.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// getdents64(2)'s record; glibc does not declare it.
struct KernelEntry {
  std::uint64_t ino;
  std::int64_t offset;
  std::uint16_t record_bytes;
  std::uint8_t type;
};
constexpr std::size_t kNameOffset = 19;
// 19 + 4095 + NUL, to a multiple of 8: some file systems have names of more than 255 bytes.
constexpr std::size_t kMaxRecordBytes = 4120;
// What a reply takes for each entry apart from its name.
constexpr std::size_t kPlainBytes = sizeof(fs::DirEntryWire) + 2;
constexpr std::size_t kPlusBytes =
    kPlainBytes + 2 + 2 + fs::kMaxHandleBytes + sizeof(fs::AttrWire) + sizeof(Le32);

struct EntryView {
  KernelEntry entry;
  std::string_view name;
};

EntryView EntryAt(const DirectoryCursor& cursor) {
  EntryView view{};
  const std::byte* at = cursor.buffer.data() + cursor.next;
  std::memcpy(&view.entry.ino, at, 8);
  std::memcpy(&view.entry.offset, at + 8, 8);
  std::memcpy(&view.entry.record_bytes, at + 16, 2);
  std::memcpy(&view.entry.type, at + 18, 1);
  const auto* name = reinterpret_cast<const char*>(at + kNameOffset);
  view.name = {name, ::strnlen(name, view.entry.record_bytes - kNameOffset)};
  return view;
}

// Makes the cursor stand at `cookie`. Returns an errno.
int Position(DirectoryCursor& cursor, int fd, std::uint64_t cookie) {
  // From the start means: as the directory is now.
  if (cookie != 0 && cursor.positioned && cursor.cookie == cookie) return 0;
  cursor.positioned = false;
  if (::lseek(fd, static_cast<off_t>(cookie), SEEK_SET) < 0) return errno;
  cursor.next = cursor.end = 0;
  cursor.cookie = cookie;
  cursor.positioned = true;
  return 0;
}

// Reads on when everything has been taken. Returns an errno; next == end afterwards: the end.
int Refill(DirectoryCursor& cursor, int fd, std::size_t bytes) {
  if (cursor.next < cursor.end) return 0;
  cursor.buffer.resize(std::clamp<std::size_t>(bytes, kMaxRecordBytes, fs::kMaxReaddirBytes));
  const long count = ::syscall(SYS_getdents64, fd, cursor.buffer.data(), cursor.buffer.size());
  if (count < 0) {
    cursor.positioned = false;
    return errno;
  }
  cursor.next = 0;
  cursor.end = static_cast<std::size_t>(count);
  return 0;
}

// The entry's attributes behind it, or a 0 where they cannot be had.
void WritePlus(Call& call, ByteWriter& out, const InodeRef& directory, std::string_view name) {
  if (name != "." && name != "..") {
    const bool some = call.core().leases.AnyWrittenByAnother(call.session.id());
    struct statx stat {};
    const InodeRef ref = call.session.inodes().Lookup(directory, std::string(name), stat);
    // What somebody else may have written of it is not waited for: who wants to know looks it up.
    bool known = ref.ok() && !(some && call.WrittenByAnother(*ref.inode));
    // It may have arrived since that look.
    if (known && some) known = StatFd(ref.fd(), stat) == 0;
    if (known) {
      out.Write(Le16(1));
      fs::WriteEntry(out, call.EntryOf(*directory.inode, ref, stat));
      return;
    }
  }
  out.Write(Le16(0));
}

// A client could not name it (ENAMETOOLONG), and its kernel would not take it.
bool IsTooLong(const FsSession& session, std::string_view name) {
  static std::atomic<bool> warned{false};
  if (name.size() <= fs::kMaxNameBytes) return false;
  if (!warned.exchange(true)) {
    LogWarn("a name of more than 255 bytes, below {}, is left out of what its directory lists",
            session.inodes().exported().name());
  }
  return true;
}

void WriteEntries(Call& call, ByteWriter& out, const OpenFile& open, const InodeRef& directory,
                  bool plus) {
  DirectoryCursor& cursor = *open.directory;
  const std::uint64_t root_device = call.session.inodes().exported().root_device();
  while (cursor.next < cursor.end) {
    const EntryView view = EntryAt(cursor);
    if (IsTooLong(call.session, view.name)) {
      cursor.next += view.entry.record_bytes;
      cursor.cookie = static_cast<std::uint64_t>(view.entry.offset);
      continue;
    }
    if (out.room() < (plus ? kPlusBytes : kPlainBytes) + view.name.size()) return;
    fs::DirEntryWire wire;
    wire.ino = ClientInode(view.entry.ino, open.inode->key.device, root_device);
    wire.cookie = static_cast<std::uint64_t>(view.entry.offset);
    wire.type = view.entry.type;
    out.Write(wire);
    out.WriteSized16(AsBytes(view.name));
    if (plus) WritePlus(call, out, directory, view.name);
    cursor.next += view.entry.record_bytes;
    cursor.cookie = static_cast<std::uint64_t>(view.entry.offset);
  }
}

// What is left over of a page is kept for the next one, unless the client has many directories
// open: then the next page finds its place by the cookie.
void DropBuffer(const FsSession& session, DirectoryCursor& cursor) {
  constexpr std::size_t kBufferedDirectories = 256;
  const bool empty = cursor.next == cursor.end;
  if (!empty && session.open_files() <= kBufferedDirectories) return;
  cursor.buffer = {};
  cursor.next = cursor.end = 0;
  cursor.positioned = empty;
}

// A page that took everything: whether anything follows is a system call here, and a round trip for
// the client.
void TellEnd(DirectoryCursor& cursor, int fd, ByteWriter& out) {
  if (cursor.next < cursor.end || out.room() < sizeof(fs::DirEntryWire)) return;
  if (Refill(cursor, fd, cursor.buffer.size()) != 0 || cursor.next < cursor.end) return;
  fs::DirEntryWire end{};
  end.type = fs::kDirectoryEnd;
  out.Write(end);
}

bool IsValidPage(std::uint32_t max_bytes, std::uint32_t flags) {
  return max_bytes <= fs::kMaxReaddirBytes &&
         (flags & ~(fs::kReadDirPlus | fs::kReadDirTellEnd)) == 0;
}

// Appends a page of at most `max_bytes` to the reply. Returns an errno.
int List(Call& call, const OpenFile& open, std::uint64_t cookie, std::size_t max_bytes,
         std::uint32_t flags) {
  const bool plus = (flags & fs::kReadDirPlus) != 0;
  const InodeRef directory{.inode = open.inode, .descriptor = open.fd, .error = 0};
  DirectoryCursor& cursor = *open.directory;
  const std::lock_guard lock(cursor.mutex);
  if (const int error = Position(cursor, open.fd->get(), cookie); error != 0) return error;
  const std::size_t before = call.out.size();
  ByteWriter out(call.out.Reserve(max_bytes));
  // About as much as the reply can carry; what is left over waits in the cursor.
  const std::size_t wanted = plus ? max_bytes / 4 : max_bytes;
  bool more = false;
  do {
    if (const int error = Refill(cursor, open.fd->get(), wanted); error != 0) return error;
    more = cursor.next < cursor.end;
    WriteEntries(call, out, open, directory, plus);
    // Where all of it was left out, what follows is not known yet.
  } while (more && out.size() == 0 && cursor.next == cursor.end);
  // Not even one entry fits: an empty reply would mean the end.
  if (more && out.size() == 0) return EINVAL;
  if (more && (flags & fs::kReadDirTellEnd) != 0) TellEnd(cursor, open.fd->get(), out);
  call.out.TruncateTo(before + out.size());
  DropBuffer(call.session, cursor);
  return 0;
}

}  // namespace

Outcome OpenDirectory(Call& call, const InodeRef& ref, std::uint32_t flags) {
  if (!S_ISDIR(ref.inode->type)) return Outcome::Errno(ENOTDIR);
  const std::uint64_t number = call.header.sequence;
  OpenPtr open;
  // The answer was lost, and nobody else would ever close what it opened.
  if ((call.header.flags & fs::kRequestSentBefore) != 0) {
    open = call.session.FindDirectory(*ref.inode, number);
  }
  if (!open) {
    OpenPlace place = call.session.TakePlace();
    if (!place) return call.RefuseOpen();
    OpenResult opened = call.core().proc.Reopen(ref.fd(), O_RDONLY | O_DIRECTORY);
    if (!opened.fd.valid()) return Outcome::Errno(opened.error);
    open =
        call.session.AddDirectory(std::move(place), ref.inode, std::move(opened.fd), flags, number);
  }
  if (!open) return call.RefuseOpen();
  struct statx stat {};
  if (const int error = StatFd(open->fd->get(), stat); error != 0) {
    (void)call.session.RemoveOpen(open->number);
    return Outcome::Errno(error);
  }
  fs::OpenReply reply;
  reply.open = open->number;
  reply.attr = call.Attr(*ref.inode, stat);
  reply.write_lease_ms = 0U;
  call.out.Write(reply);
  return Outcome::Ok();
}

Outcome OpOpenDir(Call& call) {
  const auto page = call.body.Read<fs::OpenDirRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded() || !IsValidPage(page.max_bytes, page.flags)) return Outcome::Malformed();
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  const Outcome outcome = OpenDirectory(call, ref, 0);
  const std::size_t reply = call.out.size();
  if (page.max_bytes == 0 || reply == 0) return outcome;
  // The client believes the page until it lists the directory.
  if (call.Lease(*ref.inode) == 0) return outcome;
  const OpenPtr open =
      call.session.FindOpen(ByteReader(call.out.written()).Read<fs::OpenReply>().open);
  // It is open all the same: kReadDir will tell what is wrong.
  if (!open || List(call, *open, 0, page.max_bytes, page.flags) != 0) call.out.TruncateTo(reply);
  return outcome;
}

Outcome OpReadDir(Call& call) {
  const auto request = call.body.Read<fs::ReadDirRequest>();
  if (!call.Decoded() || !IsValidPage(request.max_bytes, request.flags)) {
    return Outcome::Malformed();
  }
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  if (!open->directory) return Outcome::Errno(ENOTDIR);
  const int error = List(call, *open, request.cookie, request.max_bytes, request.flags);
  return error == 0 ? Outcome::Ok() : Outcome::Errno(error);
}

}  // namespace rdfs::server
