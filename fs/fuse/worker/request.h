// Request: one FUSE request that is answered exactly once.
//
// Move-only. It keeps the raw message it came in, because the bytes of a write are sent from there,
// and because a request that has to wait (no buffer, a stale handle that is being looked up again)
// is simply taken up once more from its message. Dropping a Request unanswered is a bug: it then
// answers EIO itself and logs. Used on its worker's thread. Source: fuse_lowlevel.h of libfuse 3.
#pragma once

#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/uio.h>

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "fs/client/client.h"
#include "fs/fuse/content/page_writes.h"
#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

class Worker;
struct ReadAheadPiece;

// A message as it was read from the kernel, in registered memory.
struct Message {
  client::Buffer buffer;
  std::uint64_t unique = 0;        // the kernel's number of the request
  std::uint32_t size : 24 = 0;     // at most a transfer and a page
  std::uint32_t attempts : 6 = 0;  // how often it was taken up again because of a stale handle
  std::uint32_t waited : 1 = 0;    // for writes behind: it does not for those that came later
  std::uint32_t changes : 1 = 0;   // see Filesystem::changes
  // How many recalls had come when it was taken, counted round: no request sees 2^32 of them.
  std::uint32_t recalls = 0;

  [[nodiscard]] fuse_in_header header() const {
    fuse_in_header header{};
    std::memcpy(&header, buffer.bytes().data(), sizeof header);
    return header;
  }
  // What follows its header, for what libfuse does not pass on; zeros where it is shorter.
  template <typename T>
  [[nodiscard]] T Body() const {
    T body{};
    if (size < sizeof(fuse_in_header) + sizeof body) return body;
    std::memcpy(&body, buffer.bytes().data() + sizeof(fuse_in_header), sizeof body);
    return body;
  }
};

class Request {
 public:
  // Takes the message that `worker` is processing.
  Request(fuse_req_t request, Worker& worker);
  Request(Request&& other) noexcept
      : request_(std::exchange(other.request_, nullptr)),
        worker_(other.worker_),
        message_(std::move(other.message_)) {}
  Request& operator=(Request&&) = delete;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  [[nodiscard]] Worker& worker() const { return *worker_; }
  [[nodiscard]] client::CallContext context() const;  // who calls
  [[nodiscard]] std::uint32_t umask() const;
  // The part of the message at which `bytes` point, for Lane::Write.
  [[nodiscard]] transport::LocalSlice Slice(const char* bytes, std::size_t size) const;
  [[nodiscard]] std::uint64_t unique() const { return message_.unique; }
  [[nodiscard]] const Message& message() const { return message_; }
  // For libfuse functions that fill a reply; not for answering.
  [[nodiscard]] fuse_req_t raw() const { return request_; }

  void Error(int errno_value);
  void Error(const Status& status) { Error(status.errno_value()); }
  // As Error; but if `node` or another that the request is about is stale, they are looked up again
  // by their paths, and the request is taken up again then.
  void ErrorOrRecover(NodeId node, const Status& status);
  // Takes the request up again, as if it had come now.
  void TakeUpAgain();
  // The same when a buffer has been given back; a read.
  void WaitForBuffer();
  // Takes the request up again when this has come.
  void WaitForPiece(std::shared_ptr<const ReadAheadPiece> piece);
  // Takes the request up again when the writes to the node that are on their way have arrived.
  void WaitForWrites(NodeId node);
  // Takes the request up again when this write to the pages that it reads has been answered.
  void WaitForPageWrite(PageWrites::Number write);
  // Takes the request up again when other workers have told the server what they read of the
  // file before it.
  void WaitForOrder(NodeId node);

  // Asks anew: what the server says from now on is newer than what has been recalled so far.
  void AsksNow();
  // Pages of other content than this are about to go: what comes in their place is not to be of
  // that content as well.
  void ForgetGrants(NodeId node, std::uint64_t change);
  // Makes the kernel drop the pages of the node, and gives the request to `then` behind that: or
  // before it, where that does not come to an end in time. `change`, `end`: see KernelCache.
  void DropPages(NodeId node, std::uint64_t change,
                 std::function<void(Request&, bool dropped)> then, const InodeTable::End& end = {});

  // What has been answered stays true of the node until then: unless a recall has come meanwhile.
  // False: another worker has changed the node since the server was asked, and so it is not news.
  bool Believe(NodeId node, TimePoint until, const AttrWire& attr);
  // Behind Believe: the answer tells the kernel these attributes (InodeTable::Tell).
  bool Tell(NodeId node, const AttrWire& attr);
  // Whether somebody who has the file open may have other pages than of that content.
  [[nodiscard]] bool PagesAreOld(NodeId node, std::uint64_t change) const;
  // The directory has just been made (NewDirectories).
  void BelieveEmpty(NodeId directory, TimePoint until);
  // Until then writes to the file may be answered early.
  void AllowWrites(NodeId node, TimePoint until);
  // The same for xattrs that are not there (InodeTable).
  void BelieveWithout(NodeId node, std::uint8_t xattrs, TimePoint asked);
  void BelieveWithoutCapability(NodeId node, TimePoint asked, TimePoint until);

  void Ok() { Error(0); }
  // With no time to live where a recall came since the request was taken.
  void Entry(fuse_entry_param entry);
  void Create(fuse_entry_param entry, const fuse_file_info& file);
  void Attr(const struct stat& attr, double timeout);
  void Readlink(const char* target);
  void Open(const fuse_file_info& file);
  // `early`: the server has not answered it yet (writes_behind.h).
  void Write(std::size_t count, bool early = false);
  void Bytes(std::span<const std::byte> bytes);
  void Bytes(std::span<const iovec> parts);  // one behind the other
  // What has been read; may go to the kernel with other answers, in this turn of the worker. That
  // is no later than a thread that is let run late: whoever makes the kernel drop pages waits for
  // those that are being read.
  void Read(client::Buffer bytes, std::size_t length);
  void StatFs(const struct statvfs& stat);
  void XattrSize(std::size_t size);
  void Lock(const struct flock& lock);
  void Seek(off_t offset);

 private:
  // `over`: it is neither taken up again nor on its way to the server.
  fuse_req_t Take(bool over = true);
  Message TakeMessage();

  // Whether what was asked for may have been recalled meanwhile.
  [[nodiscard]] bool Outdated() const;

  fuse_req_t request_;
  Worker* worker_;
  Message message_;
};

}  // namespace rdfs::fs::fuse
