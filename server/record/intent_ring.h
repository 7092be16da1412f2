// IntentRing: the record of a session's mutating requests, so that each happens exactly once.
//
// A memory-mapped file. Before a mutating request is carried out, Begin writes its intent; after,
// Complete writes the answer. What is in the mapping belongs to the kernel, so it survives the
// death of this process at any instant, kill -9 included, without fsync; it does not survive the
// host, and neither does the session. When a request comes a second time (kRequestSentBefore, or
// after a restart), Lookup tells what became of the first.
//
//   free --Begin--> intent --Complete--> done --Acknowledge--> free
//                     |  found when the ring is opened: interrupted --Resume--> intent
//
// Records carry checksums keyed by the session: a torn record is an intent that had not begun (its
// request had not either) or a result that had not been written; a damaged one is as good as free.
//
// Threads: any; one mutex a ring, no system call under it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/record/intent_record.h"
#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

class IntentRing {
 public:
  // The longest answer that a record keeps. Longer ones (none of the protocol's mutating requests
  // has one) are kept as kDone with `reply_lost`: to be made again from the state.
  static constexpr std::size_t kMaxReplyBytes = 768;
  static constexpr std::uint32_t kDefaultRecords = 1024;  // of 1 KiB

  enum class Verdict : std::uint8_t {
    kNew,           // never seen: carry it out
    kInProgress,    // begun by this process and not complete: its answer is on its way
    kDone,          // `error` and `reply` are the answer
    kInterrupted,   // begun by an earlier process: Resolve, Resume, then Complete
    kAcknowledged,  // the client has had the answer: it asks nonsense
    kMismatch,      // another request had this sequence number: it asks nonsense
  };
  struct Found {
    Verdict verdict = Verdict::kNew;
    fs::WireError error = fs::WireError::kOk;
    std::vector<std::byte> reply;  // the body
    bool reply_lost = false;
    PriorState before;  // of kInterrupted
  };

  // Opens or makes the file `path` (mode 0600, in a directory that only this user can write to).
  // A file that is not this session's ring is replaced. Errors: kErrno.
  // `exported` says whose it is, for Leftovers.
  static Result<std::unique_ptr<IntentRing>> Open(const std::string& path, std::uint64_t session,
                                                  std::uint32_t records = kDefaultRecords,
                                                  std::uint64_t exported = 0);
  IntentRing(const IntentRing&) = delete;
  IntentRing& operator=(const IntentRing&) = delete;
  ~IntentRing();

  // A request's arguments as Lookup and Begin compare them: 64 bits of opcode and body, without the
  // names in it that are another when the request comes again (fs::NamesInBody).
  static std::uint64_t Digest(fs::Opcode opcode, ByteSpan body);

  [[nodiscard]] Found Lookup(std::uint64_t sequence, std::uint64_t digest) const;
  // Errors: kBusy (every record is in use: the client does not acknowledge), kInvalidArgument (the
  // sequence number has a record or was acknowledged).
  Status Begin(std::uint64_t sequence, fs::Opcode opcode, std::uint64_t digest,
               const PriorState& before);
  // An interrupted intent is this process's from now on: whoever asks for it meanwhile finds it in
  // progress. False: it is already.
  bool Resume(std::uint64_t sequence);
  // Without effect when there is no such intent.
  void Complete(std::uint64_t sequence, fs::WireError error, ByteSpan reply);
  // Another answer to what is done without an error: the one before named what is no more. Without
  // effect when there is no such record.
  void Amend(std::uint64_t sequence, ByteSpan reply);
  // Takes an intent back whose request was not carried out after all (it will be asked again).
  void Abandon(std::uint64_t sequence);
  // Every answer up to `sequence` has arrived: their records are free.
  void Acknowledge(std::uint64_t sequence);
  // The answer to this one has, whatever became of those before.
  void AcknowledgeOne(std::uint64_t sequence);

  // How many files the session has open: for whoever finds the ring after a crash.
  void NoteOpens(std::size_t opens);
  // The session is alive.
  void NoteSeen();
  // The session's client had another one before, which was given up with all its locks, and has
  // not heard of it (kGrantGivenUp).
  void NoteGivenUp(bool given_up);
  [[nodiscard]] bool given_up() const;

  // The session has ended: removes the file, unless another process has it open (a second server of
  // a mount by ssh that could not reach the first).
  void Remove();
  // Whether Open found no ring of this session's: what it did earlier is not known.
  [[nodiscard]] bool made_anew() const { return made_anew_; }

  // A ring that no process has open: its server has died, or was stopped.
  struct Leftover {
    std::string path;
    std::uint64_t session = 0;
    std::uint64_t exported = 0;
    std::uint32_t opens = 0;
    std::chrono::seconds age{};  // since NoteSeen
  };
  // The epoch of the first server that kept records in the directory, which is `epoch` with a new
  // tag if that is the first: what is of an earlier one (IsBefore) is in no record here, since the
  // host was started anew.
  static std::uint64_t FirstEpoch(const std::string& directory, std::uint64_t epoch);
  // All of them in a directory; files that are no rings are left out.
  static std::vector<Leftover> Leftovers(const std::string& directory);
  // Removes one, unless a process has opened it meanwhile.
  static void RemoveLeftover(const std::string& path);

  // Left by an earlier process, for a server that resolves before it is asked.
  [[nodiscard]] std::vector<std::uint64_t> interrupted() const;
  [[nodiscard]] std::size_t records_in_use() const;

 private:
  struct Header;
  struct Record;
  enum class Phase : std::uint8_t { kIntent, kInterrupted, kDone };
  struct Entry {
    std::uint32_t index;
    Phase phase;
  };

  IntentRing(std::string path, Fd fd, std::byte* base, std::size_t size);
  void Load();
  [[nodiscard]] Record& At(std::uint32_t index) const;
  [[nodiscard]] Header& header() const;
  [[nodiscard]] std::uint64_t IntentSum(const Record& record) const;
  [[nodiscard]] std::uint64_t ResultSum(const Record& record) const;
  [[nodiscard]] std::uint64_t AcknowledgedSum(std::uint64_t sequence) const;
  static void Format(std::byte* base, std::uint64_t session, std::uint32_t records,
                     std::uint64_t exported);
  static bool IsWhole(const Header& header);
  void WriteResultLocked(Record& record, fs::WireError error, ByteSpan reply);
  void ReleaseLocked(std::uint64_t sequence);
  void NoteAnsweredLocked(std::uint64_t sequence);
  [[nodiscard]] bool IsAnsweredLocked(std::uint64_t sequence) const;

  const std::string path_;
  const Fd fd_;  // with a shared flock(2): in use
  bool made_anew_ = false;
  std::uint64_t seed_ = 0;  // of the checksums: this session, this making of the file
  std::byte* const base_;
  const std::size_t size_;
  std::uint32_t count_ = 0;
  mutable std::mutex mutex_;  // guards what follows and the records
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint64_t acknowledged_ = 0;
  // What was acknowledged one by one above that: first and last of each stretch. Connections, and
  // with them what may come late, end with the process.
  std::map<std::uint64_t, std::uint64_t> answered_;
};

}  // namespace rdfs::server
