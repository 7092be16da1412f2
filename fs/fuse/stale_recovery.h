// StaleRecovery: finds a file again whose handle the server no longer knows.
//
// A server without the right to open by handle has forgotten every handle after a restart, until
// the name is looked up again. This walks the node's path from the root, one Lookup a name, and
// takes the request up again when every step led to the handle that was expected. If one did not,
// the file is gone for good, and the request is taken up all the same: it then fails with ESTALE
// for the caller. On its worker's thread; owns itself until it is done.
#pragma once

#include <memory>
#include <vector>

#include "fs/fuse/inode_table.h"
#include "fs/fuse/request.h"

namespace rdfs::fs::fuse {

class Worker;

class StaleRecovery {
 public:
  static void Start(Worker& worker, NodeId node, Message message);

 private:
  StaleRecovery(Worker& worker, std::vector<InodeTable::Step> steps, Message message)
      : worker_(worker), steps_(std::move(steps)), message_(std::move(message)) {}
  // Looks the next name up, or ends.
  static void Next(std::unique_ptr<StaleRecovery> self);
  void Finish();

  Worker& worker_;
  std::vector<InodeTable::Step> steps_;
  std::size_t done_ = 0;
  Message message_;
};

}  // namespace rdfs::fs::fuse
