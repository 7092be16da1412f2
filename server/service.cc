#include "server/service.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <future>
#include <set>
#include <utility>

#include "server/identity/as_server.h"
#include "server/lease/change_targets.h"
#include "server/ops/attr.h"
#include "server/ops/ops.h"
#include "server/record/epoch_tag.h"
#include "transport/base/log.h"
#include "transport/base/memlock.h"
#include "transport/base/printable.h"
#include "transport/base/processors.h"
#include "transport/base/turn_clock.h"
#include "transport/verbs/devices.h"

namespace rdfs::server {
namespace {

constexpr std::size_t kMaxHostNameBytes = 255;
// The grace period as a part of the lease: long enough for a client that lives to notice and dial
// again, and short enough that who waits meanwhile is answered within its own deadline.
constexpr int kGracePart = 2;
// What may be believed where changes behind the server's back are noticed, as a part of the lease:
// others may wait that long for a client that is frozen, and all of them after a restart.
constexpr int kWatchedPart = 8;
constexpr std::chrono::milliseconds kLongestWatched{5000};
// A session that was not heard of for this long before its server ended will not come back.
constexpr std::chrono::hours kForgotten{1};
// Nor will the server of one that was not heard of for so long, if it is another's.
constexpr std::chrono::hours kAbandoned{7 * 24};
// How long a client waits that comes back while its earlier session is cleared away, and with it
// all others that dial.
constexpr std::chrono::milliseconds kLongestClearing{200};

// A host that starts again has lost its page cache, and with it what was written and not synced.
std::uint64_t BootVerifier() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return XXH3_64bits(id.data(), id.size());
}

// The same for the same client after a restart of the server, so that its record is found again;
// one way, since the client id is a secret and this travels in each request.
std::uint64_t SessionIdOf(const ClientId& client) {
  std::array<unsigned char, 16> digest{};
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(client.data()), client.size(), nullptr,
                     0);
  std::uint64_t id = 0;
  std::memcpy(&id, digest.data(), sizeof(id));
  return id == 0 ? 1 : id;
}

std::string RemovedExport(std::string_view name) {
  return "the directory of the export \"" + Printable(name) +
         "\" was removed: make it anew where it is missing, and start rdfsd again";
}

Status StillClearing() {
  return {Code::kBusy, "the server still clears away this mount's earlier session: try again"};
}

}  // namespace

std::string NoSuchExport(std::string_view name) {
  return "the server has no export \"" + Printable(name) +
         "\"; see --export of its rdfsd or its configuration file";
}

std::string MemlockNote(std::size_t pinnable_bytes) {
  const std::size_t arena = PoolOptionsFor(DefaultPoolBytes(), pinnable_bytes).first_arena_bytes;
  if (arena == 0) return {};
  return fmt::format(
      "RDMA clients can read only {} MiB of the server's cache by themselves, and the rest is "
      "copied "
      "into messages: {}",
      arena >> 20U, transport::verbs::MemlockRemedy());
}

Service::Service(ServiceOptions options, DescriptorKeeper& keeper)
    : options_(std::move(options)), keeper_(keeper), sessions_(options_.session_lease) {}

Result<std::unique_ptr<Service>> Service::Create(ServiceOptions options, DescriptorKeeper& keeper) {
  std::unique_ptr<Service> service(new Service(std::move(options), keeper));
  RDFS_RETURN_IF_ERROR(service->Start());
  return service;
}

