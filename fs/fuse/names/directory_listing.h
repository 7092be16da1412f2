// DirectoryListing: the entries of a directory that the server has sent so far, for the programs
// that list it.
//
// The kernel names the directory, the user and the entry behind which a program goes on (by its
// cookie, which is the server's file system's), and not which of several programs that is. So
// entries are found by their cookies, and programs that list a directory at the same time may share
// a listing or have one each: what one does not have is asked for.
//
// A listing that goes on without a gap from the start of the directory, and began under a lease, is
// what the directory is until the lease is over (IsCurrent). Who begins then needs no message.
//
// No I/O, no clock. One thread at a time: it is with the request that uses it, or kept for the next
// one (kept_opens.h). Memory: kMostGathered entries and a page (kMaxReaddirBytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fs/client/types.h"
#include "fs/fuse/names/open_ahead.h"

namespace rdfs::fs::fuse {

class DirectoryListing {
 public:
  struct Entry {
    std::uint64_t ino = 0;
    std::uint64_t cookie = 0;  // of the position behind it
    std::uint32_t type = 0;    // DT_...
    std::string name;
    std::optional<client::NamedFile> file;
  };
  static constexpr std::size_t kMostGathered = 1024;

  // `changes`: Filesystem::changes before its first page was asked for, `current_until`: when the
  // lease is over that this page comes under.
  DirectoryListing(std::uint64_t changes, TimePoint current_until)
      : changes_(changes), current_until_(current_until) {}

  // What came with the answer to the open. Without entries it says nothing: the server had rather
  // not.
  void TakeFirst(TimePoint now, client::DirPage& page);
  // A page that was asked for behind `cookie`, at that count of changes. Without entries: the end.
  void Take(std::uint64_t cookie, std::uint64_t changes, TimePoint now, client::DirPage& page);

  [[nodiscard]] bool IsCurrent(std::uint64_t changes, TimePoint now) const {
    return from_ == 0 && now < current_until_ && changes_ == changes;
  }
  // Filesystem::changes before the page was asked for that came last.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  // The entries that have come behind `cookie`, until the next call of Take; none when that is not
  // in it.
  [[nodiscard]] std::optional<std::span<const Entry>> Behind(std::uint64_t cookie) const;
  // A program has been told these, of what Behind said.
  void Told(std::span<const Entry> entries);
  // Whether to tell that nothing follows the last entry: as long as it is current, else once. Who
  // asks again wants to see what has come meanwhile.
  [[nodiscard]] bool TakeEnd(std::uint64_t changes, TimePoint now);

  // The directories among what the kernel has been told, for who walks through the tree.
  std::shared_ptr<OpenAhead::Listing> walk;

 private:
  std::uint64_t from_ = 0;  // the cookie before the first entry
  std::vector<Entry> entries_;
  bool ends_ = false;  // nothing follows them
  bool end_was_told_ = false;
  std::uint64_t changes_;
  TimePoint current_until_;
  std::size_t last_told_ = 0;  // a program goes on behind it, mostly
};

}  // namespace rdfs::fs::fuse
