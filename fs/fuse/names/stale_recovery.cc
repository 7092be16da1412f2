#include "fs/fuse/names/stale_recovery.h"

#include <cerrno>
#include <utility>

#include "fs/fuse/worker/worker.h"
#include "transport/base/log.h"

namespace rdfs::fs::fuse {

NodeId StaleRecovery::SecondNode(const Message& message) {
  switch (message.header().opcode) {
    case FUSE_LINK:
      return message.Body<fuse_link_in>().oldnodeid;
    case FUSE_RENAME:
      return message.Body<fuse_rename_in>().newdir;
    case FUSE_RENAME2:
      return message.Body<fuse_rename2_in>().newdir;
    case FUSE_COPY_FILE_RANGE:
      return message.Body<fuse_copy_file_range_in>().nodeid_out;
    default:
      return kRootNode;
  }
}

bool StaleRecovery::MayHelp(NodeId node, const Message& message) {
  if (message.attempts >= kMostAttempts) return false;
  return node != kRootNode || SecondNode(message) != kRootNode;
}

void StaleRecovery::Start(Worker& worker, NodeId node, Message message) {
  ++message.attempts;
  std::vector<InodeTable::Step> steps;
  for (const NodeId each : {node, SecondNode(message)}) {
    auto path = worker.filesystem().inodes.PathTo(each);
    if (!path) {
      message.attempts = kMostAttempts;
      continue;
    }
    steps.insert(steps.end(), path->begin(), path->end());
  }
  LogDebug("looking node {} up again along {} names", node, steps.size());
  Next(std::unique_ptr<StaleRecovery>(
      new StaleRecovery(worker, std::move(steps), std::move(message))));
}

void StaleRecovery::Next(std::unique_ptr<StaleRecovery> self) {
  if (self->done_ == self->steps_.size()) return self->Finish();
  const InodeTable::Step& step = self->steps_[self->done_];
  client::Lane& lane = self->worker_.lane();
  const fuse_in_header& header = self->message_.header();
  const client::CallContext caller{.uid = header.uid, .gid = header.gid, .pid = header.pid};
  // Apart: the call below moves `self` away, in whatever order it takes its arguments.
  const client::CallContext whose = self->as_caller_ ? caller : client::CallContext{};
  lane.Lookup(whose, step.parent, step.name,
              [self = std::move(self)](Result<client::NamedFile>&& found) mutable {
                const InodeTable::Step& at = self->steps_[self->done_];
                if (!found.ok() && found.status().errno_value() == EACCES && !self->as_caller_) {
                  self->as_caller_ = true;
                  return Next(std::move(self));
                }
                if (!found.ok() || found->handle != at.expected) {
                  // A lookup that was answered with ESTALE itself met another restart.
                  if (found.ok() || found.status().errno_value() != ESTALE) {
                    self->message_.attempts = kMostAttempts;
                  }
                  return self->Finish();
                }
                ++self->done_;
                Next(std::move(self));
              });
}

void StaleRecovery::Finish() { worker_.Resume(std::move(message_)); }

}  // namespace rdfs::fs::fuse