Status Service::Start() {
  RDFS_ASSIGN_OR_RETURN(ProcFd proc, ProcFd::Open());
  const auto half = static_cast<unsigned>(std::max(1, Processors() / 2));
  const unsigned loops = options_.loops != 0 ? options_.loops : half;
  for (unsigned i = 0; i < loops; ++i) {
    RDFS_ASSIGN_OR_RETURN(auto loop, Loop::Create(i));
    loops_.push_back(std::move(loop));
  }
  static const TurnClock clock;
  CoreOptions core;
  core.session_lease = options_.session_lease;
  core.attr_lease = options_.attr_lease;
  core.watched_lease = std::clamp(options_.session_lease / kWatchedPart, options_.attr_lease,
                                  std::max(options_.attr_lease, kLongestWatched));
  core.epoch = keeper_.epoch();
  if (!options_.record_directory.empty()) {
    first_epoch_ = IntentRing::FirstEpoch(options_.record_directory, core.epoch);
    core.epoch = WithTagOf(first_epoch_, core.epoch);
  }
  core.verifier = BootVerifier();
  core.can_switch_ids = ::geteuid() == 0;
  const DescriptorShares shares = SharesFor(options_.exports.size());
  core.max_open_files = shares.open_files;
  core.max_lock_files = shares.lock_files;
  core.limits = options_.limits;
  core_ = std::make_unique<Core>(clock, std::move(proc), keeper_, *loops_.front(),
                                 DefaultStagingBytes(MemlockLimit()), core);
  core_->end_session = [this](const SessionPtr& session) {
    // Later, so that the answer goes first.
    loops_.front()->Post([this, session] {
      if (sessions_.Take(*session))
        EndSession(session, Status(Code::kDisconnected, "has unmounted"));
    });
  };
  core_->file_opened = [this] { KeepSoon(); };
  exports_ = std::make_unique<ExportList>(ExportList::Options{.secret = options_.secret,
                                                              .pool_bytes = options_.pool_bytes,
                                                              .attr_lease = options_.attr_lease},
                                          *core_);
  RDFS_RETURN_IF_ERROR(AddExports(shares.inodes));
  RDFS_RETURN_IF_ERROR(AdoptKept());
  BeginGrace();
  // Whoever has not asked for its locks again by then has lost its lease, and them.
  loops_.front()->After(options_.session_lease, [this] { core_->locks.EndReclaims(); });
  if (!keeper_.restarted()) TellMemlock();
  for (const auto& loop : loops_) {
    loop->Start(*core_, [this](const SessionPtr& session) { LaneGone(session); });
  }
  return {};
}

Status Service::AddExports(const InodeLimits& limits) {
  Status first;
  for (const ExportSpec& spec : options_.exports) {
    const Status added = exports_->Add(spec, limits);
    if (added.ok()) continue;
    if (!options_.some_will_do) return added;
    LogWarn("export \"{}\" is left out, and its mounts with it: {}", spec.name, added.message());
    if (first.ok()) first = added;
  }
  return exports_->Names().empty() ? first : Status();
}

Status Service::AdoptKept() {
  RDFS_ASSIGN_OR_RETURN(std::vector<DescriptorKeeper::Kept> kept, keeper_.FetchAll());
  if (kept.empty()) return {};
  for (DescriptorKeeper::Kept& item : kept) {
    if (!core_->orphans.Adopt(item) && !core_->locks.Adopt(item)) keeper_.Drop(item.key);
  }
  // What an earlier worker left of open files, and nobody has claimed by then, goes.
  loops_.front()->After(options_.session_lease, [this] {
    core_->orphans.DropAll(keeper_);
    core_->locks.DropUnclaimed();
  });
  return {};
}

void Service::TellMemlock() {
  const std::string note = MemlockNote(MemlockLimit());
  if (!note.empty() && transport::verbs::ProbeDevices().viable) LogLine(LogLevel::kInfo, note);
}

// Who had something open when an earlier server of these exports went, by the records that it left.
void Service::BeginGrace() {
  if (options_.record_directory.empty()) {
    if (keeper_.restarted()) core_->leases.FollowAnother(std::nullopt);
    return;
  }
  std::vector<std::uint64_t> sessions;
  std::set<std::uint64_t> clients;
  const std::vector<IntentRing::Leftover> all = IntentRing::Leftovers(options_.record_directory);
  // As if the server had ended just behind the last one that was heard of. What is of other exports
  // tells nothing of that, and another server of this user's may be waited for.
  std::chrono::seconds away = std::chrono::seconds::max();
  for (const IntentRing::Leftover& left : all) {
    if (exports_->Has(left.exported)) away = std::min(away, left.age);
  }
  for (const IntentRing::Leftover& left : all) {
    const bool own = exports_->Has(left.exported);
    const bool forgotten = own ? left.age - away > kForgotten : left.age > kAbandoned;
    if (forgotten) IntentRing::RemoveLeftover(left.path);
    if (forgotten || !own) continue;
    clients.insert(left.session);
    if (left.opens > 0) sessions.push_back(left.session);
  }
  if (!clients.empty()) core_->leases.FollowAnother(clients);
  if (!clients.empty()) loops_.front()->After(options_.session_lease, [this] { DropLeftovers(); });
  if (sessions.empty()) return;
  const auto length = options_.session_lease / kGracePart;
  core_->grace.Begin(sessions, core_->clock.Now() + length);
  LogInfo("{} clients had files open when the server ended: others wait for them, up to {} ms",
          sessions.size(), length.count());
}

