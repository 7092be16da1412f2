// GrantCache: the grants that a lane holds, by file and range, so that a repeated or sequential
// read inside a granted extent costs no message.
//
// Pure and bounded: it decides which extents a read may use; the lane READs them and checks their
// generation words. A grant dies at its lease's end, when this client changes what it covers (every
// lane's changes count: InodeState::own_changes), when the file turns out to have another change
// cookie, and when its arena goes. One thread: the lane's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "fs/client/open_file.h"
#include "fs/protocol.h"
#include "transport/base/clock.h"

namespace rdfs::fs::client {

struct CachedGrant {
  std::uint64_t file_offset = 0;
  std::uint32_t length = 0;
  std::uint32_t arena = 0;
  std::uint64_t arena_offset = 0;
  std::uint32_t generation_arena = 0;
  std::uint64_t generation_offset = 0;
  std::uint64_t generation = 0;
  TimePoint expires{};

  [[nodiscard]] std::uint64_t end() const { return file_offset + length; }
  static CachedGrant From(const GrantWire& wire, TimePoint asked);
};

// A part of one extent that a read takes.
struct GrantPiece {
  CachedGrant grant;
  std::uint32_t skip = 0;    // bytes of the extent before it
  std::uint32_t length = 0;  // bytes taken
};

class GrantCache {
 public:
  struct Limits {
    std::size_t files = 256;
    std::size_t grants_per_file = 256;
  };
  explicit GrantCache(Limits limits) : limits_(limits) {}

  // What a reply granted. `own_changes` is the inode's count when the request was sent: if it has
  // moved since, the grants may be older than a write of ours and are left out.
  void Insert(const std::shared_ptr<InodeState>& inode, std::uint64_t own_changes,
              std::uint64_t change, std::uint64_t file_size, std::span<const CachedGrant> grants);

  struct Cover {
    std::size_t pieces = 0;
    std::uint32_t length = 0;     // bytes that the pieces hold
    bool to_end_of_file = false;  // the file ends with them
    std::uint64_t file_size = 0;
  };
  // The pieces that hold [offset, offset + length), as many as fit `out`. length 0 when the first
  // byte is not covered; a read beyond the end of the file is never answered from here.
  Cover Find(const InodeState& inode, std::uint64_t offset, std::uint32_t length, TimePoint now,
             std::span<GrantPiece> out);
  // How far grants reach without a gap from `offset` on; the end of the file when they reach it.
  struct Reach {
    std::uint64_t end = 0;
    bool to_end_of_file = false;
  };
  Reach ReachFrom(const InodeState& inode, std::uint64_t offset, TimePoint now);

  // After a change of ours to [from, end): counts it for every lane, drops what it makes untrue
  // here. A change of unknown extent is [0, UINT64_MAX).
  void OwnChange(InodeState& inode, std::uint64_t from, std::uint64_t end);
  void DropFile(const InodeState& inode);
  void DropArena(std::uint32_t arena);
  void Clear();

  [[nodiscard]] std::size_t files() const { return files_.size(); }
  [[nodiscard]] std::size_t grants() const;

 private:
  struct File {
    std::shared_ptr<InodeState> inode{};
    std::uint64_t own_changes = 0;
    std::uint64_t change = 0;
    std::uint64_t file_size = 0;
    std::vector<CachedGrant> grants{};  // by file_offset, disjoint
  };
  using Files = std::list<File>;  // most recently used first

  // The file's grants if they still count, else null.
  File* Valid(const InodeState& inode);
  static void InsertOne(File& file, const CachedGrant& grant);

  const Limits limits_;
  Files files_;
  std::unordered_map<const InodeState*, Files::iterator> index_;
};

}  // namespace rdfs::fs::client
