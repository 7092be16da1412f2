// null_fs MOUNTPOINT SECONDS: a file system in this process's memory, to tell what FUSE alone
// gives.
//
// It does what rdfs does on its side of /dev/fuse, and nothing behind that: one thread, requests
// read into one buffer, replies written from where the bytes lie, no splice, names and attributes
// believed for SECONDS (or `ever`), pages kept. Extended attributes there are none, which the
// kernel asks once.
//
// Runs in the foreground until it is unmounted. Nothing outlives it. One thread; no limits: it is
// for measuring, by people who trust what they run on it.
#define FUSE_USE_VERSION 314

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace {

constexpr std::size_t kTransferBytes = 1 << 20;
// As long as a worker of rdfs looks for the next request before it sleeps.
constexpr std::chrono::microseconds kSpin{40};

// Grows by half, so that a file that is appended to is copied a bounded number of times.
class Bytes {
 public:
  ~Bytes() { std::free(bytes_); }
  [[nodiscard]] const char* at(std::size_t offset) const { return bytes_ + offset; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // What is new is zero. False: no memory.
  bool Resize(std::size_t size) {
    if (!Reserve(size)) return false;
    if (size > size_) std::memset(bytes_ + size_, 0, size - size_);
    size_ = size;
    return true;
  }
  bool Write(const char* from, std::size_t count, std::size_t offset) {
    if (!Reserve(offset + count)) return false;
    if (offset > size_) std::memset(bytes_ + size_, 0, offset - size_);
    std::memcpy(bytes_ + offset, from, count);
    size_ = std::max(size_, offset + count);
    return true;
  }

 private:
  bool Reserve(std::size_t size) {
    if (size <= capacity_) return true;
    const std::size_t wanted = std::max(size, capacity_ + capacity_ / 2);
    void* const larger = std::realloc(bytes_, wanted);
    if (larger == nullptr) return false;
    bytes_ = static_cast<char*>(larger);
    capacity_ = wanted;
    return true;
  }

  char* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

struct Entry {
  std::string name;
  fuse_ino_t ino = 0;
};

struct Node {
  struct stat attributes {};
  std::uint64_t lookups = 0;
  Bytes bytes;         // of a file
  std::string target;  // of a symlink
  // Of a directory; the numbers are cookies, which stay when others go.
  std::unordered_map<std::string, std::uint64_t> cookies;
  std::map<std::uint64_t, Entry> entries;
};

struct Filesystem {
  std::unordered_map<fuse_ino_t, std::unique_ptr<Node>> nodes;
  fuse_ino_t next_ino = FUSE_ROOT_ID;
  std::uint64_t next_cookie = 1;
  double timeout = 0;
  std::string page;  // of a directory, while it is told
};

Filesystem& Of(fuse_req_t request) { return *static_cast<Filesystem*>(fuse_req_userdata(request)); }

Node* Find(Filesystem& fs, fuse_ino_t ino) {
  const auto found = fs.nodes.find(ino);
  return found == fs.nodes.end() ? nullptr : found->second.get();
}

timespec Now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

void Touch(Node& node) { node.attributes.st_mtim = node.attributes.st_ctim = Now(); }

Node& Make(Filesystem& fs, mode_t mode, uid_t uid, gid_t gid) {
  auto node = std::make_unique<Node>();
  node->attributes.st_ino = fs.next_ino;
  node->attributes.st_mode = mode;
  node->attributes.st_nlink = S_ISDIR(mode) ? 2 : 1;
  node->attributes.st_uid = uid;
  node->attributes.st_gid = gid;
  node->attributes.st_blksize = 4096;
  Touch(*node);
  node->attributes.st_atim = node->attributes.st_mtim;
  return *(fs.nodes[fs.next_ino++] = std::move(node));
}

void SetSize(Node& node) {
  node.attributes.st_size = static_cast<off_t>(node.bytes.size());
  node.attributes.st_blocks = (node.attributes.st_size + 511) / 512;
}

void DropIfUnused(Filesystem& fs, Node& node) {
  if (node.attributes.st_nlink == 0 && node.lookups == 0) fs.nodes.erase(node.attributes.st_ino);
}

// The node counts one look-up more.
fuse_entry_param Told(const Filesystem& fs, Node& node) {
  ++node.lookups;
  fuse_entry_param entry{};
  entry.ino = node.attributes.st_ino;
  entry.attr = node.attributes;
  entry.attr_timeout = entry.entry_timeout = fs.timeout;
  return entry;
}

Node* Child(Filesystem& fs, Node& directory, const std::string& name) {
  const auto found = directory.cookies.find(name);
  return found == directory.cookies.end() ? nullptr
                                          : Find(fs, directory.entries[found->second].ino);
}

void Attach(Filesystem& fs, Node& directory, const std::string& name, const Node& node) {
  directory.cookies[name] = fs.next_cookie;
  directory.entries[fs.next_cookie++] = {name, node.attributes.st_ino};
  if (S_ISDIR(node.attributes.st_mode)) ++directory.attributes.st_nlink;
  Touch(directory);
}

void Detach(Node& directory, const std::string& name, const Node& node) {
  const auto cookie = directory.cookies.find(name);
  directory.entries.erase(cookie->second);
  directory.cookies.erase(cookie);
  if (S_ISDIR(node.attributes.st_mode)) --directory.attributes.st_nlink;
  Touch(directory);
}

// The name is gone; so is the node, unless it has another one or the kernel knows it.
void Unlink(Filesystem& fs, Node& directory, const std::string& name, Node& node) {
  Detach(directory, name, node);
  struct stat& own = node.attributes;
  own.st_nlink = S_ISDIR(own.st_mode) ? 0 : own.st_nlink - 1;
  own.st_ctim = directory.attributes.st_ctim;
  DropIfUnused(fs, node);
}

void Init(void*, fuse_conn_info* connection) {
  connection->want |=
      connection->capable &
      (FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_HANDLE_KILLPRIV |
       FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_CACHE_SYMLINKS);
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                             FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA);
  connection->max_write = kTransferBytes;
  connection->max_readahead = std::max<unsigned>(connection->max_readahead, kTransferBytes);
  connection->max_background = 128;
  connection->congestion_threshold = 96;
  connection->time_gran = 1;
}

void Lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  Filesystem& fs = Of(request);
  Node* const node = Child(fs, *Find(fs, parent), name);
  fuse_entry_param entry{};
  entry.entry_timeout = fs.timeout;  // that there is none is believed as well
  if (node != nullptr) entry = Told(fs, *node);
  fuse_reply_entry(request, &entry);
}

void Forget(fuse_req_t request, fuse_ino_t ino, std::uint64_t lookups) {
  Filesystem& fs = Of(request);
  Node& node = *Find(fs, ino);
  node.lookups -= std::min(node.lookups, lookups);
  DropIfUnused(fs, node);
  fuse_reply_none(request);
}

void GetAttributes(fuse_req_t request, fuse_ino_t ino, fuse_file_info*) {
  Filesystem& fs = Of(request);
  fuse_reply_attr(request, &Find(fs, ino)->attributes, fs.timeout);
}

void SetAttributes(fuse_req_t request, fuse_ino_t ino, struct stat* wanted, int what,
                   fuse_file_info*) {
  Filesystem& fs = Of(request);
  Node& node = *Find(fs, ino);
  struct stat& own = node.attributes;
  if ((what & FUSE_SET_ATTR_MODE) != 0) {
    own.st_mode = (own.st_mode & S_IFMT) | (wanted->st_mode & 07777U);
  }
  if ((what & FUSE_SET_ATTR_UID) != 0) own.st_uid = wanted->st_uid;
  if ((what & FUSE_SET_ATTR_GID) != 0) own.st_gid = wanted->st_gid;
  own.st_ctim = Now();
  if ((what & FUSE_SET_ATTR_SIZE) != 0) {
    if (!node.bytes.Resize(static_cast<std::size_t>(wanted->st_size))) {
      fuse_reply_err(request, ENOSPC);
      return;
    }
    SetSize(node);
    own.st_mtim = own.st_ctim;
  }
  if ((what & FUSE_SET_ATTR_ATIME) != 0) own.st_atim = wanted->st_atim;
  if ((what & FUSE_SET_ATTR_MTIME) != 0) own.st_mtim = wanted->st_mtim;
  if ((what & FUSE_SET_ATTR_ATIME_NOW) != 0) own.st_atim = own.st_ctim;
  if ((what & FUSE_SET_ATTR_MTIME_NOW) != 0) own.st_mtim = own.st_ctim;
  fuse_reply_attr(request, &own, fs.timeout);
}

// Null, and answered, where the name is taken.
Node* Add(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  Filesystem& fs = Of(request);
  Node& directory = *Find(fs, parent);
  if (directory.cookies.contains(name)) {
    fuse_reply_err(request, EEXIST);
    return nullptr;
  }
  const fuse_ctx* const caller = fuse_req_ctx(request);
  Node& node = Make(fs, mode, caller->uid, caller->gid);
  Attach(fs, directory, name, node);
  return &node;
}

void ReplyAdded(fuse_req_t request, Node* node) {
  if (node == nullptr) return;
  const fuse_entry_param entry = Told(Of(request), *node);
  fuse_reply_entry(request, &entry);
}

void MakeNode(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  Node* const node = Add(request, parent, name, mode);
  if (node != nullptr) node->attributes.st_rdev = device;
  ReplyAdded(request, node);
}

void MakeDirectory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  ReplyAdded(request, Add(request, parent, name, (mode & 07777U) | S_IFDIR));
}

void MakeSymlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  Node* const node = Add(request, parent, name, S_IFLNK | 0777U);
  if (node != nullptr) {
    node->target = target;
    node->attributes.st_size = static_cast<off_t>(node->target.size());
  }
  ReplyAdded(request, node);
}

void ReadSymlink(fuse_req_t request, fuse_ino_t ino) {
  fuse_reply_readlink(request, Find(Of(request), ino)->target.c_str());
}

void MakeLink(fuse_req_t request, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  Filesystem& fs = Of(request);
  Node& node = *Find(fs, ino);
  Node& directory = *Find(fs, parent);
  if (directory.cookies.contains(name)) {
    fuse_reply_err(request, EEXIST);
    return;
  }
  ++node.attributes.st_nlink;
  Attach(fs, directory, name, node);
  node.attributes.st_ctim = directory.attributes.st_ctim;
  ReplyAdded(request, &node);
}

void Remove(fuse_req_t request, fuse_ino_t parent, const char* name) {
  Filesystem& fs = Of(request);
  Node& directory = *Find(fs, parent);
  Node* const node = Child(fs, directory, name);
  const int error = node == nullptr ? ENOENT : node->entries.empty() ? 0 : ENOTEMPTY;
  if (error == 0) Unlink(fs, directory, name, *node);
  fuse_reply_err(request, error);
}

void Rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  Filesystem& fs = Of(request);
  Node& from = *Find(fs, parent);
  Node& to = *Find(fs, new_parent);
  Node* const node = Child(fs, from, name);
  Node* const replaced = Child(fs, to, new_name);
  if (node == nullptr || flags != 0 || (replaced != nullptr && !replaced->entries.empty())) {
    fuse_reply_err(request, node == nullptr ? ENOENT : flags != 0 ? EINVAL : ENOTEMPTY);
    return;
  }
  if (replaced != node) {  // else they are two names of one file, and nothing happens
    if (replaced != nullptr) Unlink(fs, to, new_name, *replaced);
    Detach(from, name, *node);
    Attach(fs, to, new_name, *node);
  }
  fuse_reply_err(request, 0);
}

// As rdfs: what is only written goes past the page cache, a copy less.
void SayHowToCache(fuse_file_info& file) {
  file.keep_cache = 1;
  file.direct_io = (file.flags & O_ACCMODE) == O_WRONLY ? 1 : 0;
}

void Open(fuse_req_t request, fuse_ino_t ino, fuse_file_info* file) {
  if ((file->flags & O_TRUNC) != 0) {
    Node& node = *Find(Of(request), ino);
    node.bytes.Resize(0);
    SetSize(node);
    Touch(node);
  }
  SayHowToCache(*file);
  fuse_reply_open(request, file);
}

void Create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* file) {
  Node* const node = Add(request, parent, name, (mode & 07777U) | S_IFREG);
  if (node == nullptr) return;
  SayHowToCache(*file);
  const fuse_entry_param entry = Told(Of(request), *node);
  fuse_reply_create(request, &entry, file);
}

void Read(fuse_req_t request, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info*) {
  Bytes& bytes = Find(Of(request), ino)->bytes;
  const auto at = std::min(static_cast<std::size_t>(offset), bytes.size());
  fuse_reply_buf(request, bytes.at(at), std::min(size, bytes.size() - at));
}

void Write(fuse_req_t request, fuse_ino_t ino, const char* from, std::size_t size, off_t offset,
           fuse_file_info*) {
  Node& node = *Find(Of(request), ino);
  if (!node.bytes.Write(from, size, static_cast<std::size_t>(offset))) {
    fuse_reply_err(request, ENOSPC);
    return;
  }
  SetSize(node);
  Touch(node);
  fuse_reply_write(request, size);
}

void OpenDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  file->keep_cache = file->cache_readdir = 1;
  fuse_reply_open(request, file);
}

// Entries behind cookie `offset`; `whole` with their attributes.
void List(fuse_req_t request, fuse_ino_t ino, std::size_t size, off_t offset, bool whole) {
  Filesystem& fs = Of(request);
  Node& directory = *Find(fs, ino);
  fs.page.resize(size);
  std::size_t used = 0;
  auto at = directory.entries.upper_bound(static_cast<std::uint64_t>(offset));
  for (; at != directory.entries.end(); ++at) {
    Node& node = *Find(fs, at->second.ino);
    const char* const name = at->second.name.c_str();
    const auto cookie = static_cast<off_t>(at->first);
    char* const place = fs.page.data() + used;
    std::size_t needed = 0;
    if (whole) {
      const fuse_entry_param entry = Told(fs, node);
      needed = fuse_add_direntry_plus(request, place, size - used, name, &entry, cookie);
      if (needed > size - used) --node.lookups;
    } else {
      needed = fuse_add_direntry(request, place, size - used, name, &node.attributes, cookie);
    }
    if (needed > size - used) break;
    used += needed;
  }
  fuse_reply_buf(request, fs.page.data(), used);
}

void ReadDirectory(fuse_req_t request, fuse_ino_t ino, std::size_t size, off_t offset,
                   fuse_file_info*) {
  List(request, ino, size, offset, false);
}

void ReadDirectoryPlus(fuse_req_t request, fuse_ino_t ino, std::size_t size, off_t offset,
                       fuse_file_info*) {
  List(request, ino, size, offset, true);
}

void Close(fuse_req_t request, fuse_ino_t, fuse_file_info*) { fuse_reply_err(request, 0); }

void Sync(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(request, 0); }

fuse_lowlevel_ops Operations() {
  fuse_lowlevel_ops ops{};
  ops.init = Init;
  ops.lookup = Lookup;
  ops.forget = Forget;
  ops.getattr = GetAttributes;
  ops.setattr = SetAttributes;
  ops.readlink = ReadSymlink;
  ops.mknod = MakeNode;
  ops.mkdir = MakeDirectory;
  ops.unlink = Remove;
  ops.rmdir = Remove;
  ops.symlink = MakeSymlink;
  ops.rename = Rename;
  ops.link = MakeLink;
  ops.open = Open;
  ops.create = Create;
  ops.read = Read;
  ops.write = Write;
  ops.flush = Close;
  ops.release = Close;
  ops.fsync = Sync;
  ops.opendir = OpenDirectory;
  ops.readdir = ReadDirectory;
  ops.readdirplus = ReadDirectoryPlus;
  ops.releasedir = Close;
  ops.fsyncdir = Sync;
  return ops;
}

// Until it is unmounted.
int Serve(fuse_session* session) {
  using Clock = std::chrono::steady_clock;
  const int fd = fuse_session_fd(session);
  if (::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return 1;
  fuse_buf buffer{};
  Clock::time_point last = Clock::now();
  while (fuse_session_exited(session) == 0) {
    const int got = fuse_session_receive_buf(session, &buffer);
    if (got > 0) {
      fuse_session_process_buf(session, &buffer);
      last = Clock::now();
    } else if (got == -EAGAIN) {
      if (Clock::now() - last < kSpin) continue;
      pollfd wait{fd, POLLIN, 0};
      ::poll(&wait, 1, -1);
    } else if (got != -EINTR) {
      break;
    }
  }
  std::free(buffer.mem);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("null_fs MOUNTPOINT SECONDS|ever\n", stderr);
    return 2;
  }
  Filesystem fs;
  fs.timeout = std::string(argv[2]) == "ever" ? 1e9 : std::atof(argv[2]);
  Make(fs, S_IFDIR | 0755U, ::getuid(), ::getgid()).lookups = 1;  // the root is never forgotten
  const fuse_lowlevel_ops ops = Operations();
  const char* words[] = {"null_fs", "-o", "default_permissions,fsname=null_fs"};
  fuse_args arguments = FUSE_ARGS_INIT(3, const_cast<char**>(words));
  fuse_session* const session = fuse_session_new(&arguments, &ops, sizeof ops, &fs);
  if (session == nullptr || fuse_session_mount(session, argv[1]) != 0) return 1;
  const int status = Serve(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  fuse_opt_free_args(&arguments);
  return status;
}