// Who has not come back by then has lost its lease, and needs no record any more.
void Service::DropLeftovers() {
  if (const std::size_t missing = core_->grace.missing(); missing > 0) {
    LogInfo("{} clients have not come back after the server's restart", missing);
  }
  for (const IntentRing::Leftover& left : IntentRing::Leftovers(options_.record_directory)) {
    if (exports_->Has(left.exported)) IntentRing::RemoveLeftover(left.path);
  }
}

Service::~Service() {
  Stop();
  loops_.clear();
}

void Service::Stop() {
  if (std::exchange(stopped_, true)) return;
  // Loops first: they use everything else.
  for (const auto& loop : loops_) loop->Stop();
  for (const SessionPtr& session : sessions_.TakeAll()) session->MarkEnded();
  for (const auto& loop : loops_) loop->Join();
  if (core_ != nullptr) core_->groups.Stop();  // its threads post to loops
  if (exports_ != nullptr) exports_->StopWatching();
}

void Service::TakeWrites() {
  if (stop_.begun()) return;
  const auto find = [this](const InodeKey& key) -> std::optional<LeaseService::Target> {
    const InodePtr inode = exports_->Known(key);
    if (!inode) return std::nullopt;
    return MakeTarget(*inode, fs::kRecallAttributes);
  };
  const auto here = std::make_shared<std::promise<void>>();
  if (core_->leases.TakeWrites(find, stop_, [here] { here->set_value(); })) return;
  if (here->get_future().wait_for(LeaseService::kWriteTravel) == std::future_status::ready) return;
  LogWarn(
      "a client, or one that has not come back since the start, may not have sent in time what it "
      "has written: if the next server does not find the file again, its fsync or close says so");
}

std::unique_ptr<IntentRing> Service::OpenRecord(std::uint64_t session,
                                                const InodeTable& inodes) const {
  if (options_.record_directory.empty()) return nullptr;
  const std::string path = options_.record_directory + fmt::format("/{:016x}.ring", session);
  auto ring = IntentRing::Open(path, session, IntentRing::kDefaultRecords, ExportIdOf(inodes));
  if (!ring.ok()) {
    LogWarn("requests that are sent twice may be carried out twice: {}", ring.status().message());
    return nullptr;
  }
  return *std::move(ring);
}

Result<SessionPtr> Service::NewSession(const transport::SessionRequest& request,
                                       const fs::MountRequest& mount, const Offer& offer,
                                       std::string client) {
  FsSessionParams params;
  params.client_id = mount.client_id;
  params.id = SessionIdOf(mount.client_id);
  params.client = std::move(client);
  params.access = &exports_->ClassOf(offer, request.key_name);
  const bool raw = (mount.flags & fs::kMountRawIds) != 0;
  params.ids = offer.id_mode == IdMode::kAsMe
                   ? IdMap::AsMe({::geteuid(), ::getegid()}, {mount.uid, mount.gid}, raw)
                   : IdMap::Daemon(offer.id_mode, offer.exported->spec().anonymous);
  params.read_only = offer.exported->read_only() || (mount.flags & fs::kMountReadOnly) != 0;
  params.budget = &core_->open_budget;
  params.origin = request.origin;
  params.limits = options_.limits;
  params.staging = std::make_shared<StagingBudget>(options_.limits.pinned_bytes, core_->staging);
  params.unread = std::make_shared<UnreadAnswers>(options_.limits.unread_bytes, core_->unread);
  params.no_grants = (mount.flags & fs::kMountNoGrants) != 0;
  params.drops_names = (mount.flags & fs::kMountDropsNames) != 0;
  std::unique_ptr<IntentRing> record = OpenRecord(params.id, *offer.inodes);
  const bool known = record != nullptr && !record->made_anew();
  params.lost_record = record != nullptr && !known && mount.last_epoch != 0;
  // A server that gives a session up removes its record.
  params.may_reclaim = record == nullptr || IsBefore(mount.last_epoch, first_epoch_) ||
                       (known && !record->given_up());
  if (!params.may_reclaim) record->NoteGivenUp(true);
  auto session = std::make_shared<FsSession>(params, std::move(record));
  session->Touch(core_->clock.Now());
  core_->counters.sessions_started.fetch_add(1);
  LogInfo("{} mounts \"{}\"{}", session->params().client, offer.exported->name(),
          params.read_only ? " read-only" : "");
  return sessions_.Add(std::move(session), core_->clock.Now());
}

