// FsSession: one mount, from MountGrant until its lease runs out. Its open files and its record.
//
// Found again by client id after the loss of its lanes, with everything still open. Shared by its
// lanes and the requests in progress. Any thread: one mutex for the table of open files, never held
// over a system call, and taken before the InodeTable's; SessionState belongs to the SessionTable.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs/protocol.h"
#include "server/identity/idmap.h"
#include "server/inode/inode_table.h"
#include "server/inode/open_budget.h"
#include "server/inode/open_file.h"
#include "server/pool/extent_store.h"
#include "server/record/intent_ring.h"
#include "server/session/limits.h"
#include "server/session/session_state.h"
#include "transport/domain.h"
#include "transport/transport.h"

namespace rdfs::server {

// Whose sessions may READ the same memory: one export, key and id mapping. Lives as long as the
// server.
struct AccessClass {
  InodeTable* inodes = nullptr;
  std::string key_name;
  std::shared_ptr<transport::Domain> domain;
  std::shared_ptr<ExtentStore> store;
};

class StagingBudget;

using ClientId = std::array<std::byte, 16>;

struct FsSessionParams {
  std::uint64_t id = 0;
  ClientId client_id{};
  std::string client;  // host name and peer, for logs
  const AccessClass* access = nullptr;
  IdMap ids;
  bool read_only = false;
  bool no_grants = false;
  bool drops_names = false;      // can let go of all names at once
  bool lost_record = false;      // it was a mount before, and its record is gone
  bool may_reclaim = false;      // no server has given it up, and its locks to others, before
  OpenBudget* budget = nullptr;  // of all sessions, which outlives them; null: none
  std::string origin;            // the address or the user that it came from
  ClientLimits limits{};
  std::shared_ptr<StagingBudget> staging{};  // its own; null: none
  std::shared_ptr<UnreadAnswers> unread{};   // its own; null: they are not counted
};

class Responder;
class FsSession;

// Room for one more open file in a session and its budget: taken before anything is made or cut for
// that file, given back unless it is added. Must not outlive the session.
struct GivesPlaceBack {
  void operator()(FsSession* session) const;
};
using OpenPlace = std::unique_ptr<FsSession, GivesPlaceBack>;

class FsSession {
 public:
  // `record` may be null: then a request that is sent twice is carried out twice.
  FsSession(FsSessionParams params, std::unique_ptr<IntentRing> record);
  ~FsSession();
  FsSession(const FsSession&) = delete;
  FsSession& operator=(const FsSession&) = delete;

  [[nodiscard]] const FsSessionParams& params() const { return params_; }
  [[nodiscard]] std::uint64_t id() const { return params_.id; }
  [[nodiscard]] InodeTable& inodes() const { return *params_.access->inodes; }
  [[nodiscard]] const AccessClass& access() const { return *params_.access; }
  [[nodiscard]] const IdMap& ids() const { return params_.ids; }
  [[nodiscard]] IntentRing* record() const { return record_.get(); }

  // Whether its client has heard that the session that it had is over, if it was given up.
  [[nodiscard]] bool client_knows() const {
    return params_.may_reclaim || record_ == nullptr || !record_->given_up();
  }

  // Null when it has too many open files, or all sessions together.
  [[nodiscard]] OpenPlace TakePlace();
  // Null without a place of this session's, or when it has ended.
  OpenPtr AddOpen(OpenPlace place, InodePtr inode, Fd fd, std::uint32_t flags, uid_t opener);
  OpenPtr AddDirectory(OpenPlace place, InodePtr inode, Fd fd, std::uint32_t flags,
                       std::uint64_t asked_by);
  // The directory that the request of this number opened already; null: it has none open.
  [[nodiscard]] OpenPtr FindDirectory(const Inode& inode, std::uint64_t asked_by) const;
  [[nodiscard]] OpenPtr FindOpen(std::uint64_t number) const;
  // The file that was opened again for one that had `old_number` before a restart of the server.
  void NoteReclaimed(OpenFile& open, std::uint64_t old_number);
  [[nodiscard]] OpenPtr FindReclaimed(std::uint64_t old_number) const;
  [[nodiscard]] std::size_t open_files() const;
  // Why there is no such open file: closed, never one of this session's (to be reclaimed), or gone
  // with the session.
  [[nodiscard]] fs::WireError WhyNotOpen(std::uint64_t number) const;
  // The file, which is in the table no more; null when there is no such number.
  OpenPtr RemoveOpen(std::uint64_t number);
  std::vector<OpenPtr> RemoveAllOpens();
  // Called every so often: at most `most` of the files that were open at the last call already and
  // are not kept by the supervisor yet.
  std::vector<OpenPtr> OpensToKeep(std::size_t most);
  // Not all of these could be kept: a later call has them again.
  void NotAllKept();
  // Whether the next call may have some.
  [[nodiscard]] bool MayHaveOpensToKeep() const;

