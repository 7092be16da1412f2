#include "server/lease/outside_changes.h"

#include <sys/stat.h>

#include <utility>
#include <vector>

#include "server/inode/open_file.h"
#include "server/lease/change_targets.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

using Targets = std::vector<LeaseService::Target>;

void ReadAnew(Core& core, Inode& inode) {
  inode.Changed();
  core.stores.Changed(FileIdOf(inode), 0, ExtentStore::kToEnd);
}

}  // namespace

void OnChangedOutside(Core& core, InodeTable& inodes,
                      std::span<const OutsideWatch::Change> changes) {
  for (const OutsideWatch::Change& change : changes) {
    Targets targets;
    InodePtr child;
    if (change.inode) child = inodes.ChangedOutside(*change.inode, change.moved);
    // What nobody remembers the inode of is looked up again by its name. What is too long for a
    // request nobody has ever looked up: there only the directory is another one.
    const bool too_long = change.name.size() > fs::kMaxNameBytes;
    const bool by_name = !change.name.empty() && !too_long && (change.entry || !child);
    if (by_name) {
      targets.push_back(
          MakeTarget(*change.directory, fs::kRecallAttributes | fs::kRecallName, change.name));
    } else if (change.name.empty() || too_long) {
      targets.push_back(MakeTarget(*change.directory, fs::kRecallAttributes));
    }
    if (child && child != change.directory) {
      if (change.content) ReadAnew(core, *child);
      targets.push_back(
          MakeTarget(*child, fs::kRecallAttributes | (change.content ? fs::kRecallContent : 0U)));
    }
    core.leases.ChangedOutside(targets);
  }
  core.counters.changed_outside.fetch_add(changes.size(), std::memory_order_relaxed);
}

void OnLostOutside(Core& core, InodeTable& inodes) {
  LogWarn("more was changed on this host than the kernel tells: {} is read anew",
          inodes.exported().name());
  for (const InodePtr& inode : inodes.All()) {
    const bool directory = S_ISDIR(inode->type);
    if (!directory) ReadAnew(core, *inode);
    const LeaseService::Target target = MakeTarget(
        *inode, fs::kRecallAttributes | (directory ? fs::kRecallName : fs::kRecallContent));
    core.leases.ChangedOutside(std::span(&target, 1));
  }
}

}  // namespace rdfs::server
