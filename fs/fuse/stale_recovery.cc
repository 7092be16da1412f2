#include "fs/fuse/stale_recovery.h"

#include <utility>

#include "fs/fuse/worker.h"
#include "transport/base/log.h"

namespace rdfs::fs::fuse {

void StaleRecovery::Start(Worker& worker, NodeId node, Message message) {
  auto steps = worker.filesystem().inodes.PathTo(node);
  if (!steps) steps.emplace();
  LogDebug("looking node {} up again along {} names", node, steps->size());
  Next(std::unique_ptr<StaleRecovery>(
      new StaleRecovery(worker, std::move(*steps), std::move(message))));
}

void StaleRecovery::Next(std::unique_ptr<StaleRecovery> self) {
  if (self->done_ == self->steps_.size()) return self->Finish();
  const InodeTable::Step& step = self->steps_[self->done_];
  client::Lane& lane = self->worker_.lane();
  lane.Lookup({}, step.parent, step.name,
              [self = std::move(self)](Result<client::NamedFile>&& found) mutable {
                const InodeTable::Step& at = self->steps_[self->done_];
                if (!found.ok() || found->handle != at.expected) return self->Finish();
                ++self->done_;
                Next(std::move(self));
              });
}

void StaleRecovery::Finish() { worker_.Resume(std::move(message_)); }

}  // namespace rdfs::fs::fuse
