// ExportList: what a server offers, and what belongs to each export: its inodes, the watch on what
// others change in it, and an access class for each key and id mapping that it is mounted with.
//
// Any thread; Add before the first connection. What an export has is made once and stays until the
// list goes: sessions may use what is offered no more.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "server/core.h"
#include "server/inode/handle.h"
#include "server/inode/inode_table.h"
#include "server/lease/outside_watch.h"
#include "server/pool/extent_store.h"
#include "server/session/export.h"
#include "server/session/fs_session.h"

namespace rdfs::server {

// How the descriptors that this process may have are shared out.
struct DescriptorShares {
  InodeLimits inodes;  // of each export
  std::size_t open_files = 0, lock_files = 0;
};
DescriptorShares SharesFor(std::size_t exports);

// The same for every server of the same directory under the same name.
std::uint64_t ExportIdOf(const InodeTable& inodes);

// An export as a new mount finds it.
struct Offer {
  std::shared_ptr<const Export> exported;
  InodeTable* inodes = nullptr;  // lives as long as the list
  IdMode id_mode = IdMode::kAsMe;
};

class ExportList {
 public:
  struct Options {
    HandleSecret secret;
    std::size_t pool_bytes = 0;  // of all exports together; 0: DefaultPoolBytes()
    std::chrono::milliseconds attr_lease{};
    // What opens a directory.
    std::function<Result<std::shared_ptr<const Export>>(const ExportSpec&)> open = Export::Create;
  };
  // `core` outlives the list.
  ExportList(Options options, Core& core);

  // Errors: those of Export::Create and InodeTable::Create, a name that is taken, an id mapping
  // that needs root.
  Status Add(const ExportSpec& spec, const InodeLimits& limits);
  // Offers these from now on: new ones are added, and what a known one's options say holds for
  // mounts to come. One that is missing is offered to nobody new. kInvalidArgument, with nothing
  // changed, for another directory under a known name, by another path or made anew; else the
  // errors of Add. While a directory does not answer this waits, and nobody else but the next one.
  Status Reload(const std::vector<ExportSpec>& specs);

  // None: not offered.
  [[nodiscard]] std::optional<Offer> Find(std::string_view name);
  [[nodiscard]] std::vector<std::string> Names() const;  // of what is offered
  // Whether one has this ExportIdOf.
  [[nodiscard]] bool Has(std::uint64_t export_id) const;
  // For a mount to come: one that comes back keeps the class that it has.
  const AccessClass& ClassOf(const Offer& offer, const std::string& key_name);

  // Whether another session than this has the file open, by whichever export.
  [[nodiscard]] bool OpenedByAnother(const InodeKey& file, std::uint64_t session) const;

  // Of whichever export; null where nobody knows it.
  [[nodiscard]] InodePtr Known(const InodeKey& inode) const;

  // Closes descriptors that were not used lately, `most` at once; how many are left. None: there
  // are more, which the next call goes on with. One thread at a time.
  std::optional<std::size_t> Age(std::size_t most);
  // Of all classes together.
  [[nodiscard]] StoreStats PoolStats() const;
  // No change is told from then on.
  void StopWatching();

 private:
  struct Entry {
    Offer offer;
    std::unique_ptr<InodeTable> inodes;
    std::unique_ptr<OutsideWatch> watch;  // null: this host cannot tell
    bool offered = true;
  };
  Result<Entry> Make(const ExportSpec& spec, const InodeLimits& limits) const;
  std::unique_ptr<OutsideWatch> WatchOutside(InodeTable& inodes);
  Entry* FindLocked(std::string_view name);
  // Whether the export of this name is of another directory, which was where this one is now.
  bool IsMadeAnew(const Offer& now);
  void KeepLocked(Entry entry);

  const Options options_;
  Core& core_;
  std::mutex making_mutex_;        // of who adds to the list; before mutex_
  bool told_of_no_watch_ = false;  // under it
  mutable std::mutex mutex_;       // before classes_mutex_; not held while a directory is opened
  std::vector<Entry> entries_;     // grows only
  // Of who calls Age: where the last call stopped, and what there is left before.
  std::size_t aged_ = 0, left_by_aged_ = 0;
  // Of the entries; for requests, which must not wait for a directory that is listed anew.
  mutable std::mutex tables_mutex_;  // behind mutex_
  std::vector<const InodeTable*> tables_;
  mutable std::mutex classes_mutex_;
  using Door = std::tuple<std::string, std::string, IdMode, Ids>;  // export, key, id mapping
  std::map<Door, std::unique_ptr<AccessClass>> classes_;
};

}  // namespace rdfs::server
