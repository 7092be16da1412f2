// Service: rdfsd without its command line. Admits sessions to exports, spreads their lanes over the
// loops, ends what has run out.
//
// Made once in the worker process, or several times in one process by tests. Admit, OnLane and
// OnSessionEnd run on the acceptor's thread; expiry on the first loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/core.h"
#include "server/export.h"
#include "server/fs_session.h"
#include "server/handle.h"
#include "server/inode_table.h"
#include "server/loop.h"
#include "server/outside_watch.h"
#include "server/session_table.h"
#include "server/supervisor_keeper.h"
#include "transport/base/snapshot.h"
#include "transport/session/acceptor.h"

namespace rdfs::server {

struct ServiceOptions {
  std::vector<ExportSpec> exports;
  HandleSecret secret;
  unsigned loops = 0;              // 0: one for every two processors
  std::size_t pool_bytes = 0;      // of all exports together; 0: DefaultPoolBytes()
  std::string record_directory;    // of intent rings; empty: none, nothing is replayed
  std::chrono::milliseconds session_lease{40'000};
  std::chrono::milliseconds attr_lease{1000};
  ClientLimits limits{};
  std::function<void()> on_idle;   // the last session has ended; any thread
};

class Service final : public transport::SessionHost {
 public:
  // `keeper` outlives the service. Errors: those of Export::Create and Loop::Create, and an export
  // whose id mapping needs root.
  static Result<std::unique_ptr<Service>> Create(ServiceOptions options, DescriptorKeeper& keeper);
  ~Service() override;

  Result<transport::Admission> Admit(const transport::SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<transport::Connection> lane) override;
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override;
  void OnWrongKey() override { core_->refusals.CountOnly(Refusals::What::kWrongKeys); }

  // A client that knows the key could else make records without end.
  static constexpr std::size_t kMaxSessions = 1024;

  // Calls on_idle when no session has come by then.
  void EndIfUnusedAfter(std::chrono::nanoseconds patience);

  [[nodiscard]] Core& core() { return *core_; }
  [[nodiscard]] std::size_t sessions() const { return sessions_.size(); }
  // Offers these exports from now on: new ones are added, and what a known one's options say holds
  // for mounts to come. One that is missing is offered to nobody new; its mounts go on, until they
  // must connect again. kInvalidArgument, with nothing changed, for another directory under a known
  // name; else the errors of Create. Any thread.
  Status Reload(const std::vector<ExportSpec>& specs);
  // What there is to say to a person who asks. Any thread.
  [[nodiscard]] Snapshot Describe();

 private:
  struct ExportEntry {
    std::shared_ptr<const Export> exported;
    std::unique_ptr<InodeTable> inodes;
    std::unique_ptr<OutsideWatch> watch;  // null: this host cannot tell
    IdMode id_mode = IdMode::kAsMe;
    bool offered = true;
  };

  Service(ServiceOptions options, DescriptorKeeper& keeper);
  Status Start();
  static Result<IdMode> ModeOf(const ExportSpec& spec);
  Result<ExportEntry> NewExport(const ExportSpec& spec, const InodeLimits& limits) const;
  Status AddExport(const ExportSpec& spec, const InodeLimits& limits);
  std::unique_ptr<OutsideWatch> WatchOutside(InodeTable& inodes) const;
  // With exports_mutex_ held.
  ExportEntry* FindExportLocked(std::string_view name);
  void KeepExportLocked(ExportEntry entry);
  Status AdoptKept();
  void TellMemlock();
  void BeginGrace();
  void DropLeftovers();
  [[nodiscard]] bool IsOurs(const IntentRing::Leftover& left) const;
  const AccessClass& ClassFor(const ExportEntry& entry, const std::string& key_name);
  Result<SessionPtr> NewSession(const transport::SessionRequest& request,
                                const fs::MountRequest& mount, const ExportEntry& entry,
                                std::string client);
  std::unique_ptr<IntentRing> OpenRecord(std::uint64_t session, const InodeTable& inodes) const;
  Result<transport::Admission> Grant(const SessionPtr& session, bool resumed);
  void LaneGone(const SessionPtr& session);
  // Every second while there is a session: what need not be done at once.
  void KeepHouse();
  void KeepLongOpens();
  void ScheduleExpiry();
  void Expire();
  void EndSession(const SessionPtr& session, std::string_view why);

  const ServiceOptions options_;
  DescriptorKeeper& keeper_;
  std::vector<std::unique_ptr<Loop>> loops_;  // the core's scheduler is the first: made before it
  std::unique_ptr<Core> core_;
  mutable std::mutex exports_mutex_;  // before classes_mutex_
  std::vector<ExportEntry> exports_;  // grows only: sessions may use what is offered no more
  SessionTable sessions_;
  std::mutex classes_mutex_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<AccessClass>> classes_;
  std::atomic<bool> expiry_scheduled_{false};
  std::atomic<bool> keeping_house_{false};
  unsigned house_turns_ = 0;  // the first loop's
};

// The words for a person when a mount fails: which exports there are is told to nobody.
std::string NoSuchExport(std::string_view name);
// What it costs that no more than `pinnable_bytes` may be pinned for RDMA, and what to do about it;
// empty when it costs nothing.
std::string MemlockNote(std::size_t pinnable_bytes);

}  // namespace rdfs::server
