// Destination: makes entries beneath one directory, DST's, and nowhere else.
//
// Whatever the entries say: names are checked (file/names.h), every directory on the way was made
// or opened here without following a symlink (openat2(2), RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS),
// and what is made is made next to its place under a random name of fixed length, ".rdcp-" and 16
// digits, and renamed. So a file appears under its name only when it is whole, with owner, mode,
// ACLs and times; and neither a hostile far end nor a symlink that was there before leads outside.
// With `resume` a large file's temporary name is one that is found again, and what was not finished
// stays, with a journal (journal.h) of what is in it.
//
//     Enter(a) -> Enter(a/b) -> Begin(a/b/f) ... Write, Finish -> Leave(a/b) -> Leave(a)
//
// Directories get their owner, mode and times when they were left and the last file beneath is
// finished, deepest first. Both forms use it: the local one gives OutputFile a file to copy
// from, the remote one bytes.
//
// All calls from any threads at once, but: Enter before what is in it, Leave after all in it was
// begun or is held (Hold). Block in the file system, or until the export's server has answered. A
// failure belongs to its entry only: the others go on.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/copy/destination/clones.h"
#include "tools/copy/destination/journal.h"
#include "tools/copy/file/entry.h"
#include "tools/copy/file/file.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::copy {

class Destination;
class OutputFile;
struct Conduct;

struct DestinationOptions {
  Keep keep{};
  std::uint32_t umask = 022;
  bool in_place = false;  // --inplace: existing files are written, not replaced
  bool resume = false;    // --resume; not with in_place
  // -x: what is mounted beneath stays with --delete.
  bool one_file_system = false;
  // Sources may bring one path (Meet), and come one behind the other.
  bool meet = false;
  // The entries' ids are of this machine, or of exports: a file is not copied onto itself.
  bool same_machine = false;
  // What goes wrong behind a call that had succeeded: a directory's times, a hard link whose first
  // name came later. Any thread.
  std::function<void(const std::string& path, const Status&)> report{};
};

class Destination {
 public:
  // `root`: a directory that is there, from `from` on; symlinks in it are followed, as in any path
  // of the user's.
  static Result<std::unique_ptr<Destination>> Open(const std::string& root,
                                                   DestinationOptions options,
                                                   const FilePtr& from = Here());
  // All OutputFiles are gone. Hard links that still wait are reported.
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  // Where SRC number `source` goes: one name in the root, or nothing: the root itself. Once for
  // each source, before its entries.
  Status AddTarget(std::uint32_t source, const std::string& name);

  // A SRC itself, as it is there: where it lies in DST, --delete leaves it and what is in it.
  // Before any directory is entered that it may lie in; with same_machine only. `again`: as it is
  // by now, for who sees it in another way (AreTwoWays) with the change time that it has then; any
  // thread.
  using Again = std::function<std::optional<Entry>()>;
  void AddSource(const Entry& entry, Again again = {});

  // What is at the entry's place now, if anything; symlinks are not followed.
  Result<std::optional<struct stat>> Look(const Entry& entry);
  // The same where nothing was entered, for a dry run.
  Result<std::optional<struct stat>> Peek(const Entry& entry);
  // Whether the symlink that is at its place leads where it does, likewise.
  bool PeekSameLink(const Entry& entry);
  // The regular file that is at its place, to be read.
  Result<FilePtr> OpenExisting(const Entry& entry);
  // Where the symlink that is at its place leads.
  Result<std::string> ReadExistingLink(const Entry& entry);
  // Whether the root is this directory or lies in it, as far as can be seen: of an export, not
  // beyond its own root.
  [[nodiscard]] bool IsIn(const Entry& directory) const;

  // Makes the directory, or takes the one that is there. It stays open to content until Leave.
  Status Enter(const Entry& entry);
  Status Leave(const Entry& entry);

  // The directory that the entry goes to stays open to it, though it is left meanwhile, until this
  // is dropped: for who hands the entry to another thread.
  using Pin = std::shared_ptr<const void>;
  Result<Pin> Hold(const Entry& entry);

