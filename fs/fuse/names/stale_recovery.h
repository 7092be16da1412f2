// StaleRecovery: finds files again whose handles the server no longer knows.
//
// A server without the right to open by handle has forgotten every handle after a restart, until
// the name is looked up again. This walks the paths of the nodes that a request is about from the
// root, one Lookup a name, and takes the request up again. If a step did not lead to the handle
// that was expected, that file is gone for good, and the request then fails with ESTALE for its
// caller. Names are looked up as root; where the server makes that nobody (root_squash), who may
// not search the directory, as the caller. The server may be started anew meanwhile, as often as it
// likes within the request's deadline; but what else makes one server say ESTALE must not make it
// go round for ever. On its worker's thread; owns itself until it is done.
#pragma once

#include <memory>
#include <vector>

#include "fs/fuse/names/inode_table.h"
#include "fs/fuse/worker/request.h"

namespace rdfs::fs::fuse {

class Worker;

class StaleRecovery {
 public:
  // Of one request, by one server.
  static constexpr std::uint32_t kMostAttempts = 4;
  // Whether looking up again may help the request, of whose nodes `node` is one.
  static bool MayHelp(NodeId node, const Message& message);
  static void Start(Worker& worker, NodeId node, Message message);
  // The second node of a request that has two; else the root, whose handle no server forgets.
  static NodeId SecondNode(const Message& message);

 private:
  StaleRecovery(Worker& worker, std::vector<InodeTable::Step> steps, Message message)
      : worker_(worker), steps_(std::move(steps)), message_(std::move(message)) {}
  // Looks the next name up, or ends.
  static void Next(std::unique_ptr<StaleRecovery> self);
  void Finish();

  Worker& worker_;
  std::vector<InodeTable::Step> steps_;
  std::size_t done_ = 0;
  bool as_caller_ = false;
  Message message_;
};

}  // namespace rdfs::fs::fuse
