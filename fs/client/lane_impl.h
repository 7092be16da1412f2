// LaneImpl: a lane. See client.h for what it promises.
//
// lane.cc          the event loop; calls begin, go on and end
// lane_messages.cc sending, answers, and what the server says unasked
// lane_link.cc     losing and getting connections, timers
// lane_calls.cc, lane_file_calls.cc   the plain calls: encode, decode
// lane_reclaim.cc  open files and locks behind a server's restart
// lane_left.cc     calls whose callers wait no longer
// lane_read.cc, lane_write.cc   the data path
//
// One thread, but for Wake and CancelFromAnyThread.
#pragma once

#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fs/client/call.h"
#include "fs/client/client.h"
#include "fs/client/grant_cache.h"
#include "fs/client/lane_counters.h"
#include "fs/client/mailbox.h"
#include "fs/client/mount_impl.h"
#include "fs/client/request_table.h"
#include "fs/client/wire.h"

namespace rdfs::fs::client {

inline bool IsRelease(Opcode opcode) {
  return opcode == Opcode::kRelease || opcode == Opcode::kReleaseDir;
}

inline Status ErrnoStatus(int errno_value) { return {Code::kErrno, errno_value, {}}; }

// A server in its grace period is asked again after this.
inline constexpr std::chrono::milliseconds kGracePause{100};

// The completion of a call for whose answer nobody waits: nothing to decode.
inline bool Ignore(Answer&) { return true; }

// What a lane READs into and WRITEs from: its buffers, and the generations of what it READs.
struct LaneMemory {
  std::unique_ptr<transport::MemoryRegion> control, buffers;

  static Result<LaneMemory> Create(const std::shared_ptr<transport::Domain>& domain,
                                   std::size_t buffer_bytes);
  // As Connection::MayMove.
  [[nodiscard]] Status FitFor(const transport::Connection& connection) const;
};

class LaneImpl final : public Lane, private Wire::Events {
 public:
  // Not connected yet: the link comes by the mailbox.
  static Result<std::unique_ptr<LaneImpl>> Create(MountImpl& mount, std::uint32_t number,
                                                  std::shared_ptr<Mailbox> mailbox,
                                                  std::shared_ptr<LaneCounters> counters,
                                                  LaneMemory memory);
  ~LaneImpl() override;
  // Takes the link that is in the mailbox already.
  void TakeFirstLink() { OpenMailbox(); }

  std::size_t Poll() override;
  void AsOf(TimePoint now) override {
    now_ = now;
    told_time_ = true;
  }
  [[nodiscard]] TimePoint Now() const override { return told_time_ ? now_ : clock_.Now(); }
  void Flush() override;
  bool Arm() override;
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  [[nodiscard]] TimePoint NextTimer() const override;
  void Wake() override { mailbox_->Wake(); }
  [[nodiscard]] bool connected() const override { return wire_.connected(); }
  [[nodiscard]] bool SendsWriteAtOnce(std::uint32_t bytes) const override;
  [[nodiscard]] std::uint64_t requests_sent() const override { return table_.sent(); }
  [[nodiscard]] std::chrono::nanoseconds round_trip() const override { return round_trip_; }
  [[nodiscard]] std::size_t calls_in_flight() const override { return table_.open_calls(); }
  [[nodiscard]] std::string Describe() const override;
  void Cancel(CallTicket ticket) override;
  void CancelFromAnyThread(CallTicket ticket) override { mailbox_->PutCancel(ticket); }
  void Abandon(CallTicket ticket) override;
  [[nodiscard]] std::span<const Attributes> DirectoriesTold(std::uint64_t trace) const override;
  void AcknowledgeRecall(std::uint64_t number) override;
  void SeeChange(const Handle&, std::uint64_t change) override;
  [[nodiscard]] BufferPool& buffers() override { return buffers_; }

