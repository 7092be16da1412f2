// ReceiveCrew: the threads that make files out of batches, while the driver receives.
//
//   batch --> planned: hashed, checked and taken apart, in order, by one thread at a time:
//               directories are made, large files begun
//         --> jobs: small files, links, pieces, by all threads at once
//         --> done, in order: its directories are left, its slot is free
//
// A batch belongs to the crew from Take until it is reported done. What fails of one file is a
// notice; a broken rule ends the crew. The driver's thread gives batches and takes results.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "tools/copy/destination/decide.h"
#include "tools/copy/destination/destination.h"
#include "tools/copy/remote/records.h"
#include "tools/copy/remote/wire.h"
#include "tools/copy/source/scanner.h"
#include "tools/pipe/io/stopping.h"
#include "transport/base/event_fd.h"

namespace rdfs::copy {

struct ReceiveCrewSettings {
  Keep keep;
  std::vector<std::string> names;  // of the sources, for messages
  std::uint32_t slot_bytes = 0, slots = 0;
  int threads = 1;
  Copied copied;  // may be empty
  Policy policy;
  bool remove = false;  // --delete
  bool verify = false;
  bool dry_run = false;
  // Of the sender: what else it sends ends the copy, and what its filter leaves out is not missing.
  ScanOptions asked;
  std::function<void(const std::string& path)> gone;    // told of what was deleted; may be empty
  std::function<void(const std::string& path)> unsent;  // as WalkOptions has it
};

class ReceiveCrew {
 public:
  struct Done {
    std::uint64_t batches;  // from the first
  };
  using Output = std::variant<Done, Notice, Want, Have, Status>;

  // `destination` and `ring`, which the peer WRITEs, outlive this.
  static Result<std::unique_ptr<ReceiveCrew>> Create(Destination& destination, ByteSpan ring,
                                                     ReceiveCrewSettings settings);
  ReceiveCrew(const ReceiveCrew&) = delete;
  ReceiveCrew& operator=(const ReceiveCrew&) = delete;
  ~ReceiveCrew();

  // Never more at a time than there are slots.
  void Take(const BatchWire& batch);
  [[nodiscard]] int fd() const { return wake_.fd(); }
  // Replaces `out` by what has been done since the last call. Never blocks.
  void Collect(std::vector<Output>& out);
  // Everything has been done: nothing of a file is missing, and so many entries came.
  Status CheckEnd(std::uint64_t entries) const { return rules_.CheckEnd(entries); }
  // Likewise: files that were wanted and never came.
  [[nodiscard]] std::uint64_t unanswered() const { return wanted_.size(); }
  // Made: all but directories.
  [[nodiscard]] std::uint64_t files() const { return files_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t kept() const { return kept_; }
  // What is done without being made: see Report::Passed.
  [[nodiscard]] Totals passed() const { return {passed_files_, passed_bytes_}; }

 private:
  struct Batch;
  struct Incoming;
  struct Job;
  static constexpr std::size_t kMostUntaken = 4096;

  ReceiveCrew(Destination& destination, ByteSpan ring, ReceiveCrewSettings settings, EventFd wake);
  void Run();
  void Plan(Batch& batch);
  Status PlanRecords(Batch& batch);
  Status PlanRecord(Batch& batch, Record record);
  void PlanEntry(Batch& batch, EntryRecord record);
  // Of a dry run: what would be done is told, and all that is offered is answered.
  void Rehearse(const EntryRecord& record);
  void RehearseDirectory(const Entry& entry);
  void RehearseLeave(const LeaveRecord& record);
  void PlanDirectory(const Entry& entry);
  void PlanLeave(Batch& batch, LeaveRecord record);
  void PlanOffer(const EntryRecord& record);
  Status PlanAnswer(Batch& batch, EntryRecord record);
  Verdict Judge(const Entry& entry);
  bool IsThere(const Entry& entry, Verdict verdict, const std::optional<Digest>& digest);
  bool HasContent(const Entry& entry, const Digest& digest);
  void Prune(const LeaveRecord& record);
  bool PlanLink(const EntryRecord& record, Verdict verdict);
  std::unique_ptr<OutputFile> GoOn(const EntryRecord& record);
  void PlanContent(Batch& batch, EntryRecord record, Destination::Pin pin);
  void BeginFile(EntryRecord record, std::unique_ptr<OutputFile> file);
  void PlanPiece(Batch& batch, const PieceRecord& record);
  void PlanFileEnd(Batch& batch, const FileEndRecord& record);
  [[nodiscard]] bool IsSkipped(const Entry& entry) const;
  void Do(Job& job);
  void DoWhole(const Entry& entry, ByteSpan content);
  void DoPiece(Incoming& file, std::uint64_t offset, ByteSpan content);
  void FinishFile(Incoming& file);
  void AddJob(Batch& batch, Job job);
  void LeaveDone(std::unique_lock<std::mutex>& lock);
  void TellOf(const Entry& entry, const Status& why);
  void Made(const Entry& entry);
  void Pass(const Entry& entry);
  [[nodiscard]] std::string Named(const Entry& entry) const;
  static std::string KeyOf(const Entry& entry);
  void Put(Output output);

  Destination& destination_;
  const ByteSpan ring_;
  const ReceiveCrewSettings settings_;
  const EventFd wake_;
  pipe::StopFlag stop_{false};
  std::atomic<std::uint64_t> files_{0}, bytes_{0}, kept_{0};
  std::atomic<std::uint64_t> passed_files_{0}, passed_bytes_{0};

  // Of the planning, which one thread does at a time.
  RecordRules rules_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Incoming>> incoming_;
  // A file that was offered and is wanted: its directory stays open to it.
  struct Wanted {
    Destination::Pin pin;
    std::unique_ptr<OutputFile> file;  // that is gone on with, if the sender does so
  };
  std::unordered_map<std::string, Wanted> wanted_;     // by KeyOf
  std::size_t files_wanted_ = 0;                       // of wanted_ that have one
  Want want_;                                          // of the batch that is planned
  std::vector<std::unordered_set<std::string>> seen_;  // names in the directories that are open
  // A directory that could not be made: nothing beneath it is tried.
  std::optional<Entry> skipped_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Batch> batches_;  // that are not done, in order
  std::size_t unplanned_ = 0;  // the last so many of them
  bool planning_ = false, leaving_ = false;
  std::deque<Job> jobs_;
  std::uint64_t done_ = 0;  // batches
  std::vector<Output> outputs_;

  std::optional<pipe::Threads> threads_;  // last: ends first
};

}  // namespace rdfs::copy