  // Of this number the session's first lane was attached: every later request is this session's.
  void NoteAttach(std::uint64_t sequence) {
    std::uint64_t none = 0;
    first_attach_.compare_exchange_strong(none, sequence);
  }
  // Whether a request of this number may have been carried out, and recorded, in a session before
  // whose record is gone.
  [[nodiscard]] bool LostRecordOf(std::uint64_t sequence) const {
    return params_.lost_record && sequence < first_attach_.load();
  }

  // Requests that came again while the first is in progress: answered together with it.
  void AddDuplicate(std::uint64_t sequence, Responder responder);
  std::vector<Responder> TakeDuplicates(std::uint64_t sequence);

  // What its latest lane goes over, for whoever asks.
  void NoteLane(transport::Kind kind, std::string description) {
    const std::lock_guard lock(mutex_);
    kind_ = kind;
    lane_ = std::move(description);
  }
  [[nodiscard]] std::optional<transport::Kind> transport() const {
    const std::lock_guard lock(mutex_);
    return kind_;
  }
  [[nodiscard]] std::string lane() const {
    const std::lock_guard lock(mutex_);
    return lane_;
  }

  // Which transport its client uses and why, as the client says: printable text.
  void NoteChoice(std::string choice) {
    const std::lock_guard lock(mutex_);
    choice_ = std::move(choice);
  }
  [[nodiscard]] std::string choice() const {
    const std::lock_guard lock(mutex_);
    return choice_;
  }

  // Requests that are not answered yet, on all its lanes.
  [[nodiscard]] bool HasTooManyRequests() const {
    return in_flight_.load(std::memory_order_relaxed) >= params_.limits.requests;
  }
  void RequestTaken() { in_flight_.fetch_add(1, std::memory_order_relaxed); }
  void RequestsAnswered(std::size_t count) {
    in_flight_.fetch_sub(count, std::memory_order_relaxed);
  }
  // Bytes of messages that are kept until they are answered; false: it has too many.
  [[nodiscard]] bool TakeRequestBytes(std::size_t count) {
    if (request_bytes_.fetch_add(count, std::memory_order_relaxed) + count <=
        params_.limits.request_bytes) {
      return true;
    }
    ReturnRequestBytes(count);
    return false;
  }
  void ReturnRequestBytes(std::size_t count) {
    request_bytes_.fetch_sub(count, std::memory_order_relaxed);
  }

  // Whether the session has ended; its requests are refused then.
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  void MarkEnded() { ended_.store(true, std::memory_order_release); }
  // When it was last heard of; the SessionTable looks at it when the lease would run out.
  void Touch(TimePoint now) { last_request_.store(now.time_since_epoch().count()); }
  [[nodiscard]] TimePoint last_request() const {
    return TimePoint(std::chrono::nanoseconds(last_request_.load()));
  }

 private:
  friend struct GivesPlaceBack;
  OpenPtr Add(OpenPlace place, OpenPtr open, InodePtr inode, Fd fd, std::uint32_t flags);
  void ReturnPlace();
  void NoteOpensLocked();
  void ReturnBudget(std::size_t count);

  const FsSessionParams params_;
  const std::unique_ptr<IntentRing> record_;
  std::atomic<bool> ended_{false};
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<std::size_t> request_bytes_{0};
  std::atomic<std::uint64_t> first_attach_{0};
  std::atomic<std::int64_t> last_request_{0};
  mutable std::mutex mutex_;
  std::optional<transport::Kind> kind_;
  std::string lane_, choice_;
  std::unordered_map<std::uint64_t, OpenPtr> opens_;
  std::size_t places_ = 0;  // taken for files that are not open yet
  std::unordered_map<std::uint64_t, std::uint64_t> reclaimed_;  // numbers before and after
  // The upper 16 bits of every open file's number: one of an earlier epoch, or of this client's
  // earlier session, is told from one that was closed.
  const std::uint64_t open_tag_;
  std::uint64_t next_open_ = 0;
  std::uint64_t swept_ = 0;     // next_open_ at the last OpensToKeep,
  std::uint64_t all_kept_ = 0;  // and what it had at the last one that left nothing
  std::atomic<bool> has_duplicates_{false};
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Responder>> duplicates_;
};
using SessionPtr = std::shared_ptr<FsSession>;

}  // namespace rdfs::server