  CallTicket Lookup(const CallContext&, const Handle&, std::string_view,
                    Callback<NamedFile>) override;
  CallTicket Readlink(const CallContext&, const Handle&, Callback<std::string_view>) override;
  CallTicket Symlink(const CallContext&, const Handle&, std::string_view, std::string_view,
                     Callback<NamedFile>) override;
  CallTicket Mknod(const CallContext&, const Handle&, std::string_view, std::uint32_t,
                   std::uint32_t, DeviceNumber, Callback<NamedFile>) override;
  CallTicket Mkdir(const CallContext&, const Handle&, std::string_view, std::uint32_t,
                   std::uint32_t, Callback<NamedFile>) override;
  CallTicket Unlink(const CallContext&, const Handle&, std::string_view, DoneCallback) override;
  CallTicket Rmdir(const CallContext&, const Handle&, std::string_view, DoneCallback) override;
  CallTicket Rename(const CallContext&, const Handle&, std::string_view, const Handle&,
                    std::string_view, std::uint32_t, DoneCallback) override;
  CallTicket Link(const CallContext&, const Handle&, const Handle&, std::string_view,
                  Callback<NamedFile>) override;
  CallTicket GetAttr(const CallContext&, const Handle&, const OpenPtr&,
                     Callback<Attributes>) override;
  CallTicket SetAttr(const CallContext&, const Handle&, const OpenPtr&, const SetAttributes&,
                     Callback<Attributes>) override;
  CallTicket Access(const CallContext&, const Handle&, std::uint32_t, DoneCallback) override;
  CallTicket StatFs(const CallContext&, const Handle&, Callback<client::StatFs>) override;
  CallTicket SetXattr(const CallContext&, const Handle&, std::string_view, ByteSpan, std::uint32_t,
                      DoneCallback) override;
  CallTicket GetXattr(const CallContext&, const Handle&, std::string_view, std::uint32_t,
                      Callback<XattrReply>) override;
  CallTicket ListXattr(const CallContext&, const Handle&, std::uint32_t,
                       Callback<XattrReply>) override;
  CallTicket RemoveXattr(const CallContext&, const Handle&, std::string_view,
                         DoneCallback) override;
  CallTicket Open(const CallContext&, const Handle&, std::uint32_t, Callback<Opened>) override;
  CallTicket Create(const CallContext&, const Handle&, std::string_view, std::uint32_t,
                    std::uint32_t, std::uint32_t, Callback<Created>) override;
  CallTicket Tmpfile(const CallContext&, const Handle&, std::uint32_t, std::uint32_t, std::uint32_t,
                     Callback<Created>) override;
  CallTicket Read(const CallContext&, const OpenPtr&, std::uint64_t, const transport::LocalSlice&,
                  std::uint32_t, Callback<ReadDone>) override;
  CallTicket Write(const CallContext&, const OpenPtr&, std::uint64_t, const transport::LocalSlice&,
                   std::uint32_t, Callback<WriteDone>) override;
  CallTicket FlushFile(const CallContext&, const OpenPtr&, std::uint64_t, DoneCallback) override;
  CallTicket Release(const CallContext&, OpenPtr, DoneCallback) override;
  CallTicket Fsync(const CallContext&, const OpenPtr&, bool, DoneCallback) override;
  CallTicket Fallocate(const CallContext&, const OpenPtr&, std::uint32_t, std::uint64_t,
                       std::uint64_t, Callback<Attributes>) override;
  CallTicket Seek(const CallContext&, const OpenPtr&, std::uint64_t, std::uint32_t,
                  Callback<std::uint64_t>) override;
  CallTicket CopyFileRange(const CallContext&, const OpenPtr&, std::uint64_t, const OpenPtr&,
                           std::uint64_t, std::uint64_t, std::uint32_t,
                           Callback<WriteDone>) override;
  CallTicket OpenDir(const CallContext&, const Handle&, std::uint32_t,
                     Callback<OpenedDirectory>) override;
  CallTicket ReadDir(const CallContext&, const OpenPtr&, std::uint64_t, std::uint32_t, bool,
                     Callback<DirPage>) override;
  CallTicket FsyncDir(const CallContext&, const OpenPtr&, bool, DoneCallback) override;
  CallTicket GetLock(const CallContext&, const OpenPtr&, const Lock&, bool,
                     Callback<Lock>) override;
  CallTicket SetLock(const CallContext&, const OpenPtr&, const Lock&, bool, bool,
                     DoneCallback) override;

