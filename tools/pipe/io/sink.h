// Sink: where a stream goes: standard output or FILE for rdrecv; a program that takes it over.
//
// A regular FILE is written beside its place, under another name, and renamed at the end: nobody
// ever sees a part of it under its own. Pieces may come in any order, and holes stay holes. Whole
// pages of it behind the first 32 MiB go past the page cache (open(2), O_DIRECT), where the file
// system can do that: it has to be on the disk at the end (figures: ARCHITECTURE.md). A
// device or a FIFO, and standard output, are streams: written in order, in place, holes as zeros.
// Names that are in the way, and what is kept of an interrupted stream:
//
//   FILE.rdpart       with keep_partial or resume; locked while it is written, if that can be
//   .rdrecv-XXXXXXXX  otherwise; random, removed on failure
//
// Used by one thread at a time, save Write. Blocks; returns kErrno EINTR soon after `stop` was set.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/pipe/io/handover.h"
#include "tools/pipe/io/stopping.h"
#include "tools/pipe/wire/protocol.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::pipe {

struct SinkOptions {
  std::string path;           // empty: standard output
  bool keep_partial = false;  // on failure the part is kept, and named in the message
  bool resume = false;        // go on with such a part
  // Instead: whoever reads there. A stream, and only for who unblocks it.
  std::shared_ptr<Handover> program{};
};

// What of FILE.rdpart there is to go on with: the digests of its blocks.
struct Partial {
  std::uint64_t bytes = 0, block_bytes = 0;
  std::vector<Digest> blocks;
};

class Sink {
 public:
  // What can be known before anybody is listened for: that the folder is there and may be written.
  static Status Check(const SinkOptions& options);
  // Blocks while a FIFO has no reader.
  static Result<std::unique_ptr<Sink>> Open(const SinkOptions& options, const StopFlag& stop);
  // Not finished: removes or keeps the part; see Abandon.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // Pieces may be written in any order, by any thread.
  [[nodiscard]] bool ranged() const { return ranged_; }
  // Reads the whole part, when it is to be resumed, or was paused.
  Result<Partial> ReadPartial() const;
  // Forgets what is behind `offset`.
  Status StartAt(std::uint64_t offset);
  // Of a ranged one: what is in it, which stays there when the sink is abandoned.
  [[nodiscard]] Result<Fd> Reader() const;
  Status Write(std::uint64_t offset, ByteSpan bytes) const;
  Status WriteHole(std::uint64_t length) const;  // a ranged sink has nothing to do
  // A ranged one is at least so long, also where nothing but a hole comes last.
  Status ReachTo(std::uint64_t end) const;
  // From now on WriteSome may be used, which waits for no other process. False where that cannot be
  // had; then nothing has changed.
  bool Unblock();
  // Of a stream: as much as it takes now. 0: nothing, and in time writable() becomes writable or
  // told() readable; -1 is nothing.
  Result<std::size_t> WriteSome(ByteSpan bytes) const;
  [[nodiscard]] int writable() const { return fd_; }
  [[nodiscard]] int told() const { return options_.program ? options_.program->fd() : -1; }
  // All is there: makes it last (fsync(2)) and gives it its name.
  Status Finish(std::uint64_t length);
  // Somebody else may go on with `whole`, what is there without a gap once StartAt was called; of a
  // ranged one. Then ObeyFrom and ReadPartial, or Abandon.
  Status Pause(std::uint64_t whole);
  // Another flag in place of the one that Open was given.
  void ObeyFrom(const StopFlag& stop) { stop_ = &stop; }
  // It will not be finished. `whole`: what is there without a gap, once StartAt was called; before,
  // a part that was to be resumed stays as it is. Returns the name of the part that is kept, if
  // any.
  std::string Abandon(std::uint64_t whole);

 private:
  Sink(SinkOptions options, const StopFlag& stop) : options_(std::move(options)), stop_(&stop) {}
  Status OpenInPlace();
  Status OpenBeside();
  void OpenDirect();
  // Whether all of it may go past the page cache.
  [[nodiscard]] bool GoesDirect(std::uint64_t offset, ByteSpan bytes) const;
  Status TakeRandomName();
  Status TakePartialName();
  // The file becomes as open to others as the one that has the name now.
  void BeAsOpenAsReplaced() const;
  [[nodiscard]] bool TakeAcl() const;
  [[nodiscard]] Status Failure(int error) const;
  [[nodiscard]] std::string NameInMessages() const;

  const SinkOptions options_;
  const StopFlag* stop_;
  Fd folder_;  // of the file, ranged only
  Fd owned_;
  int fd_ = -1;
  Fd direct_;  // the same file, past the page cache; or none
  mutable std::atomic<bool> direct_refused_{false};
  std::string final_name_, temporary_name_;  // in folder_
  std::string folder_path_;
  mode_t mode_ = 0666;  // with which it is made
  bool ranged_ = false;
  bool started_ = false;
  bool paused_ = false;
  bool done_ = false;
};

// What flock(2) of a part at `path` has said. Where there is none it is done without.
Status JudgeLock(int error, const std::string& path);
// `why`, and where the part is that Abandon has kept, if it has.
Status WithKept(const Status& why, const std::string& kept);

}  // namespace rdfs::pipe