  // For an entry with several `links`, when links are kept: whether the caller brings it (kFirst),
  // or it is made as a link to the one that was brought, now (kLink; kThere if it was one already)
  // or when that is finished (kWaits; `made` is called then, by any thread, if there was a link to
  // make). When that failed, the next name is the first one. `whole`: it is there already (Look,
  // and nothing to do), and later names are linked to it. `stays`: what is at its place is not
  // replaced by a link (kThere).
  enum class Turn : std::uint8_t { kFirst, kLink, kThere, kWaits };
  Result<Turn> TakeTurn(const Entry& entry, bool whole = false, std::function<void()> made = {},
                        bool stays = false);
  // How that ended, where neither an OutputFile nor Make tells it: the caller could not bring it,
  // or found that it is there. Links that wait are made, or reported.
  void Settle(const Entry& entry, bool is_there);

  // A symlink, FIFO, socket or device.
  Status Make(const Entry& entry);
  // A regular file; see OutputFile.
  Result<std::unique_ptr<OutputFile>> Begin(const Entry& entry);
  // The same file where an earlier copy of the same source was interrupted, with what of it can be
  // believed (OutputFile::kept); null where there is nothing: then it is for Begin, which removes
  // what is left. Reads what is there. Errors: kErrno EINTR soon after `stop` was set.
  Result<std::unique_ptr<OutputFile>> GoOn(const Entry& entry, const std::atomic<bool>& stop);
  // Owner, mode, times and so on of a file that is there and whose data are right.
  Status Touch(const Entry& entry);

  // --delete: removes what is in a directory between its Enter and Leave, and beneath, but the
  // names that were `seen` in SRC's, under whatever name a file system that folds case has them,
  // what `keeps` wants, and the directories that this is in; and never what somebody may go on
  // with, with `resume`. A source (AddSource) stays, too, which is an error. `path`: from that
  // directory on. `gone` is told what went, from the root on. Nothing more goes once `stop`, if
  // there is one, is set.
  using Names = std::unordered_set<std::string>;
  using Keeps = std::function<bool(const std::string& path, bool is_directory)>;
  using Gone = std::function<void(const std::string& path)>;
  Status Prune(const Entry& entry, const Names& seen, const Keeps& keeps, const Gone& gone,
               const std::atomic<bool>* stop = nullptr);
  // The same for a dry run: nothing is entered, and nothing goes.
  Status PeekPrune(const Entry& entry, const Names& seen, const Keeps& keeps, const Gone& gone,
                   const std::atomic<bool>* stop = nullptr);

 private:
  friend class OutputFile;
  struct Node;
  struct Place;
  struct LinkGroup;
  struct Known;
  struct Origin {
    Entry entry;
    Again again;
  };
  using NodePtr = std::shared_ptr<Node>;

  Destination(FilePtr root, DestinationOptions options);
  Result<std::string> PathOf(const Entry& entry);
  Result<NodePtr> FolderFor(const std::string& path);
  Result<Place> PlaceOf(const Entry& entry);
  // With what is there now; fails if that must not be replaced by `entry`.
  Result<Place> PlaceFor(const Entry& entry);
  Status PruneIn(File& directory, const std::string& path, const Names& seen, const Keeps& keeps,
                 const Gone& gone, const std::atomic<bool>* stop, bool dry_run);
  [[nodiscard]] bool IsSource(const struct stat& info);
  [[nodiscard]] bool IsOurs(const std::string& name) const;
  static bool HasDefaultAcl(File& directory);
  static std::optional<gid_t> GroupOf(const struct stat& directory);
  NodePtr NewNode();
  Status EnterAt(const Place& place, const Entry& entry, Node& node);
  Status OpenNode(const Place& place, const Entry& entry, Node& node);
  Status AddNode(const NodePtr& node, const Entry& entry);
  bool IsMade(const Entry& entry);
  Result<FilePtr> OpenedFolder(Node& node);
  void KeepOpen(Node& node, FilePtr file);
  void FinishNode(Node* node);
  Status ApplyToNode(Node& node);
  Status MakeAt(const Place& place, const Entry& entry, bool& is_there);
  Result<Turn> MakeLink(const std::string& first, const Place& place);
  Result<Turn> MakeLinkOf(const FileId& made, const std::string& first, const Place& place);
  void NoteLink(const Entry& entry, const std::string& first, const std::string& path, Turn turn);
  [[nodiscard]] FileId IdAt(const std::string& path) const;
  bool MayBeWritten(const struct stat& there, const Entry& entry);
  // This copy's own, one after the other.
  std::uint64_t NextNumber();
  std::string TemporaryName();