 private:
  static constexpr std::size_t kMostOnWire = kMaxRequestsInFlight - RequestTable::kUrgentOnWire;
  LaneImpl(MountImpl& mount, std::uint32_t number, std::shared_ptr<Mailbox> mailbox,
           std::shared_ptr<LaneCounters> counters, Fd epoll, LaneMemory memory);

  // A call that ends without a message: with `status`, when Poll runs next.
  struct Ready {
    std::uint64_t ticket = 0;  // 0: the completion stands here, there is no call
    Completion completion;
    Status status;
  };
  struct Waiting {
    Slot slot = kNoSlot;
    std::uint64_t ticket = 0;
  };

  // ---- lane.cc ----------------------------------------------------------------------------------
  // A new call, idle; null (and the completion runs in Poll) when there are too many.
  Call* Begin(const CallContext& context, Opcode opcode, Completion completion, Slot* slot);
  CallTicket Refuse(Completion completion, int errno_value);
  // Begin, encode, queue.
  template <typename Encode>
  CallTicket Issue(const CallContext& context, Opcode opcode, Completion completion,
                   Encode&& encode, OpenPtr open = {}, std::size_t most = Body::kInlineBodyBytes);
  // Something of the lane's own, ahead of everything else.
  // Without a completion nobody waits for the answer.
  void IssueUrgent(Opcode opcode, ByteSpan body, Completion completion = {},
                   const CallContext& context = {});
  void Finish(Slot slot, Status status);
  void Finish(Slot slot, Answer& answer);
  // Counts how long a call took that ends now.
  void Time(const Call& call);
  void FinishLater(Slot slot, Status status);
  std::size_t RunReady();
  void SayGoodbye();
  // Whether a place in a waiting list still stands for a call.
  [[nodiscard]] bool StillWaits(const Waiting& waiting) const {
    return table_.Find(waiting.ticket).has_value() && calls_[waiting.slot].waiting;
  }
  void Wait(std::deque<Waiting>& list, Slot slot);
  // The next message of a call whose request was answered without being carried out, or whose
  // connection went.
  void Restart(Slot slot);

  // ---- lane_messages.cc -------------------------------------------------------------------------
  void SendQueued();
  void SendOne(Slot slot, TimePoint now);
  static void FillInOpens(Call& call);
  void OnMessage(ByteSpan message) override;
  void OnUnasked(const ReplyHeader& header, ByteSpan body);
  void OnArena(const ArenaMessage& arena);
  void OnRecall(ByteSpan body);
  void OnRecall(const RecallNotice& notice);
  void Deliver(Slot slot, WireError error, ByteSpan body);
  // kExtensionDirectories of this answer, for its callback; false: not what was asked for.
  bool TakeDirectories(Slot slot, ByteSpan directories);
  void Hostile(std::string_view what);

  // ---- lane_link.cc -----------------------------------------------------------------------------
  void OpenMailbox();
  void TakeLink(std::unique_ptr<LaneLink> link);
  // To a server that was started anew and cannot open files by their handles: what is asked again
  // names directories that it must have been led to before.
  void ShowTheWay();
  // Ahead of everything else; nobody waits for the answers. As root, and as whoever the way is for:
  // with root_squash root is nobody there.
  void LookUp(std::span<const PathStep> steps, const CallContext& whose);
  void SetStaging(std::uint32_t slot_bytes, std::uint32_t slots);
  void LoseConnection();
  void OnTimers();
  // Its deadline has passed, and a device may still touch its slice (CallContext::keeps_memory).
  // Nothing more is sent of it. Ends with its last operation, for which the connection has
  // kMemoryPatience, or with the connection.
  void WaitForMemory(Slot slot);
  void FinishLate(Slot slot);
  void OnConnectionDestroyed();

