// Service: rdfsd without its command line. Admits sessions to exports, spreads their lanes over the
// loops, ends what has run out.
//
// Made once in the worker process, or several times in one process by tests. Admit, OnLane and
// OnSessionEnd run on the acceptor's thread; expiry on the first loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/core.h"
#include "server/inode/handle.h"
#include "server/loop/loop.h"
#include "server/session/export.h"
#include "server/session/export_list.h"
#include "server/session/fs_session.h"
#include "server/session/session_table.h"
#include "server/supervisor/supervisor_keeper.h"
#include "transport/base/snapshot.h"
#include "transport/session/acceptor.h"

namespace rdfs::server {

struct ServiceOptions {
  std::vector<ExportSpec> exports;
  bool some_will_do = false;  // of the exports: others are left out, with a warning
  HandleSecret secret;
  unsigned loops = 0;            // 0: one for every two processors
  std::size_t pool_bytes = 0;    // of all exports together; 0: DefaultPoolBytes()
  std::string record_directory;  // of intent rings; empty: none, nothing is replayed
  std::chrono::milliseconds session_lease{40'000};
  std::chrono::milliseconds attr_lease{1000};
  ClientLimits limits{};
  std::function<void()> on_idle;  // the last session has ended; any thread
};

class Service final : public transport::SessionHost {
 public:
  // `keeper` outlives the service. Errors: those of ExportList::Add and Loop::Create.
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

  // Before it stops: what clients have answered their programs and have on its way is to be here,
  // since the next server may not find each of their open files again. Blocks until it is, for two
  // seconds at most; nobody gets a lease from then on. Any thread but a loop's.
  void TakeWrites();

  [[nodiscard]] Core& core() { return *core_; }
  [[nodiscard]] std::size_t sessions() const { return sessions_.size(); }
  // Ends all lanes, and serves nobody from then on; nothing that Reload uses goes. Once, any thread
  // but a loop's; the destructor does it else.
  void Stop();
  // ExportList::Reload; mounts of what is missing go on, until they must connect again. Any thread.
  Status Reload(const std::vector<ExportSpec>& specs) { return exports_->Reload(specs); }
  // What there is to say to a person who asks. Any thread.
  [[nodiscard]] Snapshot Describe();

 private:
  Service(ServiceOptions options, DescriptorKeeper& keeper);
  Status Start();
  Status AddExports(const InodeLimits& limits);
  Status AdoptKept();
  void TellMemlock();
  void BeginGrace();
  void DropLeftovers();
  Result<SessionPtr> NewSession(const transport::SessionRequest& request,
                                const fs::MountRequest& mount, const Offer& offer,
                                std::string client);
  std::unique_ptr<IntentRing> OpenRecord(std::uint64_t session, const InodeTable& inodes) const;
  Result<transport::Admission> Grant(const SessionPtr& session, bool resumed);
  void LaneGone(const SessionPtr& session);

  // ---- service_turns.cc -------------------------------------------------------------------------
  // Closes descriptors that were not used, every so often while there is a session or one is open.
  void AgeLater();
  void Age();
  // Has KeepLongOpens run in a second, and again until every file that stays open is kept. Any
  // thread.
  void KeepSoon();
  void KeepLongOpens();
  void ScheduleExpiry();
  void Expire(TimePoint due);

  // `why` goes behind the client's name in a line of the log; kDeadlineExceeded: it is gone.
  void EndSession(const SessionPtr& session, const Status& why);

  const ServiceOptions options_;
  DescriptorKeeper& keeper_;
  std::vector<std::unique_ptr<Loop>> loops_;  // the core's scheduler is the first: made before it
  std::unique_ptr<Core> core_;
  std::unique_ptr<ExportList> exports_;
  LeaseChange stop_;  // TakeWrites'
  bool stopped_ = false;
  std::uint64_t first_epoch_ = 0;  // IntentRing::FirstEpoch
  SessionTable sessions_;
  std::vector<SessionPtr> to_keep_;  // KeepLongOpens has still to look at, in this turn
  std::atomic<bool> expiry_scheduled_{false};
  std::atomic<bool> aging_{false};
  std::atomic<bool> keep_scheduled_{false};
};

// The words for a person when a mount fails: which exports there are is told to nobody. Printable,
// since they are logged and the name is a client's.
std::string NoSuchExport(std::string_view name);
// What it costs that no more than `pinnable_bytes` may be pinned for RDMA, and what to do about it;
// empty when it costs nothing.
std::string MemlockNote(std::size_t pinnable_bytes);

}  // namespace rdfs::server
