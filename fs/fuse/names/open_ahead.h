// OpenAhead: which directories a walk through a tree is about to open.
//
// Who opens a directory that has just been listed in its parent, and then the next one of the same
// listing, walks through a tree (find, du, rsync, ls -R). Those that follow in the listing are then
// asked for before they are opened, twice as many each time up to kMost, behind the answer to the
// one that is, so that nobody waits for them. What comes is kept (kept_opens.h) and given up within
// a second if nobody wants it. A walk that changes things (rm -r) is not followed: what was listed
// ahead of it would be out of date.
//
// Decides only; ops_dir.cc asks. One worker's, on its thread. Memory: bounded by kMostKnown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/fuse/names/inode_table.h"
#include "fs/fuse/worker/request.h"

namespace rdfs::fs::fuse {

class OpenAhead {
 public:
  static constexpr std::size_t kMost = 8;  // asked for and not opened yet, of one listing
  static constexpr std::size_t kMostKnown = 16384;

  // One directory's listing, as far as the kernel has it.
  struct Listing {
    const OpenAhead* owner = nullptr;
    std::vector<NodeId> directories;
    std::uint64_t changes = 0;  // Filesystem::changes when it was made
    std::size_t next = 0;       // neither opened nor asked for yet, and all behind it
    std::size_t ahead = 0;      // how many to ask for the next time
  };

  // The listing goes on with this directory.
  void Listed(const std::shared_ptr<Listing>& listing, NodeId directory);
  // The kernel opens this one, and nothing has changed since `changes`: what to ask for now.
  std::vector<NodeId> Opened(NodeId directory, std::uint64_t changes);

  // `directory` is asked for on behalf of this user, by the call that Asked names next. False: it
  // has been already.
  [[nodiscard]] bool Ask(NodeId directory, std::uint32_t uid, std::uint32_t gid);
  void Asked(NodeId directory, client::CallTicket ticket);
  // The call by which it has, if no answer has come: then the request waits for that.
  std::optional<client::CallTicket> Wait(NodeId directory, Request& request);
  // The answer has come: for the request that waits for it, if one does.
  std::optional<Request> Came(NodeId directory);
  [[nodiscard]] std::size_t known() const { return places_.size(); }

 private:
  struct Place {
    std::shared_ptr<Listing> listing;
    std::size_t index = 0;
  };
  struct Pending {
    std::uint32_t uid = 0, gid = 0;
    client::CallTicket ticket = 0;
    std::optional<Request> waiting{};
  };
  std::unordered_map<NodeId, Place> places_;
  std::unordered_map<NodeId, Pending> pending_;
};

}  // namespace rdfs::fs::fuse