Result<transport::Admission> Service::Admit(const transport::SessionRequest& request) {
  if (request.service != fs::kServiceName) {
    // A refusal is logged.
    return Status(Code::kNotFound, "rdfsd has no service \"" + Printable(request.service) + "\"");
  }
  ByteReader reader(request.request);
  const auto mount = reader.Read<fs::MountRequest>();
  const std::string name(AsText(reader.ReadSized16(fs::kMaxExportNameBytes)));
  // It is shown in logs and by `rdfsd status`.
  const std::string host = Printable(AsText(reader.ReadSized16(kMaxHostNameBytes)));
  if (!reader.ok()) return Status(Code::kProtocolError, "a malformed mount request");
  if (mount.major != fs::kProtocolMajor) {
    return Status(Code::kVersionMismatch,
                  fmt::format("the server speaks version {}.{} of the file protocol, the client "
                              "{}.{}; install the same rdfs on both hosts",
                              fs::kProtocolMajor, fs::kProtocolMinor, std::uint16_t{mount.major},
                              std::uint16_t{mount.minor}));
  }
  const std::optional<Offer> offer = exports_->Find(name);
  if (!offer) return Status(Code::kNotFound, NoSuchExport(name));
  if (!sessions_.WaitUntilCleared(mount.client_id, kLongestClearing)) return StillClearing();
  SessionPtr session = sessions_.Resume(mount.client_id, core_->clock.Now());
  const bool resumed = session != nullptr;
  // Who had it mounted before goes on with what he had. (Behind a reload it is offer->exported that
  // is new.)
  if (!resumed && mount.last_epoch == 0 && offer->inodes->exported().IsRemoved()) {
    return Status(Code::kNotFound, RemovedExport(name));
  }
  if (!resumed && sessions_.size() >= kMaxSessions) {
    return Status(Code::kResourceExhausted,
                  "the server has as many mounts as it can: unmount one, or try again later");
  }
  if (!resumed && sessions_.CountFrom(request.origin) >= options_.limits.mounts) {
    core_->refusals.Note(Refusals::What::kMounts, request.peer);
    return Status(Code::kBusy,
                  "the server lets one client have no more mounts: unmount one, or raise "
                  "limits.mounts in the server's configuration");
  }
  if (!resumed) {
    RDFS_ASSIGN_OR_RETURN(session, NewSession(request, mount, *offer, host + " " + request.peer));
    if (session == nullptr) return StillClearing();
  }
  // Whoever resumes must have come in by the same door, whatever ids it maps for others by now.
  const AccessClass& access = session->access();
  if (access.inodes != offer->inodes || access.key_name != request.key_name) {
    return Status(Code::kInvalidArgument, "this client id belongs to a mount of another export");
  }
  return Grant(session, resumed);
}

