#include "fs/fuse/worker/request.h"

#include <atomic>
#include <cerrno>

#include "fs/fuse/names/stale_recovery.h"
#include "fs/fuse/worker/worker.h"
#include "transport/base/log.h"

namespace rdfs::fs::fuse {

Request::Request(fuse_req_t request, Worker& worker)
    : request_(request), worker_(&worker), message_(worker.TakeCurrentMessage()) {
  message_.recalls = worker.filesystem().kernel.stamp();
}

bool Request::Believe(NodeId node, TimePoint until, const AttrWire& attr) {
  return worker_->filesystem().Believe(node, until, attr, message_.recalls);
}

// What was asked for before a recall the kernel may disregard. A change is taken as it is.
bool Request::Tell(NodeId node, const AttrWire& attr) {
  InodeTable& inodes = worker_->filesystem().inodes;
  const bool changes = message_.changes != 0;
  const bool same =
      inodes.Tell(node, attr, changes ? std::nullopt : std::optional(BootClock::now()));
  if (!changes && Outdated()) inodes.ForgetTold(node);
  return same;
}

// With the kernel's own write-back cache this mount is the only writer.
bool Request::PagesAreOld(NodeId node, std::uint64_t change) const {
  const Filesystem& filesystem = worker_->filesystem();
  return !filesystem.options.writeback &&
         filesystem.inodes.PagesAreOld(node, change, BootClock::now());
}

void Request::AllowWrites(NodeId node, TimePoint until) {
  Filesystem& filesystem = worker_->filesystem();
  const auto hold = filesystem.kernel.HoldReplies();
  if (!Outdated()) filesystem.inodes.SetWriteLease(node, until, BootClock::now());
}

void Request::BelieveEmpty(NodeId directory, TimePoint until) {
  Filesystem& filesystem = worker_->filesystem();
  const auto hold = filesystem.kernel.HoldReplies();
  if (!Outdated()) filesystem.new_directories.Made(directory, until, BootClock::now());
}

void Request::BelieveWithout(NodeId node, std::uint8_t xattrs, TimePoint asked) {
  Filesystem& filesystem = worker_->filesystem();
  const auto hold = filesystem.kernel.HoldReplies();
  if (!Outdated()) filesystem.inodes.SetWithoutXattr(node, xattrs, asked);
}

void Request::BelieveWithoutCapability(NodeId node, TimePoint asked, TimePoint until) {
  Filesystem& filesystem = worker_->filesystem();
  const auto hold = filesystem.kernel.HoldReplies();
  if (!Outdated()) filesystem.inodes.SetWithoutCapability(node, asked, until);
}

void Request::AsksNow() { message_.recalls = worker_->filesystem().kernel.stamp(); }

bool Request::Outdated() const { return worker_->filesystem().kernel.stamp() != message_.recalls; }

Request::~Request() {
  if (request_ == nullptr) return;
  LogError("a request was dropped without an answer; please report this");
  Error(EIO);
}

client::CallContext Request::context() const {
  const fuse_ctx* context = fuse_req_ctx(request_);
  client::CallContext caller{.uid = context->uid,
                             .gid = context->gid,
                             .pid = static_cast<std::uint32_t>(context->pid),
                             .trace = message_.unique};
  // What it has waited for already counts; for a lock nobody waits too long.
  if (worker_->HasWaited(message_.unique) && message_.header().opcode != FUSE_SETLKW) {
    caller.timeout = worker_->TimeLeft(message_.unique);
  }
  return caller;
}

std::uint32_t Request::umask() const { return fuse_req_ctx(request_)->umask; }

transport::LocalSlice Request::Slice(const char* bytes, std::size_t size) const {
  const auto* start = reinterpret_cast<const char*>(message_.buffer.bytes().data());
  return message_.buffer.Slice(static_cast<std::size_t>(bytes - start), size);
}

fuse_req_t Request::Take(bool over) {
  worker_->Untrack(message_.unique);
  worker_->filesystem().unlocks.End(message_.unique);
  if (message_.changes != 0) {
    worker_->NoteChange(message_, BootClock::now());
    worker_->filesystem().changes.fetch_add(1);
  }
  // Behind that: who goes on behind it must not take what was asked for before it for new.
  if (over && message_.header().opcode == FUSE_WRITE) worker_->WrotePages(message_.unique);
  return std::exchange(request_, nullptr);
}

Message Request::TakeMessage() {
  // Frees libfuse's record of the request; nothing is sent to the kernel.
  fuse_reply_none(Take(false));
  return std::move(message_);
}

void Request::Error(int errno_value) { fuse_reply_err(Take(), errno_value); }

void Request::ErrorOrRecover(NodeId node, const Status& status) {
  if (status.errno_value() != ESTALE || !StaleRecovery::MayHelp(node, message_)) {
    return Error(status);
  }
  Worker::Waits waits = worker_->WaitsOf(message_.unique);
  waits.counted = true;
  worker_->Recover(node, TakeMessage(), waits);
}

void Request::TakeUpAgain() {
  Worker::Waits waits = worker_->WaitsOf(message_.unique);
  waits.counted = true;
  worker_->Resume(TakeMessage(), waits);
}

void Request::WaitForBuffer() {
  worker_->read_ahead().GiveBack();
  Worker::Waits waits = worker_->WaitsOf(message_.unique);
  waits.counted = true;
  worker_->PostponeForBuffer(TakeMessage(), waits);
}

void Request::WaitForPiece(std::shared_ptr<const ReadAheadPiece> piece) {
  Worker::Waits waits = worker_->WaitsOf(message_.unique);
  waits.counted = true;
  worker_->Postpone(TakeMessage(), waits, [piece = std::move(piece)] { return piece->here; });
}

void Request::WaitForWrites(NodeId node) {
  const WritesBehind::Wait wait = worker_->filesystem().behind.NowFor(node);
  const Worker::Waits waits = worker_->WaitsOf(message_.unique);
  worker_->PostponeBehind(wait, TakeMessage(), waits);
}

void Request::WaitForPageWrite(PageWrites::Number write) {
  const Worker::Waits waits = worker_->WaitsOf(message_.unique);
  worker_->PostponeBehindPages(write, TakeMessage(), waits);
}

void Request::WaitForOrder(NodeId node) {
  Worker::Waits waits = worker_->WaitsOf(message_.unique);
  waits.in_order = true;
  worker_->PostponeForOrder(node, TakeMessage(), waits);
}

void Request::ForgetGrants(NodeId node, std::uint64_t change) {
  if (worker_->ends()) return;  // its lane is gone
  InodeTable& inodes = worker_->filesystem().inodes;
  if (const auto handle = inodes.Find(node)) worker_->lane().SeeChange(*handle, change);
  inodes.EndStanding(node);
}

void Request::DropPages(NodeId node, std::uint64_t change,
                        std::function<void(Request&, bool dropped)> then,
                        const InodeTable::End& end) {
  if (worker_->ends()) return then(*this, false);
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  const auto done = [gone, worker = worker_] {
    *gone = true;
    worker->Wake();
  };
  worker_->filesystem().kernel.DropPages(node, change, done, end);
  Worker& worker = *worker_;
  const auto waiting = std::make_shared<Request>(std::move(*this));
  worker.Await({.until = BootClock::now() + worker.filesystem().options.deadline / 2,
                .is_over = [gone] { return gone->load(); },
                .then = [waiting, gone, then = std::move(then)] { then(*waiting, gone->load()); }});
}

void Request::Entry(fuse_entry_param entry) {
  const auto hold = worker_->filesystem().kernel.HoldReplies();
  if (Outdated()) entry.attr_timeout = entry.entry_timeout = 0;
  fuse_reply_entry(Take(), &entry);
}
void Request::Create(fuse_entry_param entry, const fuse_file_info& file) {
  const auto hold = worker_->filesystem().kernel.HoldReplies();
  if (Outdated()) entry.attr_timeout = entry.entry_timeout = 0;
  fuse_reply_create(Take(), &entry, &file);
}
void Request::Attr(const struct stat& attr, double timeout) {
  const auto hold = worker_->filesystem().kernel.HoldReplies();
  fuse_reply_attr(Take(), &attr, Outdated() ? 0 : timeout);
}
void Request::Readlink(const char* target) { fuse_reply_readlink(Take(), target); }
void Request::Open(const fuse_file_info& file) { fuse_reply_open(Take(), &file); }
void Request::Write(std::size_t count, bool early) {
  if (message_.header().opcode == FUSE_WRITE) {
    const std::uint64_t at = message_.Body<fuse_write_in>().offset;
    worker_->filesystem().inodes.Written(message_.header().nodeid, at + count);
  }
  fuse_reply_write(Take(!early), count);
}
void Request::Bytes(std::span<const std::byte> bytes) {
  fuse_reply_buf(Take(), reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
void Request::Bytes(std::span<const iovec> parts) {
  fuse_reply_iov(Take(), parts.data(), static_cast<int>(parts.size()));
}
void Request::Read(client::Buffer bytes, std::size_t length) {
  if (!worker_->AnswersTogether(length)) return Bytes(bytes.bytes().first(length));
  fuse_reply_none(Take());  // frees libfuse's record of it
  worker_->AnswerTogether(message_.unique, std::move(bytes), length);
}
void Request::StatFs(const struct statvfs& stat) { fuse_reply_statfs(Take(), &stat); }
void Request::XattrSize(std::size_t size) { fuse_reply_xattr(Take(), size); }
void Request::Lock(const struct flock& lock) { fuse_reply_lock(Take(), &lock); }
void Request::Seek(off_t offset) { fuse_reply_lseek(Take(), offset); }

}  // namespace rdfs::fs::fuse
