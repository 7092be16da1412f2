// Scanner: walks one SRC, and tells what it meets.
//
// Goes from open directory to directory (O_NOFOLLOW), never by a long path:
// what lies beyond PATH_MAX is reached, and a directory that is replaced by a symlink during the
// walk is not followed. A directory comes before its content and its end behind it; the order
// within one is the file system's. Memory and descriptors are bounded by the depth, not by the
// number of names: of a directory that is very deep in others the names are held.
//
// What cannot be read is told in its place, and the walk goes on. One thread; blocks in the file
// system, or until the export's server has answered; creates and changes nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/copy/file/entry.h"
#include "tools/copy/file/file.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// Which paths take part. Called by the scanner's thread, but for WouldTake.
class Filter {
 public:
  virtual ~Filter() = default;
  // `path` as in Entry, never empty. False for a directory leaves out all that is beneath it.
  [[nodiscard]] virtual bool Takes(std::string_view path, bool is_directory) = 0;
  // The same, and nothing is noted of it: any thread, beside the scanner's.
  [[nodiscard]] virtual bool WouldTake(std::string_view path, bool is_directory) const = 0;
  // With --delete: whether it may go at the destination when it is not in the source. Not what was
  // left out, nor what should have been there.
  [[nodiscard]] virtual bool MayGo(std::string_view path, bool is_directory) const = 0;
};

struct ScanOptions {
  bool recurse = false;          // -r; without, a directory is a problem
  bool follow = false;           // -L: what symlinks lead to takes their place
  bool follow_source = false;    // the same for SRC itself only
  bool one_file_system = false;  // -x: what is mounted beneath appears as an empty directory
  Filter* filter = nullptr;      // outlives the scanner
};

struct Scanned {
  enum class What : std::uint8_t {
    kEnter,    // a directory; its content follows, and then its kLeave
    kLeave,    // entry.path only
    kEntry,    // anything else
    kProblem,  // entry.path, and why; ENOENT: it vanished
  };
  What what = What::kEntry;
  Entry entry;  // without xattrs: see file/metadata.h
  // How to reach it: directory->Open(name). kEnter: `directory` is itself and `name` is ".".
  FilePtr directory;
  std::string name;
  bool follow = false;    // what a symlink of that name leads to is meant
  bool unread = false;    // kEnter: there may be something in it, which is not told of
  bool replaced = false;  // of OpenSource: its name is another file's by now
  Status problem;
};

class Scanner {
 public:
  // `source`: see Entry. `path`: from the directory `from` on. Fails if there is no such file.
  static Result<std::unique_ptr<Scanner>> Open(std::uint32_t source, const std::string& path,
                                               const ScanOptions& options, FilePtr from = Here());
  ~Scanner();
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  // False at the end.
  bool Next(Scanned& out);
  // The directory that was just entered: nothing of its content, and its kLeave neither.
  void Skip();

 private:
  struct Level;
  Scanner(std::uint32_t source, const ScanOptions& options);

  Status Begin(const std::string& path, FilePtr from);
  bool Visit(const std::string& name, Scanned& out);
  void Descend(Entry entry, Scanned& out);
  void Rise(Scanned& out);
  Status Refill(Level& level);
  Status Reopen(Level& level, const Level& child);
  void HoldNames();
  [[nodiscard]] bool IsLoop(const FileId& id) const;
  void Fill(Scanned& out, Scanned::What what, Entry entry) const;

  const std::uint32_t source_;
  const ScanOptions options_;
  Scanned first_;  // SRC itself
  bool begun_ = false;
  std::uint64_t device_ = 0;  // of SRC, for one_file_system
  std::vector<std::unique_ptr<Level>> levels_;
};

// The regular file of that name, opened to be read, and `scanned.entry` as it is now: where another
// one was renamed onto it (`replaced`) that one's, with this name alone. Fails with kErrno ENOENT
// when something else has taken its name since. Never blocks on a FIFO.
Result<FilePtr> OpenSource(Scanned& scanned);
// The rest of what `keep` wants: a symlink's target, extended attributes. `file`: of OpenSource, or
// null.
Status ReadRest(Scanned& scanned, const FilePtr& file, const Keep& keep);

}  // namespace rdfs::copy