  // ---- lane_reclaim.cc --------------------------------------------------------------------------
  void OnWrongEpoch(Slot slot);
  void ReclaimOpen(Slot slot, const OpenPtr& open);
  void OnReclaimed(Slot slot, const Status& status);
  void ReclaimLocks(const OpenPtr& open);
  // The server waits for other clients before it gives locks (kGrace): a moment later, those that
  // are held then. Without a connection the next one asks (LeaveLocks).
  void AskForLocksLater(const OpenPtr& open);
  void AskForLocks();
  void LeaveLocks();

  // ---- lane_calls.cc, lane_file_calls.cc --------------------------------------------------------
  CallTicket NameCall(const CallContext& context, Opcode opcode, const Handle& parent,
                      std::string_view name, Completion completion);
  struct Opener {
    std::uint32_t uid, gid;
  };
  // Behind an answer of the server's; see the public one.
  void SeeChange(InodeState& inode, std::uint64_t change);
  OpenPtr NewOpen(const Handle& handle, std::uint32_t flags, bool directory, const OpenReply& reply,
                  Opener opener);
  Completion CreatedCompletion(Opener opener, std::uint32_t flags, bool named,
                               Callback<Created> done);
  CallTicket LockCall(const CallContext& context, Opcode opcode, const OpenPtr& open,
                      const Lock& lock, std::uint32_t flags, Completion completion);
  CallTicket SyncCall(const CallContext& context, Opcode opcode, const OpenPtr& open,
                      bool data_only, DoneCallback done);

  // ---- lane_left.cc -----------------------------------------------------------------------------
  // A release or a flush ends when the server has heard it, however long that takes: the file would
  // stay open, and locks held. What the server may have locked or opened is
  // given back. Only the caller is told `status` before. False: another call, nothing done.
  bool LetCallerGo(Slot slot, Status status);
  // The caller waits no longer.
  void GiveUp(Slot slot, Status status);
  // The server has not done it and knows its number no more: whether it is interrupted, and ends
  // here. Nothing else would end it: the server has been told of that number already.
  bool EndCancelled(Slot slot);
  void LetOpenGo(Slot slot);
  // Asks it to give up the request, which was sent.
  void InterruptAtServer(Slot slot);
  void LetLockGo(Slot slot);
  // The server has given this lock, or may have, and its caller was told that it has not.
  void UndoLock(CallContext context, const OpenPtr& open, ByteSpan set, std::uint64_t number);
  void SendOwed();

  // ---- lane_read.cc -----------------------------------------------------------------------------
  bool TakeRound(Slot slot);
  void GiveRoundBack(Call& call);
  void StartRead(Slot slot);
  bool ReadFromCache(Slot slot);
  void AskForRead(Slot slot);
  void OnReadReply(Slot slot, ByteSpan body);
  bool TakeGrants(Call& call, const ReadReply& reply, std::span<const GrantWire> grants,
                  std::uint32_t want_ahead);
  bool CheckGrant(const GrantWire& grant, std::uint64_t from, std::uint64_t end) const;
  void PostRound(Slot slot);
  void PostGenerations(Slot slot);
  [[nodiscard]] bool RoundHolds(const ReadRound& round) const;
  void OnReadsDone(Slot slot);
  void AfterRound(Slot slot);
  void PrefetchGrants(const Call& call);
  void OnPrefetched(const std::shared_ptr<InodeState>& inode, std::uint64_t own_changes,
                    std::uint64_t offset, std::uint32_t reach, Answer& answer);