Result<transport::Admission> Service::Grant(const SessionPtr& session, bool resumed) {
  const InodeRef root = session->inodes().root();
  // The acceptor must not wait for this export's disk, which may be a mount that hangs. Without a
  // lease the client asks again before it shows these to anybody.
  struct statx stat {};
  if (const int error = StatFdAtOnce(root.fd(), stat); error != 0) {
    return Status::FromErrno(error, "the exported directory");
  }
  const bool root_server = core_->options.can_switch_ids;
  fs::MountGrant grant{};
  grant.major = fs::kProtocolMajor;
  grant.minor = fs::kProtocolMinor;
  grant.session = session->id();
  grant.epoch = core_->options.epoch;
  grant.verifier = core_->options.verifier;
  grant.lease_ms = static_cast<std::uint32_t>(options_.session_lease.count());
  grant.attr_lease_ms = static_cast<std::uint32_t>(options_.attr_lease.count());
  grant.grace_ms = static_cast<std::uint32_t>(core_->grace.left(core_->clock.Now()).count());
  const Ids roots = session->ids().Caller({}).value_or(Ids{});
  // Who has not heard yet that it was given up would take it for the session that it had.
  grant.flags = (!session->client_knows() ? fs::kGrantGivenUp
                 : resumed                ? fs::kGrantResumed
                                          : 0U) |
                (session->params().read_only ? fs::kGrantReadOnly : 0U) |
                (root_server ? fs::kGrantCanChown | fs::kGrantCanMknodDevices : 0U) |
                (root_server && roots.uid == 0 ? fs::kGrantRootIsRoot : 0U);
  grant.max_transfer_bytes = static_cast<std::uint32_t>(fs::kMaxTransferBytes);
  const AttrContext context{.ids = session->ids(),
                            .root_device = session->inodes().exported().root_device(),
                            .lease_ms = 0};
  const fs::Entry entry{.handle = root.inode->handle,
                        .attr = ToAttr(stat, root.inode->version.load(), context),
                        .entry_lease_ms = 0};
  transport::Admission admission;
  admission.domain = session->access().domain;
  admission.grant.resize(sizeof(grant) + sizeof(Le16) + fs::kMaxHandleBytes + sizeof(fs::AttrWire) +
                         sizeof(Le32));
  ByteWriter writer(admission.grant);
  writer.Write(grant);
  fs::WriteEntry(writer, entry);
  admission.grant.resize(writer.size());
  admission.context = session;
  ScheduleExpiry();
  return admission;
}

void Service::OnLane(std::uint64_t /*session_id*/, const std::shared_ptr<void>& context,
                     std::unique_ptr<transport::Connection> lane) {
  auto session = std::static_pointer_cast<FsSession>(context);
  if (!sessions_.LaneOpened(*session, core_->clock.Now())) {  // over: the lane ends here
    if (!session->ended()) core_->refusals.Note(Refusals::What::kLanes, session->params().client);
    return;
  }
  AgeLater();
  session->NoteLane(lane->capabilities().kind, lane->Describe());
  // Loops act as their callers.
  if (core_->options.can_switch_ids) lane->KeepCredentials();
  const auto loop =
      std::min_element(loops_.begin(), loops_.end(),
                       [](const auto& a, const auto& b) { return a->lanes() < b->lanes(); });
  (*loop)->AddLane(std::move(session), std::move(lane));
}

void Service::OnSessionEnd(std::uint64_t /*session_id*/, const std::shared_ptr<void>& context) {
  const auto session = std::static_pointer_cast<FsSession>(context);
  LogDebug("{}: no more lanes will come on this session", session->params().client);
}

void Service::EndIfUnusedAfter(std::chrono::nanoseconds patience) {
  loops_.front()->After(patience, [this] {
    if (core_->counters.sessions_started.load() == 0 && options_.on_idle) options_.on_idle();
  });
}

void Service::LaneGone(const SessionPtr& session) {
  sessions_.LaneClosed(*session, core_->clock.Now());
  ScheduleExpiry();
}

void Service::EndSession(const SessionPtr& session, const Status& why) {
  LogInfo("{} {}", session->params().client, why.message());
  const AsServer rights;  // a loop's thread acts as whose request it has served last
  session->MarkEnded();
  core_->grace.Done(session->id());
  core_->locks.SessionEnded(session->id());
  core_->leases.SessionEnded(session->id());
  const std::vector<OpenPtr> opens = session->RemoveAllOpens();
  core_->locks.ReleasedAll(session->id(), opens);
  for (const OpenPtr& open : opens) CloseOpen(*core_, *open);
  if (session->record() != nullptr) session->record()->Remove();
  for (const auto& loop : loops_)
    loop->DropLanes(session->id(), Status(why.code(), "session over"));
  // Last: what comes before goes by the id that the client's next session will have.
  sessions_.Cleared(*session);
  if (sessions_.size() == 0 && options_.on_idle) options_.on_idle();
}

}  // namespace rdfs::server