  const DestinationOptions options_;
  const FilePtr root_;
  const std::uint32_t run_;   // in all our temporary names
  std::uint64_t device_ = 0;  // of the root
  std::atomic<std::uint32_t> temporaries_{0};
  Clones clones_;
  std::mutex mutex_;  // guards what follows; never held during a system call
  std::unordered_map<std::uint32_t, std::string> targets_;
  std::unordered_multimap<std::uint64_t, Origin> sources_;  // of AddSource, by inode
  std::unordered_map<std::string, Known> nodes_;
  std::list<Node*> recent_;  // that are open; the latest first
  // Those in nodes_; for same_machine only.
  std::unordered_map<FileId, std::weak_ptr<Node>> ids_;
  std::unordered_map<FileId, LinkGroup> groups_;
  // With --inplace: files of several names that are written, and of which source.
  std::unordered_map<FileId, FileId> written_;
};

// A regular file that is being made. Write, Hole and CopyFrom from any threads at once, in any
// order and never over each other; the rest by one. Without Finish nothing is left of it; with
// --inplace, and of a large file with `resume`, what was written stays.
class OutputFile {
 public:
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status Write(std::uint64_t offset, ByteSpan bytes);
  // What is never written is a hole anyway; in place it must be told.
  Status Hole(std::uint64_t offset, std::uint64_t length);
  // All of `source`, `size` bytes, but what is kept, holes as holes, by whatever is fastest here: a
  // reflink, or see file/data.h. Errors: as CopyData's.
  Status CopyFrom(File& source, std::uint64_t size, const Conduct& conduct);
  // For the owner's own reading, as long as this lives: --verify, checksums.
  [[nodiscard]] File& file() const;
  // Cuts what is longer, and makes what is shorter end in a hole. Finish does it as well.
  Status SetLength(std::uint64_t size);
  // What need not be written again, in order; of GoOn.
  [[nodiscard]] const std::vector<Range>& kept() const;
  [[nodiscard]] std::uint64_t kept_bytes() const;
  // Nothing is left of it, and whoever has begun it anew settles it.
  void Forget();
  // It is not what it should be: nothing is left of it, whatever happens to this.
  void Distrust();
  // Sets length, owner, mode, xattrs, times as `entry` says and gives it its name.
  Status Finish(const Entry& entry);

 private:
  friend class Destination;
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);
  Status Open();
  [[nodiscard]] mode_t FirstMode() const;
  [[nodiscard]] mode_t PartialMode() const;
  [[nodiscard]] bool ReplacesFile() const;
  bool OpenPartial(bool go_on);
  bool TakePartial(const std::vector<std::string>& left);
  bool MakePartial(const std::vector<std::string>& left);
  Status KeepTrusted(const std::atomic<bool>& stop);
  [[nodiscard]] Status CheckPartial() const;
  void Remove();
  Status CopyMissing(File& source, std::uint64_t begin, std::uint64_t end, const Conduct& conduct);
  bool Clone(File& source, std::uint64_t device);
  static Status FindData(File& source, std::uint64_t size, std::uint64_t& begin,
                         std::uint64_t& end);
  void Reached(std::uint64_t end);
  void Note(std::uint64_t offset, ByteSpan bytes);
  void GiveAccess();

  std::unique_ptr<State> state_;
};

}  // namespace rdfs::copy
