// Watcher: directories of a mount whose changes are told as they happen.
//
// It looks at a directory and takes leases on it and on what is in it; who changes something
// recalls them, and is answered at once. Then it looks again, until the server gives leases again:
// that is when the change has been carried out. Where leases run out it looks, too, so that nothing
// is missed for longer than one lasts (5 s, or 1 s where the server cannot watch its own host).
// Looks at one directory are at least kPause apart, so that who writes a lot is not slowed down by
// it.
//
// A server that has started again may know no handles: a directory is looked up anew then, by the
// names that were seen last on the way to it.
//
// While more waits to be read than the output takes, it only answers recalls: what changes
// meanwhile is told as one, and who changes it does not wait for who reads.
//
// One thread, the caller's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fs/client/sync_client.h"
#include "fs/watch/listing.h"
#include "fs/watch/output.h"

namespace rdfs::fs::watch {

class Watcher {
 public:
  // `mount` has no lanes yet; it and `output` outlive it. `stop` is readable when it is told to
  // end. Blocks until the lane is there.
  static Result<std::unique_ptr<Watcher>> Create(client::Mount& mount,
                                                 const client::CallContext& caller, bool recursive,
                                                 Output& output, int stop, Deadline deadline);
  ~Watcher();

  // Begins with what is there now. `path`: names from the export's root; `shown`: how lines name
  // it. Errors: the server's, with the name; ENOTDIR. Told to end, it leaves out the rest.
  Status Add(const std::string& path, std::string shown);
  [[nodiscard]] std::size_t directories() const { return directories_.size(); }
  // Whether it has been told to end.
  [[nodiscard]] bool IsTold() const;
  // Tells until it is told to end, or every directory is gone.
  void Run();

  static constexpr std::chrono::milliseconds kPause{50};
  static constexpr std::size_t kMostDirectories = 100'000;

 private:
  struct Directory {
    std::string shown;
    bool named = false;  // by who watches: it keeps that name, wherever it is moved
    Listing listing;
    std::vector<Handle> files;  // of what is in it
    TimePoint looked{};
    TimePoint next{};  // when to look again; max while it is looked at and nothing was recalled
    bool pressing = false;  // at `next`, for more than its leases: it is in pressing_
    unsigned unleased = 0;  // looks without a lease, one after the other
    bool away = false;      // the last look failed
  };

  Watcher(client::Mount& mount, bool recursive, Output& output, int stop)
      : mount_(mount), recursive_(recursive), output_(output), stop_(stop) {}
  void OnRecall(client::Lane& lane, const client::RecallNotice& notice);
  // `come`: found while it was watched, so that what is in it is told to have come as well (also of
  // one that could not be read before).
  Status AddDirectory(const Handle& handle, std::string shown, bool named, bool come);
  // Looks, tells what differs (first: nothing), and says when to look again.
  Status Look(const Handle& handle, bool first);
  void Take(const Handle& handle, Directory& directory, const client::Attributes& own,
            const std::vector<client::SyncClient::ListedEntry>& entries, bool first);
  // It holds none of its files any more: the time that takes goes by their number.
  void LetGoOfFiles(const Handle& handle, const Directory& directory);
  // Something in it has changed, or is about to: when to look, before what only runs out.
  void Press(const Handle& handle, Directory& directory, TimePoint when);
  // The one that has been pressing the longest, of those whose time has come.
  std::optional<Handle> TakePressing();
  // At one that was looked at before; tells when it is gone.
  void LookAgain(const Handle& handle);
  void LookWhereDue(TimePoint now);
  // It is found under another name now, and so is what has been found below.
  void Rename(const Handle& handle, std::string shown);
  void Forget(const Handle& handle);
  void NoteWay(const Handle& to, const Handle& parent, std::string_view name);
  // Looks up every name on the way to it; whether it is still what is found there.
  bool FindAgain(const Handle& handle);
  [[nodiscard]] TimePoint Next() const;

  client::Mount& mount_;
  const bool recursive_;
  Output& output_;
  const int stop_;
  std::unordered_map<Handle, Directory, HandleHash> directories_;
  std::unordered_multimap<Handle, Handle, HandleHash> holders_;  // what is where
  // Where a change is expected, by when to look. One is left in it that is looked at sooner.
  std::multimap<TimePoint, Handle> pressing_;
  std::vector<std::pair<Handle, std::string>> found_;  // directories to add
  bool full_ = false;                                  // one was too many, and that has been said
  // The last step to each directory, also to those on the way to what is watched.
  std::unordered_map<Handle, client::PathStep, HandleHash> ways_;
  std::unique_ptr<client::SyncClient> client_;  // last: recalls use the rest
};

}  // namespace rdfs::fs::watch
