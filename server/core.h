// Core: what all loops of a server share, wired in main (service.cc) and in tests.
//
// Made before the first loop, outlives the last. Everything in it may be used by any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/identity/group_cache.h"
#include "server/identity/identity.h"
#include "server/inode/beneath.h"
#include "server/inode/open_keep.h"
#include "server/lease/lease_service.h"
#include "server/lock/lock_service.h"
#include "server/pool/extent_store.h"
#include "server/process/counters.h"
#include "server/session/fs_session.h"
#include "server/session/grace.h"
#include "server/session/limits.h"
#include "server/supervisor/supervisor_keeper.h"
#include "server/write/free_space.h"
#include "server/write/staging.h"
#include "transport/base/clock.h"

namespace rdfs::server {

struct CoreOptions {
  std::chrono::milliseconds session_lease{40'000};
  std::chrono::milliseconds attr_lease{1000};  // attributes are no older than this
  // Where changes behind the server's back are noticed.
  std::chrono::milliseconds watched_lease{5000};
  std::uint64_t epoch = 0;
  std::uint64_t verifier = 0;            // the same as long as the host's page cache is
  bool can_switch_ids = false;           // the server is root
  std::size_t max_open_files = 1 << 20;  // of all sessions together
  std::size_t max_lock_files = 16384;    // descriptions that locks need besides
  ClientLimits limits{};
};

struct Core {
  Core(const Clock& clock_in, ProcFd proc_in, DescriptorKeeper& keeper_in, Scheduler& scheduler_in,
       std::size_t staging_bytes, CoreOptions options_in)
      : clock(clock_in),
        proc(std::move(proc_in)),
        keeper(keeper_in),
        options(options_in),
        staging(std::make_shared<StagingBudget>(staging_bytes)),
        unread(std::make_shared<UnreadAnswers>(options_in.limits.unread_bytes_of_all)),
        open_budget(options_in.max_open_files),
        locks(proc, keeper_in, scheduler_in, options_in.max_lock_files, options_in.limits.locks),
        leases(clock_in, scheduler_in, {options_in.attr_lease, options_in.watched_lease},
               options_in.epoch),
        groups(clock_in, scheduler_in) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const Clock& clock;
  const ProcFd proc;
  DescriptorKeeper& keeper;
  const CoreOptions options;
  Counters counters;
  Refusals refusals;
  GracePeriod grace;
  ExtentStores stores;
  const std::shared_ptr<StagingBudget> staging;
  const std::shared_ptr<UnreadAnswers> unread;
  OpenBudget open_budget;
  FreeSpace free_space;
  // Whether another session than this has the file open, by whichever export. Set by the
  // ExportList.
  std::function<bool(const InodeKey&, std::uint64_t session)> opened_by_another =
      [](const InodeKey&, std::uint64_t) { return true; };
  LockService locks;
  OrphanedOpens orphans;
  // Ends a session whose client has said goodbye: any thread; the lanes go a little later. Set
  // before the first request.
  std::function<void(const SessionPtr&)> end_session = [](const SessionPtr&) {};
  // Told of every file that a session opens, not of directories: any thread. Set likewise.
  std::function<void()> file_opened = [] {};
  // Last: requests that wait in these use the rest, and those in `groups` the leases.
  LeaseService leases;
  GroupCache groups;
};

}  // namespace rdfs::server