  // ---- lane_write.cc ----------------------------------------------------------------------------
  void StartWrite(Slot slot);
  void ResendChunk(Slot slot);
  void StartChunk(Slot slot);
  void Stage(Slot slot);
  [[nodiscard]] std::uint64_t MostStaged() const;
  [[nodiscard]] bool IsInline(std::uint32_t bytes) const;  // what is left of a write
  static void EncodeWrite(Call& call, std::uint32_t slot_bytes);
  void OnWritePosted(Slot slot) override;
  void OnWriteReply(Slot slot, WireError error, ByteSpan body);
  // The server has acknowledged it, and it is not durable yet.
  void NoteWritten(OpenFile& open, std::uint64_t verifier);
  // If it was an early one that failed.
  void NoteFailed(const Call& call, const Answer& answer);
  void AfterChunk(Slot slot);
  void GiveStagingBack(Call& call);
  void StartWaitingWrites();

  void OnOperationDone(Slot slot, const Status& status) override;

  MountImpl& mount_;
  const Clock& clock_;
  const std::uint32_t number_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<LaneCounters> counters_;
  // What the answer that is being delivered says of directories (DirectoriesTold).
  std::array<Attributes, kMostDirectoriesTold> told_{};
  std::size_t told_count_ = 0;
  std::uint64_t told_trace_ = 0;
  const Fd epoll_;
  const std::unique_ptr<transport::MemoryRegion> control_;  // generation words
  const std::unique_ptr<transport::MemoryRegion> memory_;
  BufferPool buffers_;
  RequestTable table_;
  std::deque<Call> calls_;  // by slot
  GrantCache grants_;
  Wire wire_;
  Heartbeat heartbeat_;

  // Of the connection: as in LaneLink.
  std::uint64_t session_ = 0, epoch_ = 0, incarnation_ = 0;
  std::chrono::nanoseconds round_trip_{};
  bool stale_session_ = false;
  transport::RemoteRegion staging_;
  std::uint32_t slot_bytes_ = 0, staging_slots_ = 0;
  std::vector<std::uint32_t> free_staging_;
  std::unordered_map<std::uint32_t, transport::RemoteRegion> arenas_;

  std::deque<Waiting> waiting_writes_;  // for a staging slot
  std::vector<std::unique_ptr<ReadRound>> rounds_;
  std::vector<ReadRound*> free_rounds_;
  std::deque<Waiting> waiting_reads_;  // for a round
  std::unordered_set<const InodeState*> prefetching_;
  std::vector<OpenPtr> without_locks_;  // of AskForLocksLater
  TimePoint ask_for_locks_ = TimePoint::max();
  TimePoint operation_done_at_{};  // a one-sided one, whosever
  std::deque<Ready> ready_;
  // A release, or a flush, that found no room among the calls.
  struct Owed {
    struct Flush {
      std::uint64_t lock_owner;
      // HeldLocks::asked then: a lock that the owner has asked for since must not go with it.
      std::uint64_t asked;
    };
    CallContext context;
    OpenPtr open;
    std::optional<Flush> flush;
  };
  std::deque<Owed> owed_;
  std::deque<Waiting> restart_;  // were idle when the connection was lost: go on with the next one
  TimePoint now_{};  // when Poll began, messages were last sent, or a one-sided read was over
  bool told_time_ = false;  // by AsOf, and it has not got old since
  bool was_connected_ = false;
  bool closing_ = false;
  std::size_t callbacks_run_ = 0;
};

template <typename Encode>
CallTicket LaneImpl::Issue(const CallContext& context, Opcode opcode, Completion completion,
                           Encode&& encode, OpenPtr open, std::size_t most) {
  Slot slot = kNoSlot;
  Call* call = Begin(context, opcode, std::move(completion), &slot);
  if (call == nullptr) return 0;
  call->open = std::move(open);
  call->body.Encode(std::forward<Encode>(encode), most);
  table_.Queue(slot, opcode);
  return table_.TicketOf(slot);
}

}  // namespace rdfs::fs::client
