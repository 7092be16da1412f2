// Journal: what of a file that was not finished can be believed by whoever goes on with it.
//
// A file beside the unfinished one. It begins with the source as it was (SourceMark); each stretch
// that has been written is noted behind that, with its checksum, after its bytes. Whoever goes on
// compares the source, reads every stretch again and takes only what still has its checksum:
// nothing here has to be on the disk in any order, and a torn record is one that is not believed.
// It is locked as long as it is open: two copies never write one file.
//
// At an export a lock can be lost by who does not know it yet, frozen for a while. He cannot write
// any more, but could still give the unfinished file its final name. So there each copy gives it a
// name of its own, and notes that here before.
//
// Add from any threads at once; the rest by one. Blocks as its File does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copy/file/entry.h"
#include "tools/copy/file/file.h"
#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// A smaller file is quicker copied again than found again.
inline constexpr std::uint64_t kLeastResumed = (256 << 10) + 1;

// What a source is known by again: if any of it is another, so may its bytes be.
struct SourceMark {
  std::uint64_t size = 0, inode = 0;
  timespec mtime{}, ctime{};

  static SourceMark Of(const Entry& entry) {
    return {entry.size, entry.id.inode, entry.mtime, entry.ctime};
  }
  friend bool operator==(const SourceMark& a, const SourceMark& b);
};

struct Range {
  std::uint64_t offset = 0, length = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// Pure. Of [begin, end) the first stretch that is in none of `kept`, which are in order; empty and
// at `end` when there is none.
Range NextMissing(std::span<const Range> kept, std::uint64_t begin, std::uint64_t end);

// Pure. What the unfinished file of that name and its journal are called, beside it: of fixed
// length, and always the same.
std::string PartialName(std::string_view name);
// The same for one copy's own.
std::string PartialName(std::uint64_t number);
std::string JournalName(std::string_view name);
bool IsPartialName(std::string_view name);

class Journal {
 public:
  // `name` in `directory`; `make`: also where there is none. Null where there is none, where
  // somebody else has it, or where it is not what we made: nothing is changed then, and what cannot
  // be used is not left there anew.
  static std::unique_ptr<Journal> Open(File& directory, const std::string& name, bool make);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Forgets everything and begins anew. Errors: kErrno.
  Status Start(const SourceMark& mark);
  // What of `file` is as it was noted, of a source like that; in order, never over each other. None
  // of another source. kErrno EINTR soon after `stop` was set.
  [[nodiscard]] Result<std::vector<Range>> Trusted(const SourceMark& mark, File& file,
                                                   const std::atomic<bool>& stop) const;
  // These bytes are in the file. What cannot be noted will be copied again. At an export several
  // are noted at once, and the last ones by Flush.
  void Add(std::uint64_t offset, ByteSpan bytes);
  void Flush();
  // The unfinished file is about to be called PartialName(number).
  Status AddNumber(std::uint64_t number);
  // Those that were added, the latest first; not all where there are very many. Empty also where
  // they cannot be read.
  [[nodiscard]] std::vector<std::uint64_t> Numbers() const;

 private:
  struct Record;
  template <typename Wanted>
  [[nodiscard]] Result<std::vector<Record>> Read(const std::atomic<bool>& stop,
                                                 Wanted wanted) const;
  Journal(FilePtr file, std::uint64_t size);

  const FilePtr file_;
  const std::size_t at_once_;
  std::atomic<std::uint64_t> end_;  // of what is in it
  std::mutex mutex_;                // guards what follows
  std::vector<Record> pending_;
  TimePoint flushed_;
};

}  // namespace rdfs::copy
